"""Readers of data on files that are cut, flipped, foreign or crafted.

Whatever a file holds, a reader gives one `DataError` that names it, or the values
that were written, and runs nothing of what it reads. `TFF_DRIFT_SOAK=1` tries a
hundred times as many files.
"""

import collections
import csv
import io
import json
import os
import pathlib
import pickle
import shutil
import sqlite3
import tempfile
import zipfile

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

import tasks
from tasks.own import user_files, user_json
from tasks.sources import central_data, row_index, sqlite_files, stackoverflow_data
from tests.reliability.damage import damages, fuzz


def read_or_refuse(read, path):
    """What `read` returns; `None` for a right refusal."""
    try:
        return read()
    except tasks.DataError as error:
        message = str(error).strip()
    assert str(path) in message
    assert "\n" not in message
    return None


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


# Tables.

_CSV = b"age,income,label\n30,1000.5,0\n-41,2e3,1\n52.25,.125,0\n"


def _independent_rows(data):
    """The rows of a CSV table as Python's own reader has them, without empty ones."""
    text = data.decode("utf-8-sig")
    header, *rows = (row for row in csv.reader(io.StringIO(text, newline="")) if row)
    rows = [row for row in rows if row != [""] and any(map(str.strip, row))]
    return [dict(zip(header, row, strict=False)) for row in rows]


def _number(text):
    return {"True": 1.0, "False": 0.0}.get(text.strip().title()) or float(
        {"true": "1", "false": "0"}.get(text.strip().lower(), text)
    )


@fuzz
@hypothesis.given(damage=damages())
def test_a_table_is_refused_or_read_as_it_is(place, damage):
    good, path = place / "good.csv", place / "bob.csv"
    good.write_bytes(_CSV)
    data = damage(_CSV)
    path.write_bytes(data)
    layout = user_files.find_layout(good, "label", None)

    found = read_or_refuse(lambda: user_files.read_file(path, "label", layout), path)

    if found is not None:
        x, labels = found
        rows = _independent_rows(data)
        expected = [[_number(row[name]) for name in ("age", "income")] for row in rows]
        np.testing.assert_array_equal(x, np.array(expected, np.float32))
        assert [str(each) for each in labels.tolist()] == [
            str(type(each)(row["label"])) if not isinstance(each, bool) else str(each)
            for each, row in zip(labels.tolist(), rows, strict=True)
        ]


# JSON.

_LEAF = json.dumps(
    {
        "users": ["ann", "bob"],
        "num_samples": [2, 1],
        "user_data": {
            "ann": {"x": [[0.5, 1], [-2, 3e2]], "y": [0, 1]},
            "bob": {"x": [[7, 8]], "y": [1]},
        },
    }
).encode()


@fuzz
@hypothesis.given(damage=damages())
def test_json_is_refused_or_read_as_it_is(place, damage):
    path = place / "leaf.json"
    path.write_bytes(damage(_LEAF))

    found = read_or_refuse(lambda: user_json.read_clients([path]), path)

    if found is not None:
        clients, _ = found
        users = json.loads(path.read_bytes())["user_data"]
        assert clients.keys() == users.keys()
        for name, user in users.items():
            x, labels = clients[name]
            expected = np.array(user["x"], np.float32).reshape(len(x), -1)
            np.testing.assert_array_equal(x.reshape(len(x), -1), expected)
            assert labels.tolist() == user["y"]


# Files of arrays.


def _arrays(path, **arrays):
    np.savez(path, **arrays)
    return path.read_bytes()


@fuzz
@hypothesis.given(damage=damages(), packed=st.booleans())
def test_arrays_are_refused_or_as_they_were_written(place, damage, packed):
    path = place / "bob.npz"
    x, label = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 1, 0])
    (np.savez_compressed if packed else np.savez)(path, x=x, label=label)
    layout = user_files.Layout(path, None, (3,), given=False)
    path.write_bytes(damage(path.read_bytes()))

    found = read_or_refuse(lambda: user_files.read_file(path, "label", layout), path)

    if found is not None:
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], label)


@pytest.mark.parametrize(
    "shape", [(2, 3), (1, 3), (4, 2), (40, 3), (2**60, 3), (-4, 3)]
)
def test_a_header_that_lies_about_the_shape_is_noticed(tmp_path, shape):
    path = tmp_path / "bob.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    data = header.getvalue() + np.arange(12, dtype=np.float32).tobytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
        labels = io.BytesIO()
        np.save(labels, np.zeros(4, int))
        archive.writestr("label.npy", labels.getvalue())

    with pytest.raises(tasks.DataError, match=r"bob\.npz"):
        tasks.from_folder(tmp_path)


class _Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (self.path,))


@pytest.mark.parametrize("field", ["x", "label"])
def test_a_pickle_among_arrays_is_never_run(tmp_path, field):
    sprung = tmp_path / "sprung"
    trap = np.empty(2, object)
    trap[:] = [_Trap(sprung)] * 2
    arrays = {"x": np.zeros((2, 3)), "label": np.zeros(2, int), field: trap}
    np.savez(tmp_path / "bob.npz", **arrays)

    with pytest.raises(tasks.DataError, match=r"bob\.npz.*allow_pickle"):
        tasks.from_folder(tmp_path)
    assert not sprung.exists()
    # The trap is one.
    with np.load(tmp_path / "bob.npz", allow_pickle=True) as file:
        file[field]
    assert sprung.exists()


@pytest.mark.parametrize("suffix", ["csv", "npz", "sqlite"])
def test_a_bare_pickle_is_never_run(tmp_path, suffix):
    sprung, path = tmp_path / "sprung", tmp_path / f"bob.{suffix}"
    path.write_bytes(pickle.dumps(_Trap(sprung)))

    def load():
        if suffix == "sqlite":
            return tasks.from_sqlite(path, num_classes=2)
        return tasks.from_folder(tmp_path)

    with pytest.raises(tasks.DataError, match=path.name):
        load()
    assert not sprung.exists()


# Data sets in one piece.

_CENTRAL = central_data.CentralData(("set.npz",), "none", (2, 2, 3), 4)


@fuzz
@hypothesis.given(damage=damages())
def test_a_data_set_in_one_piece_is_refused_or_as_it_was_written(place, damage):
    path = place / "set.npz"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 2, 2, 3), np.uint8)
    labels = np.array([3, 0, 1])
    data = _arrays(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    path.write_bytes(damage(data))

    found = read_or_refuse(lambda: central_data.read_file(path, _CENTRAL), path)

    for part in found or ():
        np.testing.assert_array_equal(part.images, images)
        np.testing.assert_array_equal(part.labels, labels)


@pytest.mark.parametrize("label", [2**32, -(2**32), 2**63 + 1, 4])
def test_a_label_is_not_wrapped_around(tmp_path, label):
    images = np.zeros((2, 2, 2, 3), np.uint8)
    labels = np.array([0, label], np.uint64 if label >= 2**63 else np.int64)
    _arrays(
        tmp_path / "set.npz",
        x_train=images,
        y_train=labels,
        x_test=images,
        y_test=np.zeros(2, int),
    )

    with pytest.raises(tasks.DataError, match="'y_train', example 1: found the label"):
        central_data.read_file(tmp_path / "set.npz", _CENTRAL)


# SQLite files.

_CLIENTS = {
    f"client_{k}": {
        "x": np.arange(3 * n, dtype=np.float32).reshape(n, 3) + 100 * k,
        "label": np.arange(n) % 2,
    }
    for k, n in enumerate((3, 1, 30))
}


@pytest.fixture(scope="module")
def sqlite_bytes(place):
    path = place / "whole.sqlite"
    clients = list(_CLIENTS.items())
    tasks.write_sqlite(path, {"train": clients, "test": clients[:1]})
    return path.read_bytes()


def _check_sqlite(path):
    def read():
        task = tasks.from_sqlite(path, num_classes=2)
        parts = (task.train, task.test)
        return [
            {client_id: part.examples(client_id) for client_id in part.client_ids}
            for part in parts
        ]

    found = read_or_refuse(read, path)
    if found is not None:
        assert [list(part) for part in found] == [list(_CLIENTS), ["client_0"]]
        for part in found:
            for client_id, (x, labels) in part.items():
                np.testing.assert_array_equal(x, _CLIENTS[client_id]["x"])
                np.testing.assert_array_equal(labels, _CLIENTS[client_id]["label"])
    return found is not None


@fuzz
@hypothesis.given(damage=damages())
def test_a_sqlite_file_is_refused_or_as_it_was_written(place, sqlite_bytes, damage):
    path = place / "data.sqlite"
    path.write_bytes(damage(sqlite_bytes))

    _check_sqlite(path)


def test_a_whole_sqlite_file_is_read(place, sqlite_bytes):
    path = place / "data.sqlite"
    path.write_bytes(sqlite_bytes)

    assert _check_sqlite(path)


_DAMAGED_STATEMENTS = [
    # SQLite quotes what it cannot read, and Python cannot decode that.
    (b"CREATE TABLE", b"CREATE T\xccBLE"),
    # What SQLite quotes has several lines.
    (b"TEXT NOT NULL", b'TEXT"NOT NULL'),
]


@pytest.mark.parametrize(("whole", "damaged"), _DAMAGED_STATEMENTS)
def test_a_damaged_statement_is_refused(place, sqlite_bytes, whole, damaged):
    path = place / "data.sqlite"
    path.write_bytes(sqlite_bytes.replace(whole, damaged))

    assert not _check_sqlite(path)


@pytest.mark.parametrize(("whole", "damaged"), _DAMAGED_STATEMENTS)
def test_an_index_with_a_damaged_statement_is_made_anew(
    tmp_path, sqlite_bytes, whole, damaged
):
    path = tmp_path / "indexed.sqlite"
    path.write_bytes(sqlite_bytes)
    index = path.with_name(path.name + row_index.SUFFIX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_index, "_KEPT_FROM_BYTES", 0)
        assert _check_sqlite(path)
        index.write_bytes(index.read_bytes().replace(whole, damaged))
        assert _check_sqlite(path)


@fuzz
@hypothesis.given(damage=damages())
def test_a_damaged_index_gives_no_other_clients_rows(place, sqlite_bytes, damage):
    folder = pathlib.Path(tempfile.mkdtemp(dir=place))
    path = folder / "indexed.sqlite"
    path.write_bytes(sqlite_bytes)
    index = path.with_name(path.name + row_index.SUFFIX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_index, "_KEPT_FROM_BYTES", 0)
        assert _check_sqlite(path)
        index.write_bytes(damage(index.read_bytes()))
        _check_sqlite(path)
    shutil.rmtree(folder)


# Counts of words and tags.


@fuzz
@hypothesis.given(damage=damages())
def test_counts_are_refused_or_read_as_they_are(place, damage):
    words, tags = place / "stackoverflow.word_count", place / "stackoverflow.tag_count"
    words.write_bytes(damage(b"the 300\nto 200\nof 20\n"))
    tags.write_bytes(damage(b'{"python": 30, "java": 20, "c": 10}'))

    count = read_or_refuse(lambda: stackoverflow_data.count_entries(words), words)
    if count is not None:
        assert count == len([each for each in words.read_bytes().split(b"\n") if each])
    count = read_or_refuse(lambda: stackoverflow_data.count_entries(tags), tags)
    if count is not None:
        assert count == len(json.loads(tags.read_bytes()))


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[1]", '"abc"', '{"a": Infinity}', '{"a": "b"}', '{"a": []}'],
)
def test_crafted_counts_are_refused(tmp_path, text):
    path = tmp_path / "stackoverflow.tag_count"
    path.write_text(text)

    with pytest.raises(tasks.DataError, match="expected a JSON object of tags"):
        stackoverflow_data.count_entries(path)


# Tables in RAM.

_VALUES = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.booleans(),
    st.none(),
    st.sampled_from(["a", "b", "1", "", "nan", 2**70, 1j, [1]]),
)
_COLUMNS = st.one_of(
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.lists(st.floats(-9, 9), min_size=6, max_size=6),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=6, max_size=6),
    st.lists(_VALUES, min_size=6, max_size=6),
)


def _dtype(values):
    """None, so that pandas finds it, unless values are mixed."""
    return None if len({type(value) for value in values}) == 1 else object


def _by_client(rows):
    """The values of each client, without the clients' names."""
    values = collections.defaultdict(list)
    for client_id, value in rows:
        values[client_id].append(float(np.float32(value)))
    return sorted(map(sorted, values.values()))


def _class(label):
    """A class's name: numbers of one value, booleans too, are one class."""
    return str(int(label) if isinstance(label, float | bool) else label)


@fuzz
@hypothesis.given(columns=st.tuples(_COLUMNS, _COLUMNS, _COLUMNS))
def test_a_frame_is_refused_or_every_row_is_there_once(columns):
    owners, values, labels = columns
    frame = pd.DataFrame(
        {
            "owner": pd.Series(owners, dtype=_dtype(owners)),
            "value": pd.Series(values, dtype=_dtype(values)),
            "label": pd.Series(labels, dtype=_dtype(labels)),
        }
    )

    task = read_or_refuse(
        lambda: tasks.from_frame(frame, client_id="owner", label="label", test=frame),
        "frame",
    )

    if task is not None:
        found = [
            (client_id, x[0])
            for client_id in task.train.client_ids
            for x in task.train.examples(client_id)[0]
        ]
        assert _by_client(found) == _by_client(zip(frame["owner"], values, strict=True))
        classes = task.options["classes"]
        found = [
            _class(classes[y]) if classes else float(y)
            for client_id in task.train.client_ids
            for y in task.train.examples(client_id)[1]
        ]
        as_found = _class if classes else lambda y: float(np.float32(y))
        assert sorted(found) == sorted(map(as_found, frame["label"]))


def test_a_locked_sqlite_file_is_not_called_damaged(place, sqlite_bytes):
    path = place / "locked.sqlite"
    path.write_bytes(sqlite_bytes)
    with pytest.MonkeyPatch.context() as patch:
        connect = sqlite3.connect
        patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, timeout=0, **k))
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(tasks.DataError, match=r"locked.*Another program") as caught:
            tasks.from_sqlite(path, num_classes=2)
        writer.close()
    assert "delete" not in str(caught.value)
    assert _check_sqlite(path)
    assert sqlite_files.count_clients(path, ["train"]) == {"train": (3, 34)}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["ann.csv", "ann.csv.gz", "ann.npz", "ann.parquet"])
def test_what_is_no_file_is_not_waited_for(tmp_path, name, kind):
    path = tmp_path / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(tasks.DataError, match="not a regular file"):
        user_files.find_layout(path, "label", None)


def test_sqlite_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "data.sqlite")
    with pytest.raises(tasks.DataError, match="not a regular file"):
        sqlite_files.check_file(tmp_path / "data.sqlite", ["train"])
    with pytest.raises(tasks.DataError, match="it is no file"):
        row_index.RowIndex(tmp_path / "data.sqlite")
