import json
import os
import pathlib
import resource
import shutil
import signal

import numpy as np
import pytest

from tff_drift import files
from tff_drift.simulation.records.checkpoint import CheckpointError
from tff_drift.simulation.records.metrics_file import MetricsFileError, read_rows
from tff_drift.simulation.records.run_directory import RunDirectory
from tff_drift.simulation.records.run_folder import OutputDirError
from tff_drift.simulation.records.run_store import TrainingState

USER = {"task": "digits", "rounds": 5, "rates": {"client": 0.1, "server": 1}}
TRAINING = {"rounds": 5, "cohort_size": 10, "train": {"batch_size": 4, "seed": 0}}
STATE = {"weights": np.arange(3, dtype=np.float32)}
HYPERPARAMETERS = {"finalizer/learning_rate": 0.5}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def _open(folder, user=USER, training=TRAINING, **options):
    record = RunDirectory(folder)
    record.identify(user, training, **options)
    return record


def _run(folder, rounds_completed=2):
    """Leaves a run in the folder, as if killed after `rounds_completed`."""
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS) is None
    record.save(TrainingState(0, STATE))
    for round_ in range(1, rounds_completed + 1):
        record.add({"round": round_, "train_loss": 1 / round_})
    record.save(TrainingState(rounds_completed, {"weights": STATE["weights"] + 1}))
    record.close()


def _contents(folder):
    return {
        path.name: path.read_bytes()
        for path in pathlib.Path(folder).iterdir()
        if path.is_file()
    }


def test_a_relative_folder_stays_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = _open("run")
    record.resume(STATE, HYPERPARAMETERS)
    monkeypatch.chdir("/")
    record.save(TrainingState(0, STATE))
    record.close()
    assert {"checkpoint.npz", "metrics.csv"} <= set(_contents(tmp_path / "run"))


def test_run_goes_on_from_its_checkpoint(folder):
    _run(folder)
    with open(folder / "metrics.csv", "ab") as file:
        file.write(b"3,0.5\n4,0.")
    (folder / ".checkpoint.npz.tmp").write_bytes(b"half")
    record = _open(folder)
    position = record.resume(STATE, HYPERPARAMETERS)
    assert position.rounds_completed == 2
    assert position.state["weights"].tolist() == [1, 2, 3]
    assert list(record.rows) == [
        {"round": 1, "train_loss": 1.0},
        {"round": 2, "train_loss": 0.5},
    ]
    record.close()
    assert sorted(os.listdir(folder)) == [
        "checkpoint.npz",
        "config.json",
        "metrics.csv",
    ]
    assert (folder / "metrics.csv").read_text() == "round,train_loss\n1,1.0\n2,0.5\n"


def test_configuration_is_written_for_readers(folder):
    _run(folder)
    content = json.loads((folder / "config.json").read_text())
    assert content["configuration"] == USER
    assert content["training"] == TRAINING
    assert content["versions"]["tensorflow_federated"]


def test_rounds_may_change(folder):
    _run(folder)
    record = _open(folder, {**USER, "rounds": 9}, {**TRAINING, "rounds": 9})
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 2
    record.close()
    assert json.loads((folder / "config.json").read_text())["training"]["rounds"] == 9


@pytest.mark.parametrize(
    ("user", "training", "message"),
    [
        ({"task": "emnist"}, {}, 'task was "digits" and is now "emnist"'),
        (
            {"rates": {"client": 0.2, "server": 1}},
            {},
            "rates.client was 0.1 .* now 0.2",
        ),
        ({"new": 1}, {}, "new was absent and is now 1"),
        ({}, {"cohort_size": 20}, "cohort_size was 10 and is now 20"),
        (
            {},
            {"train": {"batch_size": 8, "seed": 1}},
            "train.batch_size was 4 and is now 8; train.seed was 0 and is now 1",
        ),
    ],
)
def test_changed_configuration_names_the_field(folder, user, training, message):
    _run(folder)
    before = _contents(folder)
    with pytest.raises(OutputDirError, match=message):
        _open(folder, {**USER, **user}, {**TRAINING, **training})
    assert _contents(folder) == before


def test_fewer_rounds_than_completed_leave_the_folder_as_it_is(folder):
    _run(folder)
    before = _contents(folder)
    with pytest.raises(ValueError, match=r"rounds is 1, .* has completed 2"):
        _open(folder, USER, {**TRAINING, "rounds": 1})
    assert _contents(folder) == before


def test_changed_hyperparameter_names_it(folder):
    _run(folder)
    before = _contents(folder)
    record = _open(folder, {**USER, "rounds": 99})
    with pytest.raises(OutputDirError, match=r"learning_rate was 0.5 and is now 0.25"):
        record.resume(STATE, {"finalizer/learning_rate": 0.25})
    record.close()
    assert _contents(folder) == before


def test_kill_before_the_first_checkpoint_begins_anew(folder):
    record = _open(folder)
    record.resume(STATE, HYPERPARAMETERS)
    record.add({"round": 0, "test_loss": 1.0})
    record.close()
    # Half of the first checkpoint, and of what trackers keep.
    for name in ("checkpoint.npz", "trackers.json"):
        (folder / f".{name}.tmp").write_bytes(b"half")
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS) is None
    assert list(record.rows) == []
    record.close()
    assert set(_contents(folder)) == {"config.json", "metrics.csv"}


def test_foreign_files_are_refused_and_untouched(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(
        OutputDirError, match=r"no checkpoint of tff_drift: thesis.tex\."
    ):
        _open(folder)
    assert _contents(folder) == {"thesis.tex": b"mine"}


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("config.json", '{"mine": 1}', OutputDirError, "tff_drift did not write"),
        ("config.json", "{half", OutputDirError, "tff_drift did not write"),
        ("config.json", "[1]", OutputDirError, "tff_drift did not write"),
        ("checkpoint.npz", "mine", CheckpointError, "not a whole checkpoint"),
        ("metrics.csv", "mine\n", OutputDirError, "no checkpoint of tff_drift"),
    ],
)
def test_foreign_file_of_our_name_is_refused(folder, name, content, error, message):
    folder.mkdir()
    (folder / name).write_text(content)
    with pytest.raises(error, match=message):
        _open(folder)
    assert _contents(folder) == {name: content.encode()}


def test_damaged_checkpoint_is_refused_and_untouched(folder):
    _run(folder)
    path = folder / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:-10])
    before = _contents(folder)
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        _open(folder)
    assert _contents(folder) == before


def test_lost_checkpoint_does_not_cost_the_metrics(folder):
    _run(folder)
    (folder / "checkpoint.npz").unlink()
    with pytest.raises(OutputDirError, match=r"its checkpoint.npz is gone"):
        _open(folder)
    assert (folder / "metrics.csv").read_text().count("\n") == 3


def test_lost_metrics_are_an_error(folder):
    _run(folder)
    (folder / "metrics.csv").unlink()
    with pytest.raises(MetricsFileError, match="rounds 1 to 2"):
        _open(folder)


def test_files_beside_a_run_are_welcome(folder):
    _run(folder)
    (folder / "curves.png").write_bytes(b"picture")
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 2
    record.close()
    assert (folder / "curves.png").read_bytes() == b"picture"


def test_unwritable_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    for output_dir in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(
            OutputDirError, match=r"cannot be written: .*Choose a folder"
        ):
            _open(output_dir)
    assert (tmp_path / "file").read_text() == "mine"


def test_failing_write_is_an_error(folder, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    record = _open(folder)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputDirError, match=r"cannot be written: .*No space left"):
        record.resume(STATE, HYPERPARAMETERS)
    record.close()


@pytest.fixture
def full_disk(monkeypatch):
    """A function that fills the disk."""

    def fail(*args):
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(os, "fsync", fail)


def test_a_disk_that_fills_up_costs_no_round_kept(folder, full_disk, monkeypatch):
    _run(folder)
    record = _open(folder)
    record.resume(STATE, HYPERPARAMETERS)
    record.add({"round": 3, "train_loss": 1 / 3})
    full_disk()
    message = r"No space left on device.*kept up to round 2: remove the cause"
    with pytest.raises(OutputDirError, match=message):
        record.save(TrainingState(3, STATE))
    # A new column rewrites the file.
    with pytest.raises(OutputDirError, match=message):
        record.add({"round": 4, "test_loss": 1.0})
    record.close()
    monkeypatch.undo()
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 2
    record.close()


def test_a_row_that_does_not_fit_is_an_error(folder):
    _run(folder)
    record = _open(folder)
    record.resume(STATE, HYPERPARAMETERS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (55, limits[1]))
    try:
        record.add({"round": 3, "train_loss": 1 / 3})
        with pytest.raises(OutputDirError, match=r"File too large.*up to round 2"):
            record.add({"round": 4, "train_loss": 1 / 4})
        record.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 2
    record.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_folder_that_is_moved_is_named_and_goes_on(folder, is_replaced):
    _run(folder)
    record = _open(folder)
    record.resume(STATE, HYPERPARAMETERS)
    moved = folder.rename(folder.parent / "moved")
    if is_replaced:
        folder.mkdir()
    for write in (
        lambda: record.add({"round": 3, "train_loss": 1 / 3}),
        lambda: record.save(TrainingState(3, STATE)),
    ):
        with pytest.raises(OutputDirError, match=r"moved or removed.*to round 2"):
            write()
    record.close()
    assert not is_replaced or os.listdir(folder) == []
    record = _open(moved)
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 2
    record.close()


@pytest.mark.parametrize(
    ("old", "new"), [("0.5", "0.25"), ("1,1.0", "1,1"), ("loss", "loss2")]
)
def test_edited_metrics_are_refused(folder, old, new):
    _run(folder)
    path = folder / "metrics.csv"
    path.write_text(path.read_text().replace(old, new))
    before = _contents(folder)
    with pytest.raises(MetricsFileError, match="has been changed since the checkpoint"):
        _open(folder)
    assert _contents(folder) == before


def test_read_only_folder_is_an_error_at_once(folder, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(files, "create", fail)
    with pytest.raises(OutputDirError, match=r"cannot be written: .*Read-only"):
        _open(folder)


def _entries(folder):
    """What changes if anything in a folder is created, removed or written."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def test_a_finished_run_is_read_from_a_read_only_folder(folder, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    _run(folder, rounds_completed=5)
    before = _entries(folder)
    monkeypatch.setattr(files, "create", fail)
    record = _open(folder)
    assert record.resume(STATE, HYPERPARAMETERS).rounds_completed == 5
    assert [row["round"] for row in record.rows] == [1, 2, 3, 4, 5]
    record.close()
    assert _entries(folder) == before
    with pytest.raises(OutputDirError, match=r"cannot be written: .*Read-only"):
        _open(folder, training={**TRAINING, "rounds": 6})
    with pytest.raises(OutputDirError, match="cohort_size was 10 and is now 20"):
        _open(folder, training={**TRAINING, "cohort_size": 20})


def test_a_run_that_was_to_be_extended_is_finished_again(folder):
    _run(folder, rounds_completed=5)
    for rounds in (9, 5):
        more = {"rounds": rounds}
        record = _open(folder, {**USER, **more}, {**TRAINING, **more})
        record.resume(STATE, HYPERPARAMETERS)
        record.close()
        content = json.loads((folder / "config.json").read_text())
        assert content["configuration"]["rounds"] == rounds
        assert content["training"]["rounds"] == rounds


@pytest.mark.parametrize("left", ["6,0.1\n", "6,0."])
def test_rows_that_a_kill_left_go_from_a_finished_run(folder, left):
    _run(folder, rounds_completed=5)
    whole = (folder / "metrics.csv").read_bytes()
    with open(folder / "metrics.csv", "a") as file:
        file.write(left)
    record = _open(folder)
    record.resume(STATE, HYPERPARAMETERS)
    record.close()
    assert (folder / "metrics.csv").read_bytes() == whole


def test_only_one_program_at_a_time(folder):
    first = _open(folder)
    with pytest.raises(OutputDirError, match="is in use by another program"):
        _open(folder)
    first.close()
    _open(folder).close()


@pytest.mark.parametrize("target", ["precious", "none"])
def test_links_lead_no_file_of_a_run_out_of_its_folder(tmp_path, target):
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
    (elsewhere / "precious").write_text("precious")
    for name in ("checkpoint.npz", "config.json", "metrics.csv", "trackers.json"):
        (folder / f".{name}.tmp").symlink_to(elsewhere / target)
    run = _open(folder)
    run.resume(STATE, {})
    run.add({"round": 1, "train_loss": 0.5})
    run.save(TrainingState(1, STATE))
    run.close()
    # Now at the names themselves.
    for name in ("config.json", "metrics.csv", "checkpoint.npz"):
        shutil.copy(folder / name, tmp_path / name)
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    run = _open(folder)
    run.resume(STATE, {})
    run.add({"round": 2, "train_loss": 0.25})
    run.save(TrainingState(2, STATE))
    run.close()
    assert [row["round"] for row in read_rows(folder / "metrics.csv")[1]] == [1, 2]
    assert {path: path.read_bytes() for path in before} == before
    assert os.listdir(elsewhere) == ["precious"]
    assert (elsewhere / "precious").read_text() == "precious"


def test_links_lead_no_folder_of_a_run_elsewhere(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path)
    with pytest.raises(OutputDirError, match=r"link leads out of .* in place"):
        _open(tmp_path / "run")
