import io
import lzma
import pathlib
import shutil
import sqlite3
import urllib.error

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.sources import sqlite_files

_SPEC = {"snippets": tf.TensorSpec((), tf.string)}
_SPLITS = ("train", "test")
# Split, client and text of rows that are not in the clients' order.
_ROWS = [
    ("train", "ann", b"one"),
    ("train", "bob's", b"two"),
    ("train", "ann", b"three"),
    ("train", "ann", b"four"),
    ("test", "ann", b"five"),
    ("train", "ann", b"six"),
]


@pytest.fixture
def path(tmp_path, write_sqlite):
    rows = [(split, client, {"snippets": text}) for split, client, text in _ROWS]
    return write_sqlite(tmp_path / "shakespeare.sqlite", rows)


def _find(folder, **options):
    options = {
        "task_name": "shakespeare_character",
        "download": False,
        "load_data": tff.simulation.datasets.shakespeare.load_data,
        **options,
    }
    return sqlite_files.find_file(folder, "shakespeare.sqlite", **options)


@pytest.mark.parametrize("indexed", [False, True])
def test_reads_each_clients_rows_in_order(path, indexed):
    if indexed:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE INDEX i ON examples (client_id, split_name)")
    reader = sqlite_files.SqliteExamples(path, _SPLITS, _SPEC)

    assert reader.client_ids("train") == ["ann", "bob's"]
    assert reader.client_ids("test") == ["ann"]
    for split, client in (("train", "ann"), ("train", "bob's"), ("test", "ann")):
        expected = [text for *row, text in _ROWS if row == [split, client]]
        assert reader.read(split, client)["snippets"].tolist() == expected


def test_reads_clients_by_their_exact_ids(tmp_path, write_sqlite):
    ids = [
        "ann",
        "Ann",
        "O'Brien",
        "zz' OR 'a'='a",
        "' OR 1=1 --",
        "a\0b",
        "",
        "%",
        "?",
    ]
    rows = [("train", name, {"snippets": f"of {name}".encode()}) for name in ids]
    rows.append(("test", "bob", {"snippets": b"held out"}))
    path = write_sqlite(tmp_path / "shakespeare.sqlite", rows)
    reader = sqlite_files.SqliteExamples(path, _SPLITS, _SPEC)
    assert reader.client_ids("train") == sorted(ids)
    found = {name: reader.read("train", name)["snippets"].tolist() for name in ids}
    assert found == {name: [f"of {name}".encode()] for name in ids}


def test_reads_what_tffs_loader_reads(path):
    train, _ = tff.simulation.datasets.shakespeare.load_data(str(path.parent))
    reader = sqlite_files.SqliteExamples(path, _SPLITS, _SPEC)

    assert reader.client_ids("train") == train.client_ids
    dataset = train.create_tf_dataset_for_client("ann")
    expected = [element["snippets"] for element in dataset.as_numpy_iterator()]
    assert reader.read("train", "ann")["snippets"].tolist() == expected


def test_converts_features_to_their_types(tmp_path, write_sqlite):
    features = [{"label": k, "pixels": [k + 0.5, 0.0]} for k in range(3)]
    path = write_sqlite(tmp_path / "f", [("train", "ann", row) for row in features])
    spec = {
        "label": tf.TensorSpec((), tf.int32),
        "pixels": tf.TensorSpec((2, 1), tf.float32),
    }

    examples = sqlite_files.SqliteExamples(path, ("train",), spec).read("train", "ann")

    assert examples["label"].dtype == np.int32
    assert examples["label"].tolist() == [0, 1, 2]
    assert examples["pixels"].dtype == np.float32
    assert examples["pixels"].tolist() == [
        [[0.5], [0.0]],
        [[1.5], [0.0]],
        [[2.5], [0.0]],
    ]


def test_finds_the_file_in_the_folder_or_in_tffs_own(path, monkeypatch):
    assert _find(str(path.parent)) == path

    monkeypatch.setenv("HOME", str(path.parent))
    (path.parent / ".tff").mkdir()
    shutil.copy(path, path.parent / ".tff")
    assert _find(None) == path.parent / ".tff" / "shakespeare.sqlite"
    assert _find("~") == path


def test_a_missing_file_is_named_with_three_ways_to_go_on(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        _find(tmp_path)

    message = str(caught.value)
    assert "\n" not in message
    assert "Task 'shakespeare_character' needs the file" in message
    assert str(tmp_path / "shakespeare.sqlite") in message
    for way in ("download=True", "cache_dir=FOLDER", "synthetic=True"):
        assert way in message
    assert not list(tmp_path.iterdir())


class _Response(io.BytesIO):
    headers: dict = {}  # noqa: RUF012


def test_downloads_the_official_file_if_asked(path, tmp_path, monkeypatch):
    folder = tmp_path / "new" / "cache"
    urls = []

    def urlopen(url):
        urls.append(url)
        return _Response(lzma.compress(path.read_bytes()))

    monkeypatch.setattr("urllib.request.urlopen", urlopen)

    found = _find(folder, download=True)

    assert found == folder / "shakespeare.sqlite"
    assert found.read_bytes() == path.read_bytes()
    assert [pathlib.Path(url).name for url in urls] == ["shakespeare.sqlite.lzma"]
    assert list(folder.iterdir()) == [found]
    # The second time the file is there.
    assert _find(folder, download=True) == found
    assert len(urls) == 1


def test_a_failed_download_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    def urlopen(url):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)

    with pytest.raises(OSError, match=r"download failed: .*no network.*three ways"):
        _find(tmp_path, download=True)
    assert not list(tmp_path.iterdir())


def test_a_download_cut_short_leaves_no_file(path, tmp_path, monkeypatch):
    folder = tmp_path / "cache"

    class CutShort(_Response):
        def read(self, size):
            raise ConnectionResetError("gone")

    monkeypatch.setattr(
        "urllib.request.urlopen",
        lambda url: CutShort(lzma.compress(path.read_bytes())),
    )

    with pytest.raises(OSError, match="download failed: gone"):
        _find(folder, download=True)
    assert not list(folder.iterdir())


def _open(path):
    return sqlite_files.SqliteExamples(path, _SPLITS, _SPEC)


@pytest.mark.parametrize("content", [b"", b"hello", lzma.compress(b"x" * 1000)])
def test_raises_on_a_file_that_is_not_sqlite(tmp_path, content):
    path = tmp_path / "shakespeare.sqlite"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"shakespeare\.sqlite is not a SQLite file"):
        _open(path)


@pytest.mark.parametrize("kept", [0.95, 0.5])
def test_raises_on_a_truncated_file(path, kept):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])

    with pytest.raises(
        ValueError, match=f"is truncated: it has .* bytes of {len(whole)}. Delete it"
    ):
        _open(path)


def test_raises_on_a_file_with_damaged_pages(path):
    whole = bytearray(path.read_bytes())
    whole[100:4096] = b"\xff" * 3996
    path.write_bytes(whole)

    with pytest.raises(ValueError, match=r"cannot be read as a SQLite file .*damaged"):
        _open(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE examples", "with no table 'examples'"),
        ("DROP TABLE client_metadata", "with no table 'client_metadata'"),
        (
            "ALTER TABLE examples RENAME COLUMN client_id TO user",
            r"with no column \['client_id'\] in table 'examples'",
        ),
        (
            "DELETE FROM client_metadata WHERE split_name = 'test'",
            r"no clients of the splits \['test'\]; its splits are \['train'\]",
        ),
    ],
)
def test_raises_on_a_foreign_database(path, statement, message):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)

    with pytest.raises(ValueError, match=message):
        _open(path)


def test_raises_on_examples_of_another_data_set(path):
    spec = {"label": tf.TensorSpec((), tf.int32)}

    with pytest.raises(ValueError, match=r"another data set: .* features \['label'\]"):
        sqlite_files.SqliteExamples(path, _SPLITS, spec)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            {"label": 1, "pixels": [0.0, float("nan")]},
            r"field 'pixels', example 1: found nan\. Replace",
        ),
        (
            {"label": 1, "pixels": [float("-inf"), 0.0]},
            r"field 'pixels', example 1: found -inf\. Replace",
        ),
        (
            {"label": 3, "pixels": [0.0, 0.0]},
            r"field 'label', example 1: found the label 3, but there are 3 classes",
        ),
        (
            {"label": -1, "pixels": [0.0, 0.0]},
            r"field 'label', example 1: found the label -1, but there are 3 classes",
        ),
        (
            {"label": 2**40, "pixels": [0.0, 0.0]},
            rf"field 'label': found {2**40}, which is not of type int32",
        ),
        ({"pixels": [0.0, 0.0]}, r"but field 'label' does not fit"),
        ({"label": 1, "pixels": [0.0]}, r"but field 'pixels' does not fit"),
        ({"label": b"1", "pixels": [0.0, 0.0]}, r"but field 'label' does not fit"),
    ],
)
def test_a_bad_example_is_named_with_file_client_and_field(
    tmp_path, write_sqlite, features, message
):
    good = {"label": 0, "pixels": [0.5, 1.0]}
    rows = [("train", "ann", good), ("train", "bob", good), ("train", "bob", features)]
    path = write_sqlite(tmp_path / "data.sqlite", rows)
    reader = sqlite_files.SqliteExamples(
        path,
        ("train",),
        {
            "label": tf.TensorSpec((), tf.int32),
            "pixels": tf.TensorSpec((2,), tf.float32),
        },
        {"label": 3},
    )

    assert reader.read("train", "ann")["pixels"].tolist() == [[0.5, 1.0]]
    with pytest.raises(tasks.DataError, match=message) as caught:
        reader.read("train", "bob")
    assert f"{path}: client 'bob' of split 'train'" in str(caught.value)
    assert "{{" not in str(caught.value)


def test_text_that_is_not_utf8_is_named_with_file_client_and_field(
    tmp_path, write_sqlite
):
    path = write_sqlite(
        tmp_path / "data.sqlite",
        [
            ("train", "ann", {"snippets": "Où est Cæsar?".encode()}),
            ("train", "bob", {"snippets": "Où est Cæsar?".encode("latin-1")}),
        ],
    )
    reader = sqlite_files.SqliteExamples(path, ("train",), _SPEC)

    assert reader.read("train", "ann")["snippets"][0].decode() == "Où est Cæsar?"
    with pytest.raises(
        ValueError,
        match=r"data\.sqlite: client 'bob' of split 'train', field 'snippets', "
        r"example 0: the text is not UTF-8 .*position 1",
    ):
        reader.read("train", "bob")


def test_a_client_without_examples_is_named_with_its_file(path):
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO client_metadata VALUES ('eve', 'train', 0)")
    reader = _open(path)

    # TFF lists such a client too.
    assert reader.client_ids("train") == ["ann", "bob's", "eve"]
    with pytest.raises(
        ValueError,
        match=r"shakespeare\.sqlite: client 'eve' of split 'train' has no examples",
    ):
        reader.read("train", "eve")
