import os
import sqlite3
import stat

import pytest
import tensorflow as tf

from tasks.sources import row_index, sqlite_files

_SPEC = {"label": tf.TensorSpec((), tf.int64)}
_CLIENTS = [f"client_{k:03}" for k in range(40)]


@pytest.fixture
def path(tmp_path, write_sqlite):
    """A file whose clients' rows come in several runs."""
    rows = [
        (split, client, {"label": 100 * index + example})
        for split in ("train", "test")
        for part in range(2)
        for index, client in enumerate(_CLIENTS)
        for example in range(3 * part, 3 * part + 1 + index % 3)
    ]
    return write_sqlite(tmp_path / "data.sqlite", rows)


@pytest.fixture
def _keep_all(monkeypatch):
    monkeypatch.setattr(row_index, "_KEPT_FROM_BYTES", 0)


def _labels(path):
    """Every training client's labels, by SQL alone."""
    spec = {"label": tf.io.FixedLenFeature((), tf.int64)}
    with sqlite3.connect(path) as connection:
        return {
            client: tf.io.parse_example(
                [
                    row[0]
                    for row in connection.execute(
                        "SELECT serialized_example_proto FROM examples WHERE "
                        "client_id = ? AND split_name = 'train'",
                        (client,),
                    )
                ],
                spec,
            )["label"]
            .numpy()
            .tolist()
            for client in _CLIENTS
        }


def _read(path):
    reader = sqlite_files.SqliteExamples(path, ("train", "test"), _SPEC)
    assert reader.client_ids("train") == _CLIENTS
    return {
        client: reader.read("train", client)["label"].tolist() for client in _CLIENTS
    }


def _passes(monkeypatch):
    """Counts passes over files from now on."""
    passes = []
    build = row_index._build

    def counting(path, index):
        passes.append(path)
        build(path, index)

    monkeypatch.setattr(row_index, "_build", counting)
    return passes


def test_small_files_get_no_second_file(path):
    assert _read(path) == _labels(path)
    assert [each.name for each in path.parent.iterdir()] == ["data.sqlite"]


@pytest.mark.usefixtures("_keep_all")
def test_later_openings_read_what_the_first_one_read_without_a_pass(path, monkeypatch):
    passes = _passes(monkeypatch)

    assert _read(path) == _labels(path)
    assert _read(path) == _labels(path)
    assert len(passes) == 1
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["data.sqlite", "data.sqlite.rows"]
    # Whoever may read the data may read its index.
    modes = [stat.S_IMODE((path.parent / name).stat().st_mode) for name in names]
    assert modes[0] == modes[1]


@pytest.mark.usefixtures("_keep_all")
def test_an_index_of_another_version_of_the_file_is_made_anew(path, monkeypatch):
    _read(path)
    passes = _passes(monkeypatch)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM examples WHERE rowid % 7 = 2")
    os.utime(path, ns=(0, 12345))

    assert _read(path) == _labels(path)
    assert len(passes) == 1


@pytest.mark.usefixtures("_keep_all")
@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000])
def test_a_damaged_index_is_made_anew(path, content):
    kept = path.with_name("data.sqlite.rows")
    kept.write_bytes(content)

    assert _read(path) == _labels(path)
    assert kept.read_bytes()[:15] == b"SQLite format 3"


@pytest.mark.usefixtures("_keep_all")
def test_without_room_for_the_index_every_opening_passes_over_the_file(
    path, monkeypatch
):
    def no_room(**options):
        raise PermissionError("read-only")

    monkeypatch.setattr(row_index.tempfile, "mkstemp", no_room)
    passes = _passes(monkeypatch)

    assert _read(path) == _labels(path)
    assert _read(path) == _labels(path)
    assert len(passes) == 2


@pytest.mark.usefixtures("_keep_all")
def test_a_pass_that_fails_leaves_no_file(path, monkeypatch):
    def fail(rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(row_index, "_find_runs", fail)

    with pytest.raises(KeyboardInterrupt):
        _read(path)
    assert [each.name for each in path.parent.iterdir()] == ["data.sqlite"]


@pytest.mark.usefixtures("_keep_all")
def test_rows_of_clients_that_the_file_does_not_list_are_left_out(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM client_metadata WHERE client_id = 'client_003'")
    index = row_index.RowIndex(path)

    assert index.client_ids("train") == [c for c in _CLIENTS if c != "client_003"]
    assert index.runs("train", "client_003") == []
    assert len(index.runs("train", "client_004")) == 2
