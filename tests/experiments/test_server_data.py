"""The server's data and public examples: drawn, filtered, of other writers, a file."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import tasks
from experiments.training import server_data
from tff_drift import simulation

FLAGS = {
    "meta_fraction": 0.25,
    "meta_labels": None,
    "meta_overlap": 1.0,
    "meta_file": None,
}


@pytest.fixture(scope="module")
def task():
    return tasks.load("digits", num_clients=4)


def choose(task, **flags):
    return server_data.choose("meta", {**FLAGS, **flags}, task, task.train)


def test_a_fraction_is_drawn_as_the_library_draws_it(task):
    expected = simulation.sample_examples(task.train, 0.25, task.seed)
    for found, wanted in zip(choose(task), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_only_some_labels(task):
    _, labels = choose(task, meta_labels="3+7", meta_fraction=0.1)
    assert set(labels) == {3, 7}
    assert len(labels) == 144  # A tenth of 1,438.


def test_writers_whom_nobody_trains_on(task):
    kept, others = (task.train.subset(ids) for ids in
                    (task.train.client_ids[:3], task.train.client_ids[3:]))  # fmt: skip
    task = dataclasses.replace(task, train=kept, validation=others)
    images, _ = choose(task, meta_overlap=0.5, meta_fraction=0.1)
    own, foreign = (
        {row.tobytes() for name in part.client_ids for row in part.examples(name)[0]}
        for part in (kept, others)
    )
    half = len(images) // 2
    assert {row.tobytes() for row in images[:half]} <= own
    assert {row.tobytes() for row in images[half:]} <= foreign


def test_a_file(task, tmp_path):
    images, labels = task.train.examples(task.train.client_ids[0])
    path = tmp_path / "meta.npz"
    np.savez(path, x=images[:5], y=labels[:5])
    for found, wanted in zip(
        choose(task, meta_file=str(path)), (images, labels), strict=True
    ):
        np.testing.assert_array_equal(found, wanted[:5])
    np.savez(path, x=images[:5].astype(float), y=labels[:5])
    with pytest.raises(ValueError, match="must hold arrays of the clients' type"):
        choose(task, meta_file=str(path))
    np.savez(path, x=images[:5])
    with pytest.raises(ValueError, match="but an example has 2 parts"):
        choose(task, meta_file=str(path))


def test_a_file_that_is_no_whole_npz(task, tmp_path):
    images, labels = task.train.examples(task.train.client_ids[0])
    path = tmp_path / "meta.npz"
    np.savez_compressed(path, x=images[:5], y=labels[:5])
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", images)
    one = (tmp_path / "one.npy").read_bytes()
    # Where the first array is, which is compressed.
    damaged = whole[:90] + bytes(20) + whole[110:]
    for content in (b"", b"text", whole[:-9], damaged, one):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"--meta_file: '.*' is not a whole NPZ"):
            choose(task, meta_file=str(path))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        choose(task, meta_file=str(path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"meta_labels": "a"}, r"must be numbers such as 0\+1\+2, found 'a'"),
        ({"meta_labels": "11"}, "no client has an example of 11"),
        ({"meta_overlap": 0.5}, "but task digits has none. Give --validation_fraction"),
    ],
)  # fmt: skip
def test_bad_flags(task, flags, message):
    with pytest.raises(ValueError, match=message):
        choose(task, **flags)


@pytest.mark.conformance
def test_a_step_of_fed_meta_after_any_method(run_command, tmp_path):
    outcome = run_command(
        "train", "--task=quadratic", "--algorithm=adabest", "--num_clients=4",
        "--clients_per_round=2", "--rounds=1", "--meta_step=0.1", "--meta_fraction=0.5",
        f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    rows = pd.read_csv(tmp_path / "metrics.csv")
    assert any("meta" in name for name in rows)
    outcome = run_command("train", "--meta_fraction=0.5", f"--output_dir={tmp_path}")
    assert "--meta_fraction has no meaning for fed_avg without --meta_step" in (
        outcome.stderr
    )
