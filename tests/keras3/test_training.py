"""From a Keras 3 model to a trained one: every context, TFF's algorithms, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models
from tests import models as small
from tff_drift import algorithms, models, simulation

pytestmark = keras3_models.needed

CLIENTS = small.client_arrays([10, 7, 3, 8])
DATA = small.datasets(CLIENTS)
SGD = tff.learning.optimizers.build_sgdm(0.1)


def test_ten_rounds_of_scaffold_and_back_into_the_keras_model(tmp_path):
    random = np.random.default_rng(1)
    centres = 3 * random.normal(size=[small.NUM_CLASSES, small.NUM_FEATURES])
    labels = random.integers(0, small.NUM_CLASSES, [6, 20]).astype(np.int32)
    features = (centres[labels] + random.normal(size=[6, 20, 3])).astype(np.float32)
    clients = {
        f"client_{index}": (features[index], labels[index]) for index in range(6)
    }
    data = simulation.ClientDatasets.from_arrays(clients, batch_size=5)
    keras_model = keras3_models.softmax_regression(
        keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization()
    )
    before = keras_model.get_weights()

    def model_fn():
        return models.from_keras3(
            keras_model,
            keras3_models.loss(),
            data.element_spec,
            keras3_models.metrics(),
        )

    process = algorithms.build_scaffold(model_fn, 0.05, num_clients=len(data))
    result = simulation.run_training(process, data, rounds=10, cohort_size=3)
    assert result.rows[-1]["train_loss"] < result.rows[0]["train_loss"]
    for now, then in zip(keras_model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)

    evaluation = simulation.build_evaluation(model_fn, data)(result.model_weights)
    models.assign_to_keras3(result.model_weights, keras_model)
    for variable, value in zip(
        keras_model.trainable_variables, result.model_weights.trainable, strict=True
    ):
        np.testing.assert_array_equal(variable.numpy(), value)
    every = features.reshape([-1, 3])
    predictions = keras_model(every)
    np.testing.assert_allclose(
        evaluation["loss"], keras3_models.loss()(labels.ravel(), predictions), rtol=1e-5
    )
    assert evaluation["accuracy"] == np.mean(
        np.argmax(predictions, axis=1) == labels.ravel()
    ).astype(np.float32)

    keras_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(every), predictions)
    # It is trained further from where it was.
    again = algorithms.build_fed_avg(
        lambda: models.from_keras3(loaded, keras3_models.loss(), data.element_spec), 0.1
    )
    weights = again.get_model_weights(again.initialize())
    tf.nest.map_structure(np.testing.assert_array_equal, weights, result.model_weights)


def test_a_compiled_model_that_was_fitted_is_trained_on():
    keras_model = keras3_models.softmax_regression(keras.layers.Dropout(0.1))
    keras_model.compile("adam", keras3_models.loss(), metrics=keras3_models.metrics())
    keras_model.fit(*CLIENTS[0], verbose=0)
    process = algorithms.build_fed_avg(keras3_models.model_fn(keras_model), 0.1)
    start = process.get_model_weights(process.initialize())
    small.assert_bit_equal(list(start.trainable), keras_model.get_weights())


STOCK = {
    "fed_avg": lambda model_fn: tff.learning.algorithms.build_weighted_fed_avg(
        model_fn, SGD
    ),
    "fed_prox": lambda model_fn: tff.learning.algorithms.build_weighted_fed_prox(
        model_fn, 0.5, SGD
    ),
    "ours": lambda model_fn: algorithms.build_fed_avg(model_fn, 0.1),
}


@pytest.mark.parametrize("build", STOCK.values(), ids=STOCK)
def test_tffs_algorithms_and_its_native_context(build):
    keras_model = keras3_models.softmax_regression()
    process = build(keras3_models.model_fn(keras_model))
    # The same model of Keras 2, whose initial weights are drawn by the same seed.
    weights = keras3_models.weights(keras_model)
    reference = build(small.softmax_regression)
    expected = keras3_models.Rounds(reference, DATA, 2, weights)
    local = keras3_models.Rounds(process, DATA, 2)
    assert local.metrics == expected.metrics
    small.assert_bit_equal(local.weights, expected.weights)


@pytest.mark.parametrize("build", STOCK.values(), ids=STOCK)
def test_the_native_context_agrees(build, native):
    process = build(keras3_models.model_fn(keras3_models.softmax_regression()))
    local = keras3_models.Rounds(process, DATA, 2)
    with tff.framework.get_context_stack().install(native):
        other = keras3_models.Rounds(process, DATA, 2)
    for one, two in zip(local.weights, other.weights, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(
        local.metrics[-1]["loss"], other.metrics[-1]["loss"], atol=1e-6
    )


def test_tffs_evaluation():
    keras_model = keras3_models.softmax_regression()
    evaluation = tff.learning.algorithms.build_fed_eval(
        keras3_models.model_fn(keras_model)
    )
    state = evaluation.set_model_weights(
        evaluation.initialize(), keras3_models.weights(keras_model)
    )
    metrics = evaluation.next(state, DATA).metrics["client_work"]["eval"]
    x, y = (np.concatenate(parts) for parts in zip(*CLIENTS, strict=True))
    expected = keras3_models.loss()(y, keras_model(x))
    found = metrics["current_round_metrics"]["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
