"""`Normalization` normalizes by what it learned, whichever way a model begins."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from tests import keras3_models, tiers
from tff_drift import algorithms, execution, models, simulation

RANDOM = np.random.default_rng(7)
MEAN, DEVIATION = np.array([0, 5, 300]), np.array([1, 10, 100])
X = (MEAN + DEVIATION * RANDOM.normal(size=[40, 3])).astype(np.float32)
Y = (X @ [1, 0.1, 0.01])[:, None].astype(np.float32)
TRAIN = simulation.ClientDatasets.from_arrays({"ann": (X, Y)}, batch_size=len(X))
KERNEL, BIAS, RATE = np.array([[0.5], [-0.5], [2]], np.float32), np.float32([1]), 0.1

KERAS = [2, pytest.param(3, marks=keras3_models.needed)]


@pytest.fixture(autouse=True)
def local():
    execution.set_local_execution_context()


@pytest.fixture(params=KERAS, ids=["keras 2", "keras 3"], scope="module")
def keras(request):
    return tf.keras if request.param == 2 else importlib.import_module("keras")


def fresh(keras):
    layers = [keras.layers.Normalization(), keras.layers.Dense(1)]
    return keras.Sequential([keras.layers.Input([3]), *layers])


def adapted(keras):
    """A model whose first layer has learned and whose second one is as above."""
    model = fresh(keras)
    model.layers[0].adapt(X)
    model.layers[1].set_weights([KERNEL, BIAS])
    return model


def adapted_first(keras):
    """As `adapted`, of a layer that learned before the model was made."""
    layer = keras.layers.Normalization()
    layer.adapt(X)
    model = keras.Sequential([keras.layers.Input([3]), layer, keras.layers.Dense(1)])
    model.layers[1].set_weights([KERNEL, BIAS])
    return model


@pytest.fixture(scope="module")
def saved(keras, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    adapted(keras).save(path / "model.keras")
    adapted(keras).save_weights(path / "model.weights.h5")
    return path


def model_fn(keras, build):
    make = models.from_keras2 if keras is tf.keras else models.from_keras3
    return lambda: make(build(), keras.losses.MeanSquaredError(), TRAIN.element_spec)


def by_hand():
    """The loss, and kernel and bias after a step of gradient descent."""
    normalized = (X - X.mean(0, np.float64)) / X.std(0, dtype=np.float64)
    error = normalized @ KERNEL + BIAS - Y
    kernel = KERNEL - RATE * 2 * normalized.T @ error / len(X)
    bias = BIAS - RATE * 2 * error.mean(0)
    return np.mean(error**2), kernel, bias, normalized @ kernel + bias


def begins(keras, saved):
    """Ways to begin with what was learned, and the initial weights that are given."""

    given = adapted(keras)
    weights = given.get_weights()

    def set_weights():
        model = fresh(keras)
        model.set_weights(weights)
        return model

    def load_weights():
        model = fresh(keras)
        model.load_weights(saved / "model.weights.h5")
        return model

    def load_model():
        return keras.models.load_model(saved / "model.keras", compile=False)

    return {
        "set": (set_weights, None),
        "loaded": (load_model, None),
        "weights loaded": (load_weights, None),
        "given": (lambda: fresh(keras), given),
        "given as a path": (lambda: fresh(keras), saved / "model.keras"),
        "cloned": (lambda: keras.models.clone_model(given), given),
    }


WAYS = ["set", "loaded", "weights loaded", "given", "given as a path", "cloned"]


@pytest.mark.parametrize("way", tiers.first(["loaded", "given"], WAYS))
def test_training_and_evaluation_normalize_by_what_was_learned(keras, saved, way):
    build, given = begins(keras, saved)[way]
    function = model_fn(keras, build)
    process = algorithms.build_fed_avg(function, RATE)
    result = simulation.run_training(
        process, TRAIN, rounds=1, cohort_size=1, initial_weights=given
    )
    loss, kernel, bias, predictions = by_hand()
    assert result.rows[0]["train_loss"] == pytest.approx(loss, rel=1e-4)
    actual = result.model_weights.trainable
    np.testing.assert_allclose(actual[0], kernel, rtol=1e-4)
    np.testing.assert_allclose(actual[1], bias, rtol=1e-4)

    evaluate = simulation.build_evaluation(function, TRAIN, accuracy_metric="loss")
    expected = np.mean((predictions - Y) ** 2)
    evaluated = evaluate(result.model_weights)
    assert evaluated["loss"] == pytest.approx(expected, rel=1e-4)
    table = simulation.evaluate_clients(function, result.model_weights, TRAIN)
    assert table["loss_before"].item() == pytest.approx(expected, rel=1e-4)


@keras3_models.needed
@pytest.mark.parametrize("build", [adapted, adapted_first])
def test_a_model_function_may_adapt_a_layer_of_keras_3(build):
    keras = importlib.import_module("keras")
    process = algorithms.build_fed_avg(model_fn(keras, lambda: build(keras)), RATE)
    result = simulation.run_training(process, TRAIN, rounds=1, cohort_size=1)
    loss, kernel, *_ = by_hand()
    assert result.rows[0]["train_loss"] == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(result.model_weights.trainable[0], kernel, rtol=1e-4)


@keras3_models.needed
def test_a_model_that_is_given_weights_predicts_by_them():
    keras = importlib.import_module("keras")
    given = adapted(keras)
    process = algorithms.build_fed_avg(model_fn(keras, lambda: given), RATE)
    result = simulation.run_training(process, TRAIN, rounds=1, cohort_size=1)
    *_, predictions = by_hand()
    other = fresh(keras)
    models.assign_to_keras3(result.model_weights, other)
    actual = other.predict(X, verbose=0)
    np.testing.assert_allclose(actual, predictions, rtol=1e-3, atol=1e-4)
    # The model in use normalizes as before.
    normalization = given.layers[0]
    np.testing.assert_allclose(np.ravel(normalization.mean), X.mean(0), rtol=1e-5)
