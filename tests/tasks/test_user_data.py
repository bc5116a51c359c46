import decimal

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tasks.own import class_numbers
from tff_drift import algorithms, simulation

_SIZES = {"ann": 12, "bob": 5, "eve": 1}


def _frame(seed=0):
    """Three clients whose two classes differ in the features."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(list(_SIZES), list(_SIZES.values()))
    label = rng.integers(0, 2, len(owner))
    return pd.DataFrame(
        {
            "owner": owner,
            "age": rng.normal(size=len(owner)) + 3 * label,
            "visits": rng.integers(0, 9, len(owner)),
            "ill": np.where(label, "yes", "no"),
        }
    )


def _from_frame(frame, **options):
    return tasks.from_frame(frame, client_id="owner", label="ill", **options)


def _write_csv(folder, frame):
    folder.mkdir(parents=True, exist_ok=True)
    for owner, rows in frame.groupby("owner"):
        rows.drop(columns="owner").to_csv(folder / f"{owner}.csv", index=False)
    return folder


def _rows(datasets):
    """All features and labels of clients, sorted."""
    return sorted(
        (client_id, *x.tolist(), int(y))
        for client_id in datasets.client_ids
        for x, y in zip(*datasets.examples(client_id), strict=True)
    )


def _expected(frame):
    return sorted(
        (
            row.owner,
            float(np.float32(row.age)),
            float(row.visits),
            int(row.ill == "yes"),
        )
        for row in frame.itertuples()
    )


@pytest.fixture(params=["frame", "folder"])
def load(request, tmp_path):
    """Loads a task of one table, from memory or from files."""
    if request.param == "frame":
        return _from_frame

    def from_folder(frame, **options):
        folder = _write_csv(tmp_path / "clinics", frame)
        return tasks.from_folder(folder, label="ill", **options)

    return from_folder


def test_a_task_holds_every_row_once(load):
    frame = _frame()
    task = load(frame)

    assert task.train.client_ids == ("ann", "bob", "eve")
    # A single example is for training.
    assert task.test.client_ids == ("ann", "bob")
    assert sorted(_rows(task.train) + _rows(task.test)) == _expected(frame)
    assert [task.test.num_examples(each) for each in ("ann", "bob")] == [2, 1]
    assert task.options["classes"] == ("no", "yes")
    assert (task.accuracy_metric, task.higher_is_better) == ("accuracy", True)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_of_files_are_taken_as_they_are(tmp_path, ending):
    frame = _frame()
    ids = ["O'Brien", "zz' OR 'a'='a", "[ab]*", "50 %41", "a b#c?d", "$HOME", "~", "é"]
    for number, name in enumerate(ids):
        own = frame[["age", "visits", "ill"]].assign(visits=float(number))
        write = {"csv": own.to_csv, "parquet": own.to_parquet}[ending]
        write(tmp_path / f"{name}.{ending}", index=False)
    task = tasks.from_folder(tmp_path, label="ill")
    assert task.train.client_ids == tuple(sorted(ids))
    for number, name in enumerate(ids):
        x, _ = task.train.examples(name)
        assert set(x[:, 1]) == {number}


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_numbers_that_count_nothing_are_no_classes(load, bad):
    frame = _frame()
    frame["ill"] = np.arange(len(frame)) % 2.0
    frame.loc[frame.index[frame["owner"] == "bob"][1], "ill"] = bad
    with pytest.raises(
        tasks.DataError,
        match=r"client 'bob', field 'ill': found the label (-inf|inf|0)",
    ) as caught:
        load(frame)
    assert "target='number'" in str(caught.value)


def test_whole_numbers_are_classes_as_floats_too(load):
    frame = _frame()
    frame["ill"] = 1 + np.arange(len(frame)) % 3.0
    task = load(frame)
    assert task.options["classes"] == (0, 1, 2, 3)
    assert set(task.train.examples("ann")[1]) == {1, 2, 3}


@pytest.mark.parametrize("last", [3.0, decimal.Decimal(3), np.float32(3)])
def test_one_clients_floats_do_not_number_the_classes_of_others_anew(last):
    labels = {"a": np.array([1, 3]), "b": np.array([1, last], object)}
    classes = class_numbers.find_classes(list(labels.items()), None)
    assert classes == range(4)
    for name, each in labels.items():
        found = class_numbers.number_labels(each, classes, name)
        assert found.tolist() == [1, 3]
    for unknown in (1.5, 4.0, -1.0, np.inf, "1"):
        label = np.array([unknown], object)
        with pytest.raises(tasks.DataError, match="the 4 classes are 0 to 3"):
            class_numbers.number_labels(label, classes, "c")


@pytest.mark.parametrize("dtype", [np.uint64, np.int64, "UInt64", "int64[pyarrow]"])
def test_integers_beyond_the_exact_ones_of_float64_are_refused(dtype):
    frame = _frame()
    frame["visits"] = pd.Series([2**53] * len(frame)).astype(dtype)
    x, _ = _from_frame(frame).train.examples("ann")
    assert set(x[:, 1]) == {2.0**53}
    frame.loc[14, "visits"] = 2**53 + 1
    with pytest.raises(
        tasks.DataError,
        match=f"client 'bob', field 'visits', row 14: found {2**53 + 1}. A model",
    ):
        _from_frame(frame)


def test_integers_beyond_the_exact_ones_are_refused_in_arrays_and_databases(tmp_path):
    x, y = np.array([[1], [2**53 + 1]], np.uint64), np.array([0, 1])
    np.savez(tmp_path / "ann.npz", x=x, label=y)
    with pytest.raises(tasks.DataError, match=f"example 1: found {2**53 + 1}"):
        tasks.from_folder(tmp_path)
    path = tmp_path / "data.sqlite"
    examples = {"x": x[:, 0].astype(np.int64), "label": y}
    splits = {"train": [("ann", examples)], "test": [("bob", examples)]}
    tasks.write_sqlite(path, splits)
    with pytest.raises(tasks.DataError, match=f"'ann' .*found {2**53 + 1}"):
        tasks.from_sqlite(path, num_classes=2)


def test_what_is_held_out_follows_the_seed(load):
    first, same, other = (_rows(load(_frame(), seed=seed).test) for seed in (1, 1, 2))

    assert first == same
    assert first != other


def test_options_reach_the_data(load):
    task = load(
        _frame(), test_fraction=0.5, batch_size=4, epochs=2, max_examples=5, seed=3
    )

    assert task.test.num_examples("ann") == 6
    batches = list(task.train.training_data("ann", 0).as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [4, 1] * 2
    only_age = load(_frame(), features=["age"])
    assert only_age.train.element_spec[0].shape == (None, 1)


def test_the_model_is_softmax_regression_unless_the_user_has_a_net():
    task = _from_frame(_frame())
    model = task.model_fn()
    assert [tuple(v.shape) for v in model.trainable_variables] == [(2, 2), (2,)]
    assert model.input_spec == task.train.element_spec
    x, y = task.train.examples("ann")
    kernel, bias = (variable.numpy() for variable in model.trainable_variables)
    logits = x.astype(np.float64) @ kernel + bias
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    output = model.forward_pass((x, y), training=True)
    np.testing.assert_allclose(
        output.loss, -log_probabilities[np.arange(len(y)), y].mean(), rtol=1e-5
    )

    def build_net():
        layers = tf.keras.layers
        return tf.keras.Sequential([layers.Dense(7, input_shape=(2,)), layers.Dense(2)])

    own = _from_frame(_frame(), build_keras_model=build_net).model_fn()
    shapes = [tuple(v.shape) for v in own.trainable_variables]
    assert shapes == [(2, 7), (7,), (7, 2), (2,)]


@pytest.mark.conformance
def test_a_task_evaluates_runs_on_its_test_clients():
    frame = pd.DataFrame({"o": list("aabb"), "x": [0.0, 1.0] * 2, "l": [0, 1] * 2})
    task = tasks.from_frame(frame, client_id="o", label="l", test=frame)
    result = simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, 0.1),
        task.train,
        rounds=5,
        cohort_size=1,
        callbacks=[task.evaluation(rounds_per_evaluation=2, max_clients=1)],
    )
    evaluated = [row for row in result.rows if "test_accuracy" in row]
    assert [row["round"] for row in evaluated] == [0, 2, 4, 5]
    # One client of two examples: each counts a half.
    assert {row["test_accuracy"] for row in evaluated} <= {0.0, 0.5, 1.0}
    settings = task.evaluation(max_clients=1).settings
    assert settings["rounds_per_evaluation"] == 10


def test_a_table_of_its_own_is_for_tests():
    task = _from_frame(_frame(), test=_frame(1))

    assert _rows(task.train) == _expected(_frame())
    assert _rows(task.test) == _expected(_frame(1))


def test_subfolders_are_for_training_and_tests(tmp_path):
    _write_csv(tmp_path / "train", _frame())
    _write_csv(tmp_path / "test", _frame(1))
    (tmp_path / "train" / "notes.txt").write_text("not a client")

    task = tasks.from_folder(tmp_path, label="ill")

    assert _rows(task.train) == _expected(_frame())
    assert _rows(task.test) == _expected(_frame(1))


def test_files_of_arrays_may_hold_images(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 6, 4, 4, 3), dtype=np.uint8)
    for k, client_id in enumerate(("ann", "bob")):
        np.savez(tmp_path / f"{client_id}.npz", x=images[k], label=np.arange(6) % 3)

    task = tasks.from_folder(tmp_path, num_classes=4)

    assert task.train.element_spec[0] == tf.TensorSpec((None, 4, 4, 3), tf.float32)
    assert task.options["classes"] == (0, 1, 2, 3)
    model = task.model_fn()
    assert [tuple(v.shape) for v in model.trainable_variables] == [(48, 4), (4,)]
    x, y = task.train.examples("bob")
    for image, label in zip(x, y, strict=True):
        (position,) = np.flatnonzero((images[1] == image).all(axis=(1, 2, 3)))
        assert label == position % 3


def test_a_written_file_makes_a_task(tmp_path):
    frame = _frame()
    path = tmp_path / "clinics.sqlite"
    clients = [
        (
            owner,
            {
                "age": rows["age"].to_numpy(),
                "visits": rows["visits"].to_numpy(),
                "label": (rows["ill"] == "yes").to_numpy(),
            },
        )
        for owner, rows in frame.groupby("owner")
    ]
    tasks.write_sqlite(path, {"train": clients, "test": clients[:2]})

    task = tasks.from_sqlite(path, num_classes=2, max_examples=3)

    whole = task.train.replace(max_examples=None)
    assert _rows(whole) == _expected(frame)
    assert task.test.client_ids == ("ann", "bob")
    assert task.train.num_examples("ann") == 3
    assert task.test.num_examples("ann") == 12
    assert task.model_fn().input_spec == task.train.element_spec


def test_a_written_file_of_images_keeps_its_shapes_on_demand(tmp_path):
    path = tmp_path / "images.sqlite"
    images = np.arange(2 * 12, dtype=np.float32).reshape(2, 2, 3, 2)
    clients = [("ann", {"image": images, "digit": [1, 0]})]
    tasks.write_sqlite(path, {"all": clients})
    spec = {
        "digit": tf.TensorSpec((), tf.int64),
        "image": tf.TensorSpec((2, 3, 2), tf.float32),
    }
    options = {"num_classes": 2, "label": "digit", "train_split": "all"}

    flat, shaped = (
        tasks.from_sqlite(path, test_split="all", element_spec=each, **options)
        for each in (None, spec)
    )

    x, y = shaped.train.examples("ann")
    np.testing.assert_array_equal(x, images)
    assert y.tolist() == [1, 0]
    np.testing.assert_array_equal(flat.train.examples("ann")[0], images.reshape(2, 12))


def _change(column, value, row=3):
    frame = _frame()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (_change("age", np.nan), {}, "client 'ann', field 'age', row 3: found nan"),
        (_change("age", np.inf), {}, "client 'ann', field 'age', row 3: found inf"),
        (
            _change("visits", "many"),
            {},
            "'ann', field 'visits', row 3: expected numbers, found 'many'",
        ),
        # The table's row, or that of bob's own file.
        (
            _change("ill", None, 14),
            {},
            "'bob', field 'ill', row (14|2): there is no la",
        ),
        (
            _frame().assign(ill=np.r_[np.zeros(13, int), [2], np.zeros(4, int)]),
            {"num_classes": 2},
            "client 'bob', field 'ill', example 1: found the label 2, but the 2 cl",
        ),
        (
            _frame().assign(ill=-1),
            {},
            "client 'ann', field 'ill', example 0: found the label -1",
        ),
        (_frame().drop(columns="ill"), {}, r"has no column \['ill'\]; its columns are"),
        (_frame(), {"features": ["agee"]}, r"has no column \['agee'\]"),
        (_frame().drop(columns=["age", "visits"]), {}, "has no column of features"),
        (_frame().tail(1), {}, "No client has more than one example"),
        (_frame(), {"test_fraction": 1.0}, "test_fraction must be between 0 and 1"),
    ],
)
def test_a_bad_value_is_named_with_its_client_and_field(load, frame, options, message):
    with pytest.raises(ValueError, match=message):
        load(frame, **options)


def test_messages_name_the_source(tmp_path):
    frame = _change("age", np.nan)
    folder = _write_csv(tmp_path / "clinics", frame)

    with pytest.raises(ValueError, match="frame: client 'ann', field 'age'"):
        _from_frame(frame)
    with pytest.raises(ValueError, match="test: client 'ann', field 'age'"):
        _from_frame(_frame(), test=frame)
    with pytest.raises(
        ValueError, match=rf"{folder}/ann\.csv: client 'ann', field 'ag"
    ):
        tasks.from_folder(folder, label="ill")


def test_raises_on_a_row_without_client():
    with pytest.raises(
        ValueError, match="frame has no client in column 'owner' of row 3"
    ):
        _from_frame(_change("owner", None))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"bob\.csv: client 'bob' cannot be read as a CSV table"),
        (b"age,ill\n", r"bob\.csv: client 'bob' has no examples"),
        (
            "age,town,ill\n1,Genève,0\n".encode("latin-1"),
            r"bob\.csv: client 'bob', field 'town', line 2: the text is not UTF-8",
        ),
        (b"age,ill\n1,0\n1,2,3,4\n", r"bob\.csv: client 'bob' cannot be read as a CSV"),
        (b"age,sick\n1,0\n", r"bob\.csv: client 'bob' has no column \['ill'\]"),
    ],
)
def test_a_bad_file_is_named_with_its_client(tmp_path, content, message):
    (tmp_path / "ann.csv").write_bytes(b"age,ill\n1,0\n2,1\n")
    (tmp_path / "bob.csv").write_bytes(content)

    with pytest.raises(ValueError, match=message) as error:
        tasks.from_folder(tmp_path, label="ill")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3))}, r"'bob' has no array \['label'\]; it has \['x'\]"),
        (
            {"x": np.zeros((2, 3)), "label": np.zeros(3, int)},
            r"'bob', field 'label': expected 2 labels, found the shape \(3,\)",
        ),
        (
            {"x": np.array([["a"]]), "label": np.zeros(1, int)},
            "'bob', field 'x': expected numbers with one row per example, found <U1",
        ),
        (
            {"x": np.full((2, 3), np.nan), "label": np.zeros(2, int)},
            "'bob', field 'x', example 0: found nan",
        ),
        (
            {"x": np.zeros((0, 3)), "label": np.zeros(0, int)},
            "'bob' has no examples",
        ),
    ],
)
def test_a_bad_file_of_arrays_is_named_with_its_client(tmp_path, arrays, message):
    np.savez(tmp_path / "bob.npz", **arrays)

    with pytest.raises(ValueError, match=message) as caught:
        tasks.from_folder(tmp_path)
    assert str(tmp_path / "bob.npz") in str(caught.value)


def test_raises_on_a_damaged_file_of_arrays_and_on_two_files(tmp_path):
    (tmp_path / "bob.npz").write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match=r"bob\.npz: client 'bob' cannot be read as a"):
        tasks.from_folder(tmp_path)
    (tmp_path / "bob.csv").write_bytes(b"age,label\n1,0\n")
    with pytest.raises(ValueError, match="Client 'bob' has two files"):
        tasks.from_folder(tmp_path)


def test_missing_data_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no .*'ann.csv' or 'ann.npz'\.$"):
        tasks.from_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        tasks.from_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no file .*x\.sqlite. tasks.write_sq"):
        tasks.from_sqlite(tmp_path / "x.sqlite", num_classes=2)


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (
            {"x": [[1.0]], "y": [0]},
            {},
            "Needed are the label 'label' and features of n",
        ),
        ({"text": ["a"], "label": [0]}, {}, "Needed are the label 'label' and featur"),
        ({"label": [0]}, {}, "Needed are the label 'label' and features of numbers"),
        (
            {"x": [[1.0]], "label": [0]},
            {"test_split": "t"},
            r"no clients of the splits",
        ),
    ],
)
def test_raises_on_a_written_file_that_makes_no_task(
    tmp_path, features, options, message
):
    path = tmp_path / "data.sqlite"
    tasks.write_sqlite(path, {"train": [("ann", features)]})

    with pytest.raises(ValueError, match=message):
        tasks.from_sqlite(path, num_classes=2, **{"test_split": "train", **options})


def test_a_label_out_of_range_in_a_written_file_is_named(tmp_path):
    path = tmp_path / "data.sqlite"
    clients = [(name, {"x": [[1.0]], "label": [k]}) for k, name in enumerate("ab")]
    tasks.write_sqlite(path, {"train": clients})
    task = tasks.from_sqlite(path, num_classes=1, test_split="train")

    with pytest.raises(
        ValueError,
        match=r"data\.sqlite: client 'b' of split 'train', field 'label', example 0: "
        "found the label 1, but there are 1 classes",
    ):
        task.train.examples("b")
