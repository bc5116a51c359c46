"""The files of a run, cut, flipped, foreign or crafted: refused, or read as written.

What a program makes of them is tried in `faults.py`; here every reader by itself.
`TFF_DRIFT_SOAK=1` tries two hundred times as many files.
"""

import collections
import io
import json
import pathlib
import shutil
import tempfile
import zipfile

import hypothesis
import numpy as np
import pytest

from experiments.analysis import finished
from experiments.flags import tuned_settings
from experiments.flags.errors import UserError
from tests.reliability.damage import damages, fuzz
from tff_drift import client_states
from tff_drift.simulation import CheckpointError, MetricsFileError, read_rows
from tff_drift.simulation.records.checkpoint import load_checkpoint, save_checkpoint

_STATE = collections.OrderedDict(
    weights=np.arange(5, dtype=np.float32), round_number=np.int32(7)
)
_ROWS = b"round,train_loss,seconds\n1,0.5,0.1\n2,0.25,0.125\n3,,0.1\n"
_CLIENT = {"variate": np.zeros(4, np.float32)}


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def checkpoint(place):
    path = place / "good.npz"
    save_checkpoint(path, 7, {"seed": 1}, {"server_state": _STATE})
    return path.read_bytes()


@pytest.fixture(scope="module")
def store(place):
    """A store of two clients, with a version."""
    folder = place / "good"
    with client_states.DiskClientStates(folder, _CLIENT) as states:
        states.scatter(["ann", "bob"], [_client(1), _client(2)])
        states.commit(3)
    return folder


def _client(value):
    return {"variate": np.full(4, value, np.float32)}


def _read_or_refuse(read, refusal, named):
    """What `read` returns; `None` for a right refusal."""
    try:
        return read()
    except refusal as error:
        message = str(error).strip()
    assert str(named) in message
    assert "\n" not in message
    return None


@fuzz
@hypothesis.given(damage=damages())
def test_a_checkpoint_is_refused_or_as_it_was_written(place, checkpoint, damage):
    path = place / "checkpoint.npz"
    path.write_bytes(damage(checkpoint))
    found = _read_or_refuse(lambda: load_checkpoint(path), CheckpointError, path)
    if found is not None:
        leaves = found.leaves["server_state"]
        assert found.rounds_completed == 7
        assert leaves["weights"].tobytes() == _STATE["weights"].tobytes()
        assert leaves["round_number"] == 7


def _with_member(content, name, data):
    """A checkpoint with other bytes in the place of one of its members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    assert name in members
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for each, old in members.items():
            archive.writestr(each, data if each == name else old)
    return written.getvalue()


def _refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["format", "format_version", "rounds_completed"])
@pytest.mark.parametrize(
    "value", [None, -1, 1.5, "x", [], {}, float("nan"), [[]]], ids=repr
)
def test_a_header_with_other_values_is_refused(place, checkpoint, key, value):
    with np.load(io.BytesIO(checkpoint)) as archive:
        header = json.loads(archive["header"].tobytes())
    text = json.dumps({**header, key: value}).encode()
    written = io.BytesIO()
    np.save(written, np.frombuffer(text, np.uint8))
    content = _with_member(checkpoint, "header.npy", written.getvalue())
    _refused(place / "crafted.npz", content)


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", "[" * 100_000, "", '{"format": 1', "{}"], ids=len
)
def test_a_header_that_is_none_is_refused(place, checkpoint, text):
    written = io.BytesIO()
    np.save(written, np.frombuffer(text.encode(), np.uint8))
    content = _with_member(checkpoint, "header.npy", written.getvalue())
    _refused(place / "crafted.npz", content)


@pytest.mark.parametrize("member", ["header.npy", "server_state/0.npy"])
@pytest.mark.parametrize(
    "declared",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10**15,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (40000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{}",
        "__import__('os').abort()",
        "(" * 5000,
    ],
    ids=lambda text: text[-22:],
)
def test_arrays_that_declare_what_they_have_not_are_refused(
    place, checkpoint, member, declared
):
    text = declared.encode() + b"\n"
    data = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + bytes(20)
    _refused(place / "crafted.npz", _with_member(checkpoint, member, data))


@fuzz
@hypothesis.given(damage=damages())
def test_rows_are_refused_or_numbers_of_whole_lines(place, damage):
    path = place / "metrics.csv"
    data = damage(_ROWS)
    path.write_bytes(data)
    found = _read_or_refuse(lambda: read_rows(path), MetricsFileError, path)
    columns, rows = found or ([], [])
    assert len(rows) <= data.count(b"\n")
    for row in rows:
        assert set(row) <= set(columns)
        assert all(isinstance(value, (int, float)) for value in row.values())


@pytest.mark.parametrize("victim", ["index.sqlite", "states.bin"])
@fuzz
@hypothesis.given(damage=damages())
def test_a_store_is_refused_or_has_the_states_it_was_given(
    place, store, victim, damage
):
    folder = place / "states"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store, folder)
    path = folder / victim
    path.write_bytes(damage(path.read_bytes()))

    def read():
        with client_states.DiskClientStates(folder, _CLIENT) as states:
            states.restore(3)
            return states.gather(["ann", "bob", "eve"])

    found = _read_or_refuse(read, client_states.ClientStatesError, folder)
    for state, value in zip(found or (), (1, 2, 0), strict=found is not None):
        np.testing.assert_array_equal(state["variate"], _client(value)["variate"])


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [(b"CREATE TABLE", b"CREATE T\xccBLE"), (b"INTEGER NOT", b'INTEGER"NOT')],
)
def test_a_store_with_a_damaged_statement_is_refused(tmp_path, store, whole, damaged):
    folder = tmp_path / "states"
    shutil.copytree(store, folder)
    path = folder / "index.sqlite"
    path.write_bytes(path.read_bytes().replace(whole, damaged))
    with pytest.raises(client_states.ClientStatesError, match="is damaged") as caught:
        client_states.DiskClientStates(folder, _CLIENT)
    assert "\n" not in str(caught.value)


_SETTINGS = json.dumps(
    {
        "format": tuned_settings.FORMAT,
        "task": "digits",
        "algorithm": "fed_avg",
        "flags": {"client_learning_rate": 0.1},
    }
).encode()


@fuzz
@hypothesis.given(damage=damages())
def test_settings_are_refused_or_read(place, damage):
    path = place / "best.json"
    path.write_bytes(damage(_SETTINGS))
    found = _read_or_refuse(
        lambda: tuned_settings.of([str(path)], ["fed_avg"]), UserError, "--"
    )
    assert found is None or set(found) == {"fed_avg"}


_RUN = {
    "config.json": json.dumps(
        {
            "format": "tff_drift run",
            "configuration": {"rounds": 3, "seed": 0, "algorithm": "fed_avg"},
        }
    ).encode(),
    "metrics.csv": _ROWS,
    "summary.json": b'{"rounds": 3, "clients": 5}',
}


@pytest.mark.parametrize("victim", _RUN)
@fuzz
@hypothesis.given(damage=damages())
def test_a_finished_run_is_refused_or_read(place, victim, damage):
    folder = place / "run"
    folder.mkdir(exist_ok=True)
    for name, content in _RUN.items():
        (folder / name).write_bytes(damage(content) if name == victim else content)
    found = _read_or_refuse(lambda: finished.read(folder), ValueError, folder)
    assert found is None or set(found.rounds["run"]) <= set(found.settings.index)
