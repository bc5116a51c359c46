"""Strange files in a run's folder, values without end, and messages that stay short."""

import json
import os
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
import rich.console
import tensorflow as tf
import tensorflow_federated as tff

from tests.simulation import fakes
from tff_drift import checks, files
from tff_drift.simulation import ClientDatasets, read_rows, run_training
from tff_drift.simulation.records.checkpoint import load_checkpoint


def run(folder, rounds=2):
    return run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=2,
        output_dir=folder,
    )


def rewritten(path, change):
    """Writes a checkpoint again, with another header and valid checksums."""
    with np.load(path) as arrays:
        members = dict(arrays)
    header = json.loads(members["header"].tobytes())
    header = change(header) or header
    text = header if isinstance(header, str) else json.dumps(header)
    members["header"] = np.frombuffer(text.encode(), np.uint8)
    np.savez(path, **members)


def compressed(path):
    with np.load(path) as arrays:
        members = dict(arrays)
    np.savez_compressed(path, zeros=np.zeros(10**6), **members)


CHECKPOINTS = {
    "rounds as text": lambda path: rewritten(
        path, lambda h: {**h, "rounds_completed": "2"}
    ),
    "rounds below 0": lambda path: rewritten(
        path, lambda h: {**h, "rounds_completed": -1}
    ),
    "a list for the description": lambda path: rewritten(
        path, lambda h: {**h, "description": []}
    ),
    "a text for the training": lambda path: rewritten(
        path, lambda h: {**h, "description": {"training": "abc"}}
    ),
    "no format": lambda path: rewritten(path, lambda h: {"rounds_completed": 2}),
    "a list for the header": lambda path: rewritten(path, lambda h: "[1, 2]"),
    "deep JSON": lambda path: rewritten(path, lambda h: "[" * 10**5),
    "compressed members": compressed,
    "an array": lambda path: np.save(path.open("wb"), np.zeros(3)),
    "nothing": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_strange_checkpoints_are_refused(damage, tmp_path):
    run(tmp_path)
    CHECKPOINTS[damage](tmp_path / "checkpoint.npz")
    with pytest.raises(ValueError, match="is not a whole checkpoint of tff_drift"):
        run(tmp_path, rounds=3)


TABLES = {
    "a text among the numbers": "round,a\n1,x\n",
    "no number of the round": "round,a\n,1\n",
    "a fraction for the round": "round,a\n1.5,1\n",
    "nan for the round": "round,a\nnan,1\n",
    "a huge field": "round,a\n1," + "9" * 10**6 + "\n",
    "another table": "a,b\n1,2\n",
    "binary": "\0\0\n",
}


@pytest.mark.parametrize("damage", TABLES)
def test_strange_metrics_are_refused(damage, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TABLES[damage])
    with pytest.raises(ValueError, match=r"metrics\.csv"):
        read_rows(path)


def test_a_table_of_a_header_alone_has_no_rows(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,train_loss\n")
    assert read_rows(path) == (["round", "train_loss"], [])


@pytest.mark.parametrize("name", ["checkpoint.npz", "metrics.csv", "config.json"])
def test_pipes_are_refused_at_once(name, tmp_path):
    run(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    # Whoever opens one waits for ever.
    with pytest.raises(ValueError, match=r"regular file|not a whole|did not write"):
        run(tmp_path, rounds=3)


def test_only_regular_files_are_opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with files.open_regular(path) as file:
        assert file.read() == b"abc"
    with pytest.raises(OSError, match="not a regular file"):
        files.open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.open_regular(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["[" * 10**5, "3", "[]", "{}", '{"format": [1]}'])
def test_strange_configurations_are_refused(text, tmp_path):
    run(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json that tff_drift did not write"):
        run(tmp_path, rounds=3)


@pytest.mark.parametrize("name", ["epochs", "local_steps"])
def test_batches_without_end_are_refused_at_once(name):
    message = f"{name} must be at most 10000000, found 1000000000000"
    with pytest.raises(ValueError, match=message):
        fakes.client_datasets(**{name: 10**12})


def test_more_batches_than_a_client_can_take_are_refused():
    train = fakes.client_datasets(epochs=10**7, batch_size=1)
    message = "epochs is 10,000,000: a client would train on more than 10,000,000 "
    with pytest.raises(ValueError, match=message):
        train.batch_sizes("client_0")
    with pytest.raises(ValueError, match=message):
        list(train.training_batches("client_0", 0))
    with pytest.raises(ValueError, match=message):
        run_training(fakes.AveragingProcess(), train, rounds=1, cohort_size=1)


def test_a_dictionary_in_the_place_of_clients_makes_a_short_message():
    arrays = {f"client_{k}": np.zeros([50, 50]) for k in range(500)}
    with pytest.raises(TypeError) as caught:
        run_training(fakes.AveragingProcess(), arrays, rounds=1, cohort_size=1)
    assert "ClientDatasets.from_arrays makes one of arrays" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("value", ["abc", b"abc", {1, 2}, 3])
def test_what_is_no_list_is_refused(value):
    message = f"examples must be a list of integers, found {re.escape(repr(value))}"
    with pytest.raises(TypeError, match=rf"^{message}\.$"):
        checks.check_list("examples", value, "a list of integers")
    with pytest.raises(TypeError, match=rf"^{message}\. Give one\.$"):
        checks.check_list("examples", value, "a list of integers", remedy="Give one.")
    checks.check_list("examples", [1, 2], "a list of integers")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ClientDatasets, "tff_drift.simulation.ClientDatasets"),
        (tff.learning.optimizers.Optimizer, "tff.learning.optimizers.Optimizer"),
        (tff.Type, "tff.Type"),
        (pd.DataFrame, "pandas.DataFrame"),
        (rich.console.Console, "rich.console.Console"),
        (fakes.AveragingProcess, "tests.simulation.fakes.AveragingProcess"),
        (type("Mine", (), {}), "Mine"),
    ],
)
def test_a_class_has_the_name_by_which_it_is_imported(kind, name):
    with pytest.raises(TypeError, match=f"^value must be a {re.escape(name)}, found 3"):
        checks.check_instance("value", 3, kind)


@pytest.mark.parametrize("value", [3, -1.5, "text", None, [1, "a"], {"a": 1}, (), b"x"])
def test_short_values_are_shown_as_they_are(value):
    assert checks.shown(value) == repr(value)


def test_long_values_are_cut():
    assert len(checks.shown("x" * 10**6)) < 250
    assert "\n" not in checks.shown(np.zeros([9, 9]))
    assert len(checks.shown(ClientDatasets)) < 250


def test_an_archive_of_stored_members_is_read(tmp_path):
    run(tmp_path)
    with zipfile.ZipFile(tmp_path / "checkpoint.npz") as archive:
        kinds = {member.compress_type for member in archive.infolist()}
    assert kinds == {zipfile.ZIP_STORED}
    assert load_checkpoint(tmp_path / "checkpoint.npz").rounds_completed == 2


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((np.array(["a", None], object), np.ones(2)), r"such as \[None\], .* no type"),
        (({1: np.ones(2)}, np.ones(2)), "1 names an array, .* Name it '1'"),
        ({"x": {"a": ({2: np.ones(2)},)}, "y": np.ones(2)}, "2 names an array"),
        (
            (tf.data.Dataset.from_tensor_slices(np.ones(2)), np.ones(2)),
            r"is a tf\.data\.Dataset\. .*\.from_client_data",
        ),
    ],
)
def test_examples_that_are_no_arrays_are_named(examples, message):
    with pytest.raises(ValueError, match=message):
        ClientDatasets.from_arrays({"ann": examples}, batch_size=2)
