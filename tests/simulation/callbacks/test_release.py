import asyncio
import types

import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

from tff_drift.simulation.callbacks import TensorBoard

ROWS = [
    {"round": 0, "test_loss": 4.0},
    {"round": 1, "train_loss": 2.0},
    {"round": 2, "train_loss": 1.0, "test_loss": 3.0},
]


def _read(folder):
    accumulator = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.TENSORS: 0}
    )
    accumulator.Reload()
    return {
        tag: [
            (event.step, float(tf.make_ndarray(event.tensor_proto)))
            for event in accumulator.Tensors(tag)
        ]
        for tag in accumulator.Tags()["tensors"]
    }


def _write(folder, rows_before, rows):
    run = types.SimpleNamespace(folder=folder, rows=rows_before)
    log = TensorBoard(folder)
    log.before_training(run)
    for row in rows:
        log.after_row(row)
    log.after_training(None)


def test_scalars_by_round(tmp_path):
    _write(tmp_path, [], ROWS)
    assert _read(tmp_path) == {
        "test_loss": [(0, 4.0), (2, 3.0)],
        "train_loss": [(1, 2.0), (2, 1.0)],
    }


def test_opening_again_leaves_neither_gap_nor_double(tmp_path):
    _write(tmp_path, [], ROWS)
    _write(tmp_path, ROWS[:2], ROWS[2:])
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1
    assert _read(tmp_path)["train_loss"] == [(1, 2.0), (2, 1.0)]


def test_other_files_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    _write(tmp_path, [], ROWS)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_works_inside_a_running_event_loop(tmp_path):
    async def notebook_cell():
        _write(tmp_path, [], ROWS)

    asyncio.run(notebook_cell())
    assert _read(tmp_path)["train_loss"] == [(1, 2.0), (2, 1.0)]
