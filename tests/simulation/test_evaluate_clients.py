"""A linear model on each client before and after local training, against NumPy."""

import collections
import pathlib
import re

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

import tff_drift
from tff_drift import simulation

pytestmark = pytest.mark.no_smoke

RATE, EPOCHS, BATCH = 0.05, 3, 4
INITIAL = np.array([[0.5], [-0.25]], np.float32)


def linear_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((2,)),
            tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
        ]
    )
    return tff.learning.models.from_keras_model(
        model,
        loss=tf.keras.losses.MeanSquaredError(),
        metrics=[tf.keras.metrics.MeanAbsoluteError(name="error")],
        input_spec=(
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([None, 1], tf.float32),
        ),
    )


def clients(sizes, seed):
    random = np.random.default_rng(seed)
    found = {}
    for k, size in enumerate(sizes):
        x = random.normal(size=(size, 2)).astype(np.float32)
        slope = np.array([[1.0 + k], [-1.0]], np.float32)
        found[f"c{k}"] = (x, (x @ slope).astype(np.float32))
    return found


TRAIN, TEST = clients([8, 5, 12], 1), clients([6, 3, 7], 2)


def datasets(arrays, **options):
    return simulation.ClientDatasets.from_arrays(
        arrays, **{"batch_size": BATCH, "shuffle": False, **options}
    )


def weights():
    return tff.learning.models.ModelWeights([INITIAL], [])


def metrics(w, x, y):
    residual = x @ w - y
    return np.mean(residual**2), np.mean(np.abs(residual))


def trained(x, y):
    """Minibatch SGD on the mean squared error, by hand."""
    w = INITIAL.astype(np.float64)
    for _ in range(EPOCHS):
        for first in range(0, len(x), BATCH):
            part, label = x[first : first + BATCH], y[first : first + BATCH]
            w = w - RATE * 2 * part.T @ (part @ w - label) / len(part)
    return w


def test_before_and_after_are_those_of_numpy():
    table = simulation.evaluate_clients(
        linear_model,
        weights(),
        datasets(TEST),
        train=datasets(TRAIN, epochs=EPOCHS),
        client_optimizer_fn=RATE,
    )
    assert list(table.index) == ["c0", "c1", "c2"]
    assert table.index.name == "client"
    assert list(table["examples"]) == [6, 3, 7]
    assert list(table["trained_examples"]) == [8, 5, 12]
    for name, (x, y) in TEST.items():
        before = metrics(INITIAL, x, y)
        after = metrics(trained(*TRAIN[name]), x, y)
        row = table.loc[name]
        assert (row["loss_before"], row["error_before"]) == pytest.approx(before, 1e-4)
        assert (row["loss_after"], row["error_after"]) == pytest.approx(after, 1e-4)
        assert after[0] != pytest.approx(before[0], 0.01)


def test_a_client_keeps_the_moving_averages_of_its_training():
    """As Keras evaluates what it has fitted."""

    def build():
        layers = tf.keras.layers
        dense = layers.Dense(1, use_bias=False, kernel_initializer="ones")
        return tf.keras.Sequential(
            [layers.Input((2,)), layers.BatchNormalization(momentum=0.5), dense]
        )

    def model_fn():
        loss = tf.keras.losses.MeanSquaredError()
        return tff.learning.models.from_keras_model(
            build(), loss, datasets(TEST).element_spec
        )

    table = simulation.evaluate_clients(
        model_fn,
        tff.learning.models.ModelWeights.from_model(build()),
        datasets(TEST),
        train=datasets(TRAIN, epochs=EPOCHS),
        client_optimizer_fn=RATE,
    )
    for name, found in table["loss_after"].items():
        fitted = build()
        fitted.compile(tf.keras.optimizers.SGD(RATE), "mse")
        fitted.fit(
            *TRAIN[name], batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0
        )
        expected = fitted.evaluate(*TEST[name], verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_many_examples_do_not_overflow_half_precision():
    """A change of 8 times 16,384 examples is more than float16's largest number."""

    def model_fn():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((1,), dtype=tf.float16),
                tf.keras.layers.Dense(1, use_bias=False, dtype=tf.float16),
            ]
        )
        return tff.learning.models.from_keras_model(
            model, tf.keras.losses.MeanSquaredError(), many.element_spec
        )

    count = 2**14
    examples = (np.ones((count, 1), np.float16), np.full((count, 1), 8, np.float16))
    many = datasets({"a": examples}, batch_size=64)
    table = simulation.evaluate_clients(
        model_fn,
        tff.learning.models.ModelWeights([np.zeros((1, 1), np.float16)], []),
        datasets({"a": tuple(each[:4] for each in examples)}),
        train=many,
        client_optimizer_fn=0.25,
    )
    # A step halves the error.
    assert list(table["loss_before"]) == [64]
    assert list(table["loss_after"]) == [0]


@pytest.fixture
def logged(monkeypatch):
    """The warnings."""
    found = []
    monkeypatch.setattr(
        logging, "warning", lambda message, *values: found.append(message % values)
    )
    return found


def test_a_client_whose_training_diverges_is_told_of(logged):
    broken = {**TRAIN, "c1": (np.full((5, 2), 1e30, np.float32), TRAIN["c1"][1])}
    table = simulation.evaluate_clients(
        linear_model,
        weights(),
        datasets(TEST),
        train=datasets(broken),
        client_optimizer_fn=RATE,
    )
    assert len(logged) == 1
    assert "of 1 clients, such as 'c1', diverged" in logged[0]
    assert logged[0].endswith("Take a smaller client_optimizer_fn.")
    kept = table["loss_after"] == table["loss_before"]
    assert kept.to_dict() == {"c0": False, "c1": True, "c2": False}


def with_bad(arrays, name, example):
    x, y = arrays[name]
    x = x.copy()
    x[example, 0] = np.nan
    return {**arrays, name: (x, y)}


def test_examples_that_are_not_finite_are_named(logged):
    table = simulation.evaluate_clients(
        linear_model,
        weights(),
        datasets(with_bad(TEST, "c2", 4)),
        train=datasets(with_bad(TRAIN, "c1", 2)),
        client_optimizer_fn=RATE,
    )
    assert logged == [
        "The evaluation's sums are not finite for 1 of 3 clients, such as 'c2'. "
        "Suspect the data: client 'c2', example 4, is not finite.",
        "The local training of 1 clients, such as 'c1', diverged: they keep the "
        "global model. Suspect the data: client 'c1', example 2, is not finite.",
    ]
    assert table["loss_before"].isna().to_dict() == {
        "c0": False,
        "c1": False,
        "c2": True,
    }


def test_of_a_model_that_is_not_finite_no_client_is_suspected(logged):
    infinite = tff.learning.models.ModelWeights([INITIAL * np.inf], [])
    simulation.evaluate_clients(linear_model, infinite, datasets(TEST))
    assert not logged


def test_without_training_there_is_no_after():
    table = simulation.evaluate_clients(linear_model, weights(), datasets(TEST))
    assert set(table) == {"examples", "loss_before", "error_before"}


@pytest.mark.conformance
def test_tffs_personalization_agrees():
    """TFF's own computation, with the same model and weights."""

    def evaluate(model, dataset):
        x, y = next(iter(dataset.batch(100)))
        output = model.forward_pass((x, y), training=False)
        return collections.OrderedDict(loss=output.loss)

    def build():
        @tf.function
        def fine_tune(model, train_data, test_data):
            for _ in range(EPOCHS):
                for batch in train_data.batch(BATCH):
                    with tf.GradientTape() as tape:
                        loss = model.forward_pass(batch, training=True).loss
                    [variable] = model.trainable_variables
                    variable.assign_sub(RATE * tape.gradient(loss, variable))
            return evaluate(model, test_data)

        return fine_tune

    computation = tff.learning.algorithms.build_personalization_eval_computation(
        linear_model,
        collections.OrderedDict(fine_tuned=build),
        tf.function(evaluate),
    )
    data = [
        collections.OrderedDict(
            train_data=tf.data.Dataset.from_tensor_slices(TRAIN[name]),
            test_data=tf.data.Dataset.from_tensor_slices(TEST[name]),
        )
        for name in TEST
    ]
    found = computation(weights(), data)
    table = simulation.evaluate_clients(
        linear_model,
        weights(),
        datasets(TEST),
        train=datasets(TRAIN, epochs=EPOCHS),
        client_optimizer_fn=RATE,
    )
    # TFF samples the clients, in an order of its own.
    for column, name in (
        ("loss_before", "baseline_metrics"),
        ("loss_after", "fine_tuned"),
    ):
        theirs = sorted(found[name]["loss"])
        assert sorted(table[column]) == pytest.approx(theirs, 1e-4)


@pytest.mark.conformance
def test_the_plot_has_a_point_for_each_client():
    table = simulation.evaluate_clients(
        linear_model,
        weights(),
        datasets(TEST),
        train=datasets(TRAIN),
        client_optimizer_fn=RATE,
    )
    axes = matplotlib.figure.Figure().subplots()
    assert simulation.plot_clients(table, "loss", axes) is axes
    points = axes.collections[0].get_offsets()
    expected = table[["loss_before", "loss_after"]].to_numpy()
    np.testing.assert_allclose(points, expected)
    with pytest.raises(ValueError, match="no column 'accuracy_before', but examples"):
        simulation.plot_clients(table)


@pytest.mark.conformance
def test_weights_of_another_float_are_cast():
    options = {"train": datasets(TRAIN), "client_optimizer_fn": RATE}
    wide = tff.learning.models.ModelWeights([INITIAL.astype(np.float64)], [])
    tables = [
        simulation.evaluate_clients(linear_model, given, datasets(TEST), **options)
        for given in (wide, weights())
    ]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train": datasets(TRAIN)}, ValueError, "client_optimizer_fn is None"),
        ({"client_optimizer_fn": 0.1}, ValueError, "train is None"),
        (
            {"train": datasets({"c0": TRAIN["c0"]}), "client_optimizer_fn": 0.1},
            ValueError,
            "train lacks 2 clients of test, such as 'c1'",
        ),
        ({"learning_rate": 0.1}, TypeError, "client_optimizer_fn"),
        ({"batch_size": 0}, ValueError, "batch_size"),
    ],
)
def test_mistakes(options, error, message):
    with pytest.raises(error, match=message):
        simulation.evaluate_clients(linear_model, weights(), datasets(TEST), **options)


def test_the_f1_score_of_two_classes_is_a_number():
    def model_fn():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[1])])
        return tff_drift.models.from_keras2(
            model,
            tf.keras.losses.BinaryCrossentropy(from_logits=True),
            test.element_spec,
            metrics=[tf.keras.metrics.F1Score(threshold=0.5, name="f1")],
        )

    # Predicted is what is above 0.5: of `a` one of two that are, and two wrongly.
    x = {"a": [1, 1, 1, 0, 0], "b": [1, 0]}
    y = {"a": [1, 0, 0, 1, 0], "b": [1, 0]}
    test = datasets(
        {
            name: (np.float32(x[name])[:, None], np.float32(y[name])[:, None])
            for name in x
        }
    )
    model_weights = tff.learning.models.ModelWeights(
        [np.ones((1, 1), np.float32), np.zeros(1, np.float32)], []
    )
    table = simulation.evaluate_clients(model_fn, model_weights, test)
    np.testing.assert_allclose(table["f1_before"], [2 / 5, 1])
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric="f1")
    found = evaluate(model_weights)
    np.testing.assert_allclose(found["f1"], [4 / 7])
    assert found["f1_client_mean"] == pytest.approx((2 / 5 + 1) / 2)


def test_a_metric_that_is_no_number_is_an_error():
    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
            loss=tf.keras.losses.MeanSquaredError(),
            metrics=[tf.keras.metrics.Precision([0.3, 0.7], name="precision")],
            input_spec=linear_model().input_spec,
        )

    ones = (np.ones((2, 2), np.float32), np.ones((2, 1), np.float32))
    model_weights = tff.learning.models.ModelWeights(
        [np.zeros((2, 1), np.float32), np.zeros(1, np.float32)], []
    )
    with pytest.raises(
        ValueError,
        match=r"model_fn has the metric 'precision', which is of shape \(2,\), and",
    ):
        simulation.evaluate_clients(model_fn, model_weights, datasets({"a": ones}))


@pytest.mark.documents
def test_the_code_of_personalization_md(tmp_path, monkeypatch):
    document = pathlib.Path(__file__).parents[2] / "docs" / "personalization.md"
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert len(blocks) == 6
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        tff_drift.execution, "set_local_execution_context", lambda **options: None
    )
    names = {}
    for index, block in enumerate(blocks):
        # AutoGraph converts the loops of functions whose source it finds in a file.
        path = tmp_path / f"block_{index}.py"
        path.write_text(block.replace("rounds=20", "rounds=4"))
        exec(compile(path.read_text(), str(path), "exec"), names)
    table = names["table"]
    assert len(table) == 50
    # The means that the page tells are of 20 rounds; what it says of the loss holds.
    assert table["loss_after"].mean() < table["loss_before"].mean()
    # TFF's computation samples the clients, in an order of its own.
    theirs = names["metrics"]
    expected = table["loss_before"].iloc[:10]
    assert sorted(theirs["baseline_metrics"]["loss"]) == pytest.approx(
        sorted(expected), rel=1e-4
    )
    assert np.mean(theirs["fine_tuning"]["loss"]) < expected.mean()
    assert (tmp_path / "clients.png").is_file()
    # As in a run of the command, whose configuration has the seed.
    task = names["task"]
    folder = simulation.OutputDir(tmp_path / "run", configuration={"seed": task.seed})
    simulation.run_training(
        names["process"],
        task.train,
        rounds=1,
        cohort_size=2,
        callbacks=[names["ClientsTable"]()],
        output_dir=folder,
    )
    written = pd.read_csv(tmp_path / "run" / "clients.csv", index_col="client")
    assert list(written.index) == list(task.test.client_ids)
    assert "accuracy_after" in written
