"""What is predicted of a user's own data: a class, or a number."""

import decimal
import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.own import targets
from tests import tiers
from tff_drift import algorithms, execution, simulation

_PRICES = [1.5, -2.0, 3.25, 10.0, 0.125, 7.0]


def _frame(labels=_PRICES):
    return pd.DataFrame(
        {
            "owner": ["a", "a", "a", "b", "b", "b"],
            "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "price": labels,
        }
    )


def _load(frame, tmp_path, kind, **options):
    """A task of the same rows in each form that they come in, all for training."""
    options["label"] = "price"
    if kind == "frame":
        return tasks.from_frame(frame, client_id="owner", test=frame, **options)
    if kind == "sqlite":
        path = tmp_path / "all.sqlite"
        clients = [
            (owner, {name: rows[name].to_numpy() for name in ("size", "price")})
            for owner, rows in frame.groupby("owner")
        ]
        tasks.write_sqlite(path, {"train": clients, "test": clients})
        return tasks.from_sqlite(path, **options)
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        for owner, rows in frame.groupby("owner"):
            path = tmp_path / part / f"{owner}.{kind}"
            if kind == "csv":
                rows.drop(columns="owner").to_csv(path, index=False)
            else:
                price = rows["price"].to_numpy()
                np.savez(path, x=rows[["size"]].to_numpy(), price=price)
    return tasks.from_folder(tmp_path, **options)


@pytest.fixture(params=tiers.first(["frame", "csv"], ["frame", "csv", "npz", "sqlite"]))
def load(request, tmp_path):
    return lambda frame, **options: _load(frame, tmp_path, request.param, **options)


def test_a_fraction_is_a_number_to_predict(load):
    task = load(_frame())

    assert task.train.element_spec[1] == tf.TensorSpec((None,), tf.float32)
    labels = [task.train.examples(each)[1] for each in ("a", "b")]
    np.testing.assert_array_equal(np.concatenate(labels), np.float32(_PRICES))
    assert task.options["target"] == "number"
    assert task.options["classes"] == ()
    assert (task.accuracy_metric, task.higher_is_better) == ("mae", False)


def test_loss_and_metrics_of_a_number_are_the_squared_and_the_absolute_error(load):
    task = load(_frame())
    model = task.model_fn()
    kernel, bias = (variable.numpy() for variable in model.trainable_variables)
    assert (kernel.shape, bias.shape) == ((1, 1), (1,))
    x, y = task.train.examples("a")
    errors = (x.reshape(3, 1) @ kernel + bias)[:, 0].astype(np.float64) - np.float64(
        _PRICES[:3]
    )
    output = model.forward_pass((x, y), training=True)
    np.testing.assert_allclose(output.loss, (errors**2).mean(), rtol=1e-5)

    process = algorithms.build_fed_avg(task.model_fn, 0.01)
    weights = process.get_model_weights(process.initialize())
    table = simulation.evaluate_clients(task.model_fn, weights, task.test)
    kernel, bias = weights.trainable
    for client, prices in {"a": _PRICES[:3], "b": _PRICES[3:]}.items():
        x = task.test.examples(client)[0].reshape(3, 1)
        errors = (x @ kernel + bias)[:, 0].astype(np.float64) - np.float64(prices)
        expected = [np.abs(errors).mean(), np.sqrt((errors**2).mean())]
        found = table.loc[client, ["mae_before", "rmse_before"]].to_numpy(float)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_linear_regression_finds_the_line():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 200)
    frame = pd.DataFrame({"o": np.arange(200) % 4, "x": x, "y": 3 * x - 0.5})
    task = tasks.from_frame(frame, client_id="o", label="y")
    local = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(local):
        result = simulation.run_training(
            algorithms.build_fed_avg(task.model_fn, 0.2),
            task.train,
            rounds=30,
            cohort_size=4,
            callbacks=[task.evaluation(rounds_per_evaluation=30)],
        )
    kernel, bias = result.model_weights.trainable
    np.testing.assert_allclose([kernel.item(), bias.item()], [3, -0.5], atol=1e-2)
    assert result.rows[-1]["test_mae"] < 1e-2


@pytest.mark.parametrize("dtype", [int, "Int64", "int32[pyarrow]"])
def test_integers_are_numbers_where_the_user_says_so(dtype):
    frame = _frame(pd.Series([5, -3, 5, 2, 0, 7]).astype(dtype))
    task = _load(frame, None, "frame", target="number")
    assert task.train.examples("a")[1].tolist() == [5.0, -3.0, 5.0]
    message = r"found the label -3.*\(y \+ 1\) // 2 .* words, or .*target='number'"
    for labels in (frame["price"], [5.0, -3.0, 5.0, 2.0, 0.0, 7.0]):
        with pytest.raises(tasks.DataError, match=message):
            _load(_frame(labels), None, "frame")


def test_decimals_are_numbers():
    frame = _frame([decimal.Decimal(str(price)) for price in _PRICES])
    assert _load(frame, None, "frame").train.examples("a")[1].tolist() == _PRICES[:3]


@pytest.mark.parametrize("kind", [str, int, float])
def test_more_values_than_classes_have_are_refused_unless_the_user_says(kind):
    labels = [kind(k % 150) for k in range(300)]
    frame = pd.DataFrame({"owner": "a", "size": 1.0, "price": labels})
    with pytest.raises(
        tasks.DataError, match=r"'price'.*more than 100 .*'number'.*'class'"
    ):
        _load(frame, None, "frame")
    task = _load(frame, None, "frame", target="class")
    assert len(task.options["classes"]) == 150
    assert len(repr(task)) < 1200
    # Ten examples of each are enough for classes.
    assert _load(pd.concat([frame] * 5), None, "frame").options["target"] == "class"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["x", "y"] * 3, {"target": "number"}, "'a', field 'price', row 0: .*'x'"),
        ([True, False] * 3, {"target": "number"}, "label True, which is no number"),
        (_PRICES, {"target": "class"}, r"found the label .* a class is no such"),
        (_PRICES, {"num_classes": 3}, r"found the label .* a class is no such"),
        ([1.5, np.inf, 0, 0, 0, 0], {}, "'a', field 'price', example 1: found inf"),
        ([1.5, 1e39, 0, 0, 0, 0], {}, "example 1: found 1e.39. Scale"),
        ([1.5, np.nan, 0, 0, 0, 0], {}, "row 1: there is no label"),
        (pd.date_range("2020", periods=6), {}, "found datetime64.*neither a class nor"),
        ([0.5, "x"] * 3, {}, "labels are of different kinds"),
    ],
)
def test_labels_of_another_kind_are_refused(labels, options, message):
    with pytest.raises(tasks.DataError, match=message):
        _load(_frame(labels), None, "frame", **options)


_LARGE = 2**24 + 1


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, _LARGE, 0, 0, 0, 0], np.uint32),
        np.array([0, -_LARGE, 0, 0, 0, 0]),
        pd.array([0, _LARGE, 0, 0, 0, 0], "Int64"),
        pd.Series([0.5, _LARGE, 0, 0, 0, 0], dtype=object),
        pd.Series([0, 2**53 + 1, 0, 0, 0, 0], dtype=object),
    ],
)
def test_an_integer_to_predict_is_not_rounded(labels):
    with pytest.raises(
        tasks.DataError, match=r"'a', field 'price', example 1: found the label -?\d+,"
    ) as caught:
        _load(_frame(labels), None, "frame", target="number")
    assert "another integer in float32" in str(caught.value)


def test_integers_and_floats_that_float32_keeps_are_predicted():
    integers = [0, 2**24, 2**24 + 2, -(2**24), 2**53, 7]
    for labels in (integers, [float(each) for each in integers]):
        task = _load(_frame(labels), None, "frame", target="number")
        found = [task.train.examples(each)[1] for each in ("a", "b")]
        assert np.concatenate(found).tolist() == integers
    # Of a float digits are lost.
    labels = [float(_LARGE), 0.5, 0.0, 0.0, 0.0, 0.0]
    task = _load(_frame(labels), None, "frame")
    assert task.train.examples("a")[1].tolist() == [2**24, 0.5, 0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, object])
def test_floats_that_round_integers_are_no_classes(dtype):
    large = 2.0**24 if dtype is np.float32 else 2.0**53
    labels = pd.Series([0.0, large, large + 2, 1.0, 0.0, 1.0]).astype(dtype)
    with pytest.raises(tasks.DataError, match=r"label (9007|1677)\d+\.0, to which fl"):
        _load(_frame(labels), None, "frame")
    exact = labels.where(labels < large, large - 1)
    with pytest.raises(tasks.DataError, match=f"label {large - 1:.0f}, but integers"):
        _load(_frame(exact), None, "frame")


_DAYS = pd.date_range("2020", periods=6)
_TIMES = {
    "dates": (list(_DAYS.date), "dates into numbers"),
    "a date": ([*"xyxyx", _DAYS[0].date()], r"get_dummies|dates into numbers"),
    "times": (list(_DAYS.time), "dates into numbers"),
    "objects": (pd.Series(list(_DAYS), dtype=object), "dates into numbers"),
    "zone": (_DAYS.tz_localize("UTC"), "dates into numbers"),
    "periods": (_DAYS.to_period("D"), "dates into numbers"),
    "categories": (pd.Categorical(_DAYS.date), "dates into numbers"),
    "arrow": (pd.Series(_DAYS.date, dtype="date32[pyarrow]"), "dates into numbers"),
    "durations": (list((_DAYS - _DAYS[0]).to_pytimedelta()), "total_seconds"),
}


@pytest.mark.parametrize("name", list(_TIMES))
def test_dates_are_neither_labels_nor_features(name):
    values, remedy = _TIMES[name]
    with pytest.raises(
        tasks.DataError, match=r"'price': found .*neither a class nor.* or into text"
    ):
        _load(_frame(pd.Series(values)), None, "frame")
    with pytest.raises(tasks.DataError, match=f"'size'.* expected numbers.*{remedy}"):
        _load(_frame().assign(size=pd.Series(values)), None, "frame")


def test_dates_of_a_parquet_table_are_no_labels(tmp_path):
    _frame(list(_DAYS.date)).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(tasks.DataError, match=r"a\.parquet.*found .*datetime\.date"):
        tasks.from_folder(tmp_path, label="price", features=["size"])


def test_a_target_and_classes_have_to_agree():
    with pytest.raises(ValueError, match="num_classes is 3, but target='number' has"):
        _load(_frame(), None, "frame", target="number", num_classes=3)
    with pytest.raises(ValueError, match=r"target must be .*found 'price'.* by label"):
        _load(_frame(), None, "frame", target="price")


def test_classes_of_a_database_need_their_number(tmp_path):
    frame = _frame([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match=r"num_classes must be given for classes"):
        _load(frame, tmp_path, "sqlite")
    path = tmp_path / "all.sqlite"
    numbers = tasks.from_sqlite(path, label="price", target="number")
    assert numbers.train.examples("b")[1].tolist() == [0.0, 1.0, 2.0]


def test_a_net_for_a_number_has_one_output():
    def build(*arguments):
        dense = functools.partial(_LAYERS.Dense, *arguments, input_shape=[1])
        return lambda: tf.keras.Sequential([dense()])

    with pytest.raises(ValueError, match=r"have the shape \(None, 2\), but a n"):
        _load(_frame(), None, "frame", build_keras_model=build(2))
    with pytest.raises(ValueError, match="comes from softmax, and that is always 1"):
        _load(_frame(), None, "frame", build_keras_model=build(1, "softmax"))
    _load(_frame(), None, "frame", build_keras_model=build(1, "sigmoid"))
    task = _load(_frame(), None, "frame", build_keras_model=build(1))
    assert task.model_fn().trainable_variables[0].shape == (1, 1)
    one, other = tf.keras.Input([1]), tf.keras.Input([1])
    for several in (([one, other], one + other), (one, {"a": one, "b": -one})):
        build_several = functools.partial(tf.keras.Model, *several)
        with pytest.raises(ValueError, match=r"builds a net with 2 (in|out)puts, but"):
            _load(_frame(), None, "frame", build_keras_model=build_several)


_LAYERS = tf.keras.layers
# Its outputs are (x, 0).
_DENSE = functools.partial(
    _LAYERS.Dense, 2, kernel_initializer="identity", input_shape=[1]
)


class _Subclass(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = _DENSE(activation="softmax")
        self.build([None, 1])

    def call(self, inputs):
        return self.dense(inputs)


def _called():
    dense = _LAYERS.Dense(2, "softmax", kernel_initializer="identity")
    keras_model = tf.keras.Sequential([dense])
    keras_model(np.ones([1, 1], np.float32))
    return keras_model


def _complement(p):
    return tf.concat([1 - p[:, :1], p[:, :1]], 1)


def _clipped(p):
    return tf.clip_by_value(p, 1e-7, 1 - 1e-7)


def _functional():
    inputs = tf.keras.Input([1])
    return tf.keras.Model(inputs, tf.nn.softmax(_DENSE()(inputs)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: tf.keras.Sequential([_DENSE(activation="softmax")]),
        lambda: tf.keras.Sequential([_DENSE(activation=tf.nn.softmax)]),
        lambda: tf.keras.Sequential([_DENSE(), _LAYERS.Activation("softmax")]),
        lambda: tf.keras.Sequential([_DENSE(), _LAYERS.Softmax()]),
        lambda: tf.keras.Sequential([_DENSE(activation="sigmoid")]),
        _functional,
        _Subclass,
        _called,
    ],
)
def test_a_net_that_ends_in_an_activation_trains_on_what_comes_before(build):
    task = _load(_frame([0, 1] * 3), None, "frame", build_keras_model=build)
    batch = np.array([[1.0], [3.0]], np.float32), np.array([0, 1], np.int32)

    def forward():
        model = task.model_fn()
        return model, model.forward_pass(batch, training=True).loss

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with pytest.warns(UserWarning, match="from_logits=True"):
            model, loss = forward()
        variables = [*model.trainable_variables, *model.local_variables]
        session.run([each.initializer for each in variables])
        found = session.run(loss)
    expected = np.mean([np.log1p(np.exp(-1.0)), np.log1p(np.exp(3.0))])
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_net_of_keras_2_without_weights_is_refused():
    def build():
        return tf.keras.Sequential([_LAYERS.Dense(2)])

    with pytest.raises(ValueError, match=r"build_keras_model is .* tf\.keras\.Input"):
        _load(_frame([0, 1] * 3), None, "frame", build_keras_model=build)


@pytest.mark.parametrize(
    ("name", "activation", "last"),
    [
        ("softmax", "softmax", lambda: _LAYERS.Reshape([2])),
        ("softmax", "softmax", lambda: _LAYERS.Dropout(0.1)),
        ("softmax", tf.nn.softmax, lambda: _LAYERS.Lambda(tf.identity)),
        ("sigmoid", "sigmoid", lambda: _LAYERS.Reshape([2])),
        ("sigmoid", tf.nn.sigmoid, lambda: _LAYERS.Activation("linear")),
        ("softmax", "softmax", lambda: _LAYERS.Rescaling(1.0)),
        ("softmax", "softmax", lambda: _LAYERS.Lambda(lambda p: p[:, :2])),
        ("sigmoid", "sigmoid", lambda: _LAYERS.Lambda(lambda p: (p + p) / 2)),
        ("sigmoid", "sigmoid", lambda: _LAYERS.Lambda(_complement)),
        ("softmax", "softmax", lambda: _LAYERS.Lambda(_clipped)),
    ],
)
def test_an_activation_that_keras_does_not_see_is_refused(name, activation, last):
    def build():
        return tf.keras.Sequential([_DENSE(activation=activation), last()])

    with pytest.raises(ValueError, match=f"come from {name}.*Leave {name} out"):
        _load(_frame([0, 1] * 3), None, "frame", build_keras_model=build)


@pytest.mark.parametrize(
    "last",
    [
        tf.math.log,
        # A gate: what it multiplies is of any size.
        lambda p: p * tf.keras.layers.Dense(2)(p),
    ],
)
def test_what_may_be_a_logit_is_none_that_an_activation_made(last):
    def build():
        inputs = tf.keras.Input([1])
        return tf.keras.Model(inputs, last(_DENSE(activation="softmax")(inputs)))

    _load(_frame([0, 1] * 3), None, "frame", build_keras_model=build)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Categorical(list("xyzxyz")), r"category.*pandas\.get_dummies"),
        (list("xyzxyz"), r"found 'x'.*pandas\.get_dummies"),
        (pd.date_range("2020", periods=6), r"datetime64.*dates into numbers"),
        (pd.date_range("2020", periods=6, tz="UTC"), r"datetime64.*dates into numb"),
        (pd.to_timedelta(range(6), "s"), r"timedelta64.*total_seconds"),
        (pd.array([1, None] * 3, "Int64"), "row 1: found nan"),
        (pd.array([True, None] * 3, "boolean"), "row 1: found nan"),
    ],
)
def test_columns_that_are_no_numbers_are_refused_with_what_to_do(column, message):
    with pytest.raises(tasks.DataError, match=f"field 'size'.*{message}") as caught:
        _load(_frame().assign(size=column), None, "frame")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "dtype", ["Int64", "Float32", "int64[pyarrow]", "boolean", "Sparse[int64, 0]"]
)
def test_nullable_and_sparse_columns_are_numbers(dtype):
    frame = _frame().assign(size=pd.Series([0, 1, 0, 1, 1, 0]).astype(dtype))
    x, _ = _load(frame, None, "frame").train.examples("b")
    assert (x.dtype, x.tolist()) == (np.float32, [[1.0], [1.0], [0.0]])


class _Counted(tuple):
    """Classes that count how often they are gone through."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def test_classes_of_words_are_numbered_once_for_all_clients():
    words = _Counted(("ham", "jam", "spam"))
    classes = targets.Classes(words)
    for labels, numbers in ((["spam", "ham"], [2, 0]), (["jam"], [1])):
        encoded = classes.encode(np.array(labels), "c")
        assert (encoded.dtype, encoded.tolist()) == (np.int32, numbers)
    assert words.passes == 1
    message = r"c, example 1: .* 'egg', but the 3 classes are 'ham' to 'spam'\."
    with pytest.raises(tasks.DataError, match=message):
        classes.encode(np.array(["ham", "egg"]), "c")
