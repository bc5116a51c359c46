import inspect
import os
import pathlib
import sqlite3
import stat
import textwrap

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks


def _client(number, count):
    rng = np.random.default_rng(number)
    return {
        "label": rng.integers(0, 3, count),
        "pixels": rng.normal(size=(count, 2, 2)),
        "note": [f"é {number} {k}" for k in range(count)],
        "raw": np.array([b"x", b"yz"] * count, object)[:count],
        "flag": rng.random(count) < 0.5,
    }


_SPLITS = {
    "train": [("bob", _client(0, 3)), ("ann's", _client(1, 1))],
    "test": [("bob", _client(2, 2))],
}
_SPEC = {
    "flag": tf.TensorSpec((), tf.int64),
    "label": tf.TensorSpec((), tf.int64),
    "note": tf.TensorSpec((), tf.string),
    "pixels": tf.TensorSpec((2, 2), tf.float32),
    "raw": tf.TensorSpec((), tf.string),
}


def test_tff_reads_what_was_written(tmp_path):
    path = tmp_path / "data.sqlite"
    tasks.write_sqlite(path, _SPLITS)

    assert list(tmp_path.iterdir()) == [path]
    for split, clients in _SPLITS.items():
        data = tff.simulation.datasets.load_and_parse_sql_client_data(
            str(path), _SPEC, split
        )
        assert data.client_ids == sorted(client_id for client_id, _ in clients)
        # TFF puts ids into its queries as they are.
        for client_id, features in (each for each in clients if "'" not in each[0]):
            dataset = data.create_tf_dataset_for_client(client_id)
            elements = list(dataset.as_numpy_iterator())
            assert len(elements) == len(features["label"])
            for k, element in enumerate(elements):
                assert element["label"] == features["label"][k]
                assert element["flag"] == features["flag"][k]
                assert element["note"].decode() == features["note"][k]
                assert element["raw"] == features["raw"][k]
                np.testing.assert_array_equal(
                    element["pixels"], features["pixels"][k].astype(np.float32)
                )
    with sqlite3.connect(path) as connection:
        counts = connection.execute("SELECT * FROM client_metadata").fetchall()
        objects = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert sorted(counts) == [
        ("ann's", "train", 1),
        ("bob", "test", 2),
        ("bob", "train", 3),
    ]
    # The official files have the last two and no index.
    assert sorted(objects) == [
        ("client_checksums",),
        ("client_metadata",),
        ("examples",),
    ]


def test_clients_are_taken_one_by_one(tmp_path):
    alive = []

    class Features(dict):
        def __init__(self):
            super().__init__(x=np.zeros((1, 1)))
            alive.append(self)

        def __del__(self):
            counts.append(sum(each() is not None for each in references))

    import weakref

    references, counts = [], []

    def clients():
        for k in range(50):
            features = Features()
            references.append(weakref.ref(alive.pop()))
            yield f"client_{k}", features

    tasks.write_sqlite(tmp_path / "data.sqlite", {"train": clients()})

    assert len(counts) == 50
    assert max(counts) <= 2


def _with(**changes):
    features = {"x": np.zeros((2, 3)), "label": np.array([0, 1]), **changes}
    return {name: value for name, value in features.items() if value is not None}


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (_with(x=[[0, 1, np.nan]] * 2), ValueError, "field 'x', example 0: found nan"),
        (
            _with(x=np.zeros((0, 3)), label=[]),
            ValueError,
            "has no examples. Leave the client out",
        ),
        (_with(x=np.zeros((1, 3))), ValueError, "fields of different lengths: {'x': 1"),
        (_with(x=np.zeros((2, 4))), ValueError, r"field 'x': .*\('f', \(3,\)\), found"),
        (_with(label=[0.5, 1]), ValueError, "field 'label': the first client has type"),
        (
            _with(label=None),
            ValueError,
            r"has the fields \['x'\], but the first client",
        ),
        (_with(label=[None, 1]), TypeError, "field 'label' is an array of object"),
        (
            _with(x=[[0.5, 1, 2], [2**53 + 1, 1, 2]]),
            ValueError,
            "field 'x': row 1 has the integer 9007199254740993, too large",
        ),
        (_with(label=3), ValueError, "field 'label' is not an array"),
        (_with(label=[b"\xe9", b""]), ValueError, "field 'label', example 0: the text"),
    ],
)
def test_a_bad_client_is_named_with_file_and_field(tmp_path, features, error, message):
    path = tmp_path / "data.sqlite"

    with pytest.raises(error, match=message) as caught:
        tasks.write_sqlite(path, {"train": [("ann", _with()), ("bob", features)]})

    assert f"{path}: client 'bob' of split 'train'" in str(caught.value)
    # Nothing is left that could be taken for the file.
    assert not list(tmp_path.iterdir())


def test_raises_on_a_client_that_comes_twice_and_on_no_client(tmp_path):
    clients = [("ann", _with()), ("bob", _with()), ("ann", _with())]

    with pytest.raises(ValueError, match="client 'ann' of split 'train' appears twice"):
        tasks.write_sqlite(tmp_path / "data.sqlite", {"train": clients})
    with pytest.raises(ValueError, match="there is no client to write"):
        tasks.write_sqlite(tmp_path / "data.sqlite", {"train": []})


def test_a_file_is_replaced_only_on_demand(tmp_path):
    path = tmp_path / "data.sqlite"
    path.write_text("precious")

    with pytest.raises(FileExistsError, match=r"data\.sqlite exists. Pass overwrite"):
        tasks.write_sqlite(path, _SPLITS)
    assert path.read_text() == "precious"
    tasks.write_sqlite(path, _SPLITS, overwrite=True)
    assert path.read_bytes()[:15] == b"SQLite format 3"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_the_example_of_the_documentation_makes_a_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part, size in (("train", 3), ("test", 2)):
        for client in ("ann", "bob"):
            folder = tmp_path / "records" / part / client
            folder.mkdir(parents=True)
            np.save(folder / "x.npy", np.ones([size, 2], np.float32))
            np.save(folder / "y.npy", np.arange(size))
    text = inspect.getdoc(tasks.write_sqlite)
    start = text.rindex("\n", 0, text.index("def read_clients"))
    names = {"np": np, "pathlib": pathlib, "tasks": tasks}
    exec(textwrap.dedent(text[start : text.index("Args:")]), names)
    task = names["task"]
    for data, size in ((task.train, 3), (task.test, 2)):
        assert data.client_ids == ("ann", "bob")
        assert data.num_examples("ann") == size


def test_a_file_without_test_clients_says_what_to_write(tmp_path):
    path = tmp_path / "data.sqlite"
    clients = [("ann", {"x": [[1.0]], "label": [0]})]
    tasks.write_sqlite(path, {"train": clients})
    for spec in (None, {"x": tf.TensorSpec([1]), "label": tf.TensorSpec([], tf.int64)}):
        with pytest.raises(
            tasks.DataError,
            match=r"no clients of the splits \['test'\]; its splits are \['train'\]\. "
            r"Write .* 'test' by tasks\.write_sqlite, or, in .* test_split\.$",
        ):
            tasks.from_sqlite(path, num_classes=2, element_spec=spec)
    assert tasks.from_sqlite(path, num_classes=2, test_split="train").test is not None
