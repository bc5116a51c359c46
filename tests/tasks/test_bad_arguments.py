"""Every argument of the data's public functions with every kind of bad value.

A bad value gets one line, raised by this library, that names the argument or, for
names of columns and splits, the value.
"""

import dataclasses
import inspect
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tasks import partitioners
from tests.reliability import bad_values
from tff_drift import simulation
from tff_drift.simulation import ClientDatasets

_NAN = float("nan")
_ARRAYS = {
    "a": (np.zeros((4, 2), np.float32), np.zeros(4, np.int32)),
    "b": (np.zeros((2, 2), np.float32), np.zeros(2, np.int32)),
}
_FRAME = pd.DataFrame(
    {"o": ["a"] * 4 + ["b"] * 4, "f": range(8), "g": [1.5] * 8, "l": [0, 1] * 4}
)
_DATASETS = ClientDatasets.from_arrays(_ARRAYS, batch_size=2)
_DEALT = {
    "labels": np.zeros(9, int),
    "proportions": np.full((2, 2), 0.5),
    "sizes": np.array([3, 3]),
    "seed": 0,
}

_COLUMN = [None, [], {1: 2}, np.zeros(2)]
_COLUMNS = ["a", b"a", 0, [], {1: 2}, [None], [["f"]], ["f", "f"], ["l"], object()]
_MODEL = [*bad_values.FUNCTION, lambda: 1, tf.keras.Sequential()]
_CLASSES = [*bad_values.OPTIONAL, 10**30, 400_000_000]
_TARGET = ["a", "", 0, 1.5, [], {}, b"class", np.zeros(2), object()]
_CLIENTS = [*bad_values.ANY, None, "a", 0, [], [1], ["a", "a"]]
_TABLE = [*bad_values.ANY, None, "a", 0, [], _FRAME.iloc[:0], pd.DataFrame()]
_TRAINING = {
    "build_keras_model": _MODEL,
    "class_weight": [
        *(value for value in bad_values.SMALL if value is not bad_values.LONG),
        {},
        {0: -1.0},
        {0: _NAN},
        {0: None},
        {"other": 1.0},
    ],
    "batch_size": bad_values.COUNT,
    "epochs": bad_values.COUNT,
    "max_examples": bad_values.OPTIONAL,
    "seed": bad_values.INTEGER,
}
_SIZES = [None, "a", [[1]], [1.5, 2], [-1, 3], [], ["a"], [100, 1], object(), 3]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A folder of clients' files, and a SQLite file."""
    place = tmp_path_factory.mktemp("data")
    for owner, rows in _FRAME.groupby("o"):
        rows.drop(columns="o").to_csv(place / f"{owner}.csv", index=False)
    users = {"a": {"x": [[1.0], [2.0]], "y": [0, 1]}}
    (place / "data.json").write_text(json.dumps({"user_data": users}))
    image = tf.io.encode_png(np.zeros((2, 2, 1), np.uint8)).numpy()
    for name in ("a/cat/1.png", "a/dog/1.png"):
        (place / "images" / name).parent.mkdir(parents=True)
        (place / "images" / name).write_bytes(image)
    features = {"x": [[1.0, 2.0]], "label": [0]}
    tasks.write_sqlite(place / "data.sqlite", {"train": [("a", features)]})
    return place


_OF_A_TAKEN_NAME = dataclasses.replace(tasks.describe("digits"), description="Mine.")
# Function, good arguments, and bad values of each argument.
_CASES = [
    (
        tasks.from_frame,
        {"frame": _FRAME, "client_id": "o", "label": "l"},
        {
            "frame": _TABLE,
            "client_id": [*_COLUMN, "l"],
            "label": [*_COLUMN, "o"],
            "features": [*_COLUMNS, ["o"]],
            "target": _TARGET,
            "num_classes": [*_CLASSES, 1],
            "time": [value for value in _COLUMN if value is not None] + ["l"],
            "window": [*bad_values.OPTIONAL, 2],
            "test": [value for value in _TABLE if value is not None],
            "test_fraction": bad_values.FRACTION,
            **_TRAINING,
        },
    ),
    (
        tasks.from_folder,
        {"folder": None, "label": "l"},
        {
            "folder": bad_values.PATH,
            "label": bad_values.TEXT,
            "target": _TARGET,
            "features": _COLUMNS,
            "num_classes": [*_CLASSES, 1],
            "test_fraction": bad_values.FRACTION,
            **_TRAINING,
        },
    ),
    (
        tasks.from_sqlite,
        {"path": None, "num_classes": 1, "test_split": "train"},
        {
            "path": bad_values.PATH,
            "num_classes": [*_CLASSES, None],
            "label": bad_values.TEXT,
            "target": _TARGET,
            "element_spec": ["a", 0, {"x": 1}, [1], object()],
            "train_split": bad_values.TEXT,
            "test_split": bad_values.TEXT,
            **_TRAINING,
        },
    ),
    (
        tasks.from_json,
        {"path": None},
        {
            "path": bad_values.PATH,
            "target": _TARGET,
            "num_classes": [*_CLASSES, 1],
            "test_fraction": bad_values.FRACTION,
            **_TRAINING,
        },
    ),
    (
        tasks.from_image_folder,
        {"folder": None},
        {
            "folder": bad_values.PATH,
            "image_shape": ["a", 0, object(), (1, 2), (4, 4, 2), (4.5, 4, 3)],
            "test_fraction": bad_values.FRACTION,
            **_TRAINING,
        },
    ),
    (
        tasks.from_frame(_FRAME, client_id="o", label="l").evaluation,
        {},
        {
            "rounds_per_evaluation": bad_values.COUNT,
            "max_clients": bad_values.OPTIONAL,
        },
    ),
    (
        tasks.write_sqlite,
        {"path": None, "splits": {"t": [("a", {"x": [1.0]})]}},
        {
            "path": bad_values.PATH,
            "splits": [
                *bad_values.ANY,
                None,
                "a",
                [],
                {},
                {"t": None},
                {"t": "a"},
                {"t": {"a": 1}},
                {"t": [1]},
                {"t": [("a",)]},
                {"t": [(1, {"x": [1.0]})]},
                {"t": [("", {"x": [1.0]})]},
                {"t": [("a", None)]},
                {"t": [("a", {})]},
                {"t": [("a", {1: [1.0]})]},
                {"t": [("a", {"x": None})]},
                {"t": [("a", {"x": [[1.0], [1.0, 2.0]]})]},
                {"t": [("a", {"x": [1j]})]},
                {"t": [("a", {"x": [object()]})]},
                {"t": [("a", {"x": ["\ud800"]})]},
                {"t": [("a", {"x": np.zeros((2, 0))})]},
                {"": [("a", {"x": [1.0]})]},
            ],
            "overwrite": bad_values.FLAG,
        },
    ),
    (
        tasks.load,
        {"name": "quadratic"},
        {
            "name": [*bad_values.TEXT, "digit"],
            "cache_dir": [value for value in bad_values.PATH if value is not None],
            "seed": bad_values.INTEGER,
            "epochs": bad_values.COUNT,
            "dimension": [*bad_values.COUNT, 10**9, 10**30],
            "num_clients": [*bad_values.COUNT, 10**9, 10**30],
            "heterogeneity": bad_values.NUMBER,
            "unknown": [1],
        },
    ),
    (tasks.describe, {}, {"name": [*bad_values.TEXT, "digit"]}),
    (
        tasks.register,
        {},
        {"definition": [*bad_values.ANY, None, "a", _OF_A_TAKEN_NAME]},
    ),
    (
        ClientDatasets,
        {"client_ids": ["a", "b"], "load_client": _ARRAYS.get, "batch_size": 2},
        {
            "client_ids": _CLIENTS,
            "load_client": [*bad_values.FUNCTION, None],
            "batch_size": bad_values.COUNT,
            "epochs": bad_values.COUNT,
            "max_examples": bad_values.OPTIONAL,
            "shuffle": bad_values.FLAG,
            "seed": bad_values.INTEGER,
            "last_batch": [*bad_values.ANY, None, "", "long", 0, []],
            "cache_bytes": bad_values.INTEGER,
            "transform": bad_values.FUNCTION,
            "unknown": [1],
        },
    ),
    (
        ClientDatasets.from_arrays,
        {"clients": _ARRAYS, "batch_size": 2},
        {
            "clients": [
                object(),
                np.zeros(2),
                None,
                "a",
                [],
                {},
                {1: np.zeros(2)},
                {"a": None},
                {"a": 3.0},
                {"a": ()},
                {"a": np.zeros(0)},
                {"a": (np.zeros(2), np.zeros(3))},
                {"a": ([[1], [1, 2]],)},
                {"a": np.array([object()])},
                {"a": np.array(["2020-01-01"], "datetime64[D]")},
            ],
            "shuffle": bad_values.FLAG,
            "unknown": [1],
        },
    ),
    (
        ClientDatasets.from_client_data,
        {"client_data": None, "batch_size": 2},
        {"client_data": [*bad_values.ANY, None, "a", _ARRAYS]},
    ),
    (_DATASETS.subset, {}, {"client_ids": [*_CLIENTS, ["c"]]}),
    (
        _DATASETS.replace,
        {},
        {
            "batch_size": bad_values.COUNT,
            "shuffle": bad_values.FLAG,
            "transform": bad_values.FUNCTION,
            "unknown": [1],
        },
    ),
    (
        _DATASETS.with_client_weights,
        {},
        {"weights": [*bad_values.SMALL, {}, {"a": 1.0}, {"a": 1.0, "b": -1.0}]},
    ),
    (_DATASETS.examples, {}, {"client_id": [*bad_values.TEXT, "c"]}),
    (_DATASETS.num_examples, {}, {"client_id": [*bad_values.TEXT, "c"]}),
    (
        _DATASETS.training_data,
        {"client_id": "a", "round_number": 0},
        {"client_id": [*bad_values.TEXT, "c"], "round_number": bad_values.INTEGER},
    ),
    (
        _DATASETS.training_batches,
        {"client_id": "a", "round_number": 0},
        {"client_id": [*bad_values.TEXT, "c"], "round_number": bad_values.INTEGER},
    ),
    (
        _DATASETS.evaluation_batches,
        {"client_id": "a"},
        {"client_id": [*bad_values.TEXT, "c"], "batch_size": bad_values.COUNT},
    ),
    (
        simulation.sample_examples,
        {"datasets": _DATASETS, "fraction": 0.5, "seed": 0},
        {
            "datasets": [*bad_values.ANY, None, _ARRAYS],
            "fraction": [*bad_values.NUMBER, 1.5],
            "seed": bad_values.INTEGER,
        },
    ),
    (
        simulation.share,
        {"datasets": _DATASETS, "examples": _ARRAYS["a"]},
        {
            "datasets": [*bad_values.ANY, None, _ARRAYS],
            "examples": [*bad_values.ANY, None, "a", [], 0, ([[1], [1, 2]], [0])],
            "split": bad_values.FLAG,
        },
    ),
    (
        tasks.partition,
        {"labels": [0, 1, 2] * 3, "num_clients": 3},
        {
            "labels": [None, "a", [], [[0] * 9], 0, [None, "a", 1]],
            "num_clients": [*bad_values.COUNT, 10],
            "alpha": [
                *(value for value in bad_values.WIDE_NUMBER if value is not None),
                0.0,
            ],
            "similarity": [
                *(value for value in bad_values.NUMBER if value is not None),
                1.5,
            ],
            "classes_per_client": [*bad_values.OPTIONAL, 4],
            "size_sigma": bad_values.WIDE_NUMBER,
            "seed": bad_values.INTEGER,
        },
    ),
    (
        partitioners.client_ids,
        {"num_clients": 3},
        {"num_clients": [*bad_values.COUNT, 10**12]},
    ),
    (
        partitioners.balanced_sizes,
        {"num_examples": 9, "num_clients": 3},
        {"num_examples": bad_values.COUNT, "num_clients": [*bad_values.COUNT, 10]},
    ),
    (
        partitioners.log_normal_sizes,
        {"num_examples": 9, "num_clients": 3, "sigma": 0.3, "seed": 0},
        {
            "num_examples": bad_values.COUNT,
            "num_clients": [*bad_values.COUNT, 10],
            "sigma": bad_values.WIDE_NUMBER,
            "seed": bad_values.INTEGER,
        },
    ),
    (
        partitioners.partition_iid,
        {"num_examples": 9, "sizes": np.array([3, 3]), "seed": 0},
        {"num_examples": bad_values.COUNT, "sizes": _SIZES, "seed": bad_values.INTEGER},
    ),
    (
        partitioners.dirichlet_proportions,
        {"num_clients": 3, "num_classes": 2, "alpha": 0.3, "seed": 0},
        {
            "num_clients": bad_values.COUNT,
            "num_classes": bad_values.COUNT,
            "alpha": [*bad_values.WIDE_NUMBER, 0.0],
            "seed": bad_values.INTEGER,
        },
    ),
    (
        partitioners.partition_by_proportions,
        _DEALT,
        {
            "labels": [None, "a", [1.5] * 9, [[0] * 9], [-1] * 9, [2] * 9, object()],
            "proportions": [
                None,
                "a",
                [0.5, 0.5],
                [[_NAN, 1.0]] * 2,
                [[-1.0, 2.0]] * 2,
            ],
            "sizes": [*_SIZES, [1]],
            "seed": bad_values.INTEGER,
        },
    ),
    (
        partitioners.partition_by_similarity,
        {"labels": np.zeros(9, int), "similarity": 0.5, "sizes": [3, 3], "seed": 0},
        {
            "labels": [None, "a", [1.5] * 9, [[0] * 9], [-1] * 9, object()],
            "similarity": [*bad_values.NUMBER, 1.5],
            "sizes": _SIZES,
            "seed": bad_values.INTEGER,
        },
    ),
    (
        partitioners.hold_out_clients,
        {"client_ids": ["a", "b"], "num_held_out": 1, "seed": 0},
        {
            "client_ids": [None, "a", 0, object()],
            "num_held_out": [*bad_values.INTEGER, 2],
            "seed": bad_values.INTEGER,
        },
    ),
]
_WALK = [
    pytest.param(
        function, good, argument, bad, id=f"{function.__qualname__}-{argument}"
    )
    for function, good, arguments in _CASES
    for argument, bad in arguments.items()
]

# Files and tables are named by themselves.
_OTHER_NAMES = {
    "definition": "definition|'digits'",
    "splits": r"splits|no client|client '|the name of a split|id of a client",
    "clients": "clients|client_ids|Client 'a'",
    "labels": "labels",
}


@pytest.mark.parametrize(("function", "good", "argument", "bad"), _WALK)
def test_a_bad_value_is_named(paths, tmp_path, function, good, argument, bad):
    places = {"folder": paths, "path": paths / "data.sqlite"}
    if function is tasks.from_json:
        places["path"] = paths / "data.json"
    if function is tasks.from_image_folder:
        places["folder"] = paths / "images"
    if function is tasks.write_sqlite:
        places["path"] = tmp_path / "new.sqlite"
    good = {**good, **{name: places[name] for name in places if name in good}}
    complaints = bad_values.complaints(
        function, good, argument, bad, _OTHER_NAMES.get(argument, argument)
    )
    assert not complaints, "\n".join(complaints)


def test_the_walk_covers_every_public_function():
    walked = {function.__qualname__ for function, *_ in _CASES}
    public = {name for name in tasks.__all__ if name.islower()} - {"names"}
    public |= {
        name
        for name, value in vars(partitioners).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert public <= walked
    bad_values.tell("data and tasks", _CASES)
