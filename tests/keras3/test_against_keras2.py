"""A model of Keras 3 trains as the same model of Keras 2 does, bit for bit."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models, methods
from tff_drift import algorithms, models, simulation

pytestmark = keras3_models.needed

SIZE = 6
CLASSES = 3
BUILDERS = {
    "fed_avg": lambda model_fn: algorithms.build_fed_avg(model_fn, 0.1),
    "scaffold": lambda model_fn: algorithms.build_scaffold(model_fn, 0.1, 5),
    "adabest": lambda model_fn: algorithms.build_adabest(model_fn, 0.1),
}


def dense(k):
    return [k.layers.Dense(8, "relu"), k.layers.Dense(CLASSES)]


def batch_norm(k):
    layers = k.layers
    hidden = [layers.Dense(8), layers.BatchNormalization(), layers.Activation("relu")]
    return [*hidden, layers.Dense(CLASSES)]


def convolution(k):
    layers = k.layers
    hidden = [layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D()]
    return [layers.Reshape([SIZE, SIZE, 1]), *hidden, layers.Flatten(), *dense(k)]


def regularised(k):
    l2 = k.regularizers.L2(0.05)
    hidden = k.layers.Dense(8, "relu", kernel_regularizer=l2, bias_regularizer=l2)
    return [hidden, k.layers.Dense(CLASSES)]


MODELS = {each.__name__: each for each in (dense, batch_norm, convolution, regularised)}
# Servers that step otherwise, and one with data of its own.
SERVERS = (
    "fed_adagrad",
    "fed_adam",
    "fed_avgm",
    "fed_yogi",
    "fed_lars",
    "normalized_fed_avg",
    "fed_meta",
)
# The losses of regularizers do not depend on the method.
CASES = {
    f"{name}_{method}": (layers, build)
    for name, layers in MODELS.items()
    for method, build in BUILDERS.items()
    if layers is not regularised or method == "fed_avg"
}


def build_row(name):
    """Returns what builds a method of that name."""
    method = algorithms.methods()[name]

    def build(model_fn):
        own = {"meta_data": datasets()[1]} if "meta_data" in method.needs else {}
        return methods.build(method, model_fn, **own)

    return build


CASES.update({f"batch_norm_{name}": (batch_norm, build_row(name)) for name in SERVERS})


def make(k, layers):
    return k.Sequential([k.layers.Input([SIZE * SIZE]), *layers(k)])


def loss_and_metrics(k):
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    return loss, [k.metrics.SparseCategoricalAccuracy("accuracy")]


def client_arrays():
    random = np.random.default_rng(3)
    return {
        f"client_{index}": (
            random.normal(size=[size, SIZE * SIZE]).astype(np.float32),
            random.integers(0, CLASSES, size).astype(np.int32),
        )
        for index, size in enumerate([12, 7, 8, 12, 3])
    }


def datasets():
    return [
        tf.data.Dataset.from_tensor_slices(arrays).batch(4)
        for arrays in client_arrays().values()
    ]


def model_fns(layers):
    """The two models as TFF's, and the weights of the one of Keras 3."""
    spec = datasets()[0].element_spec
    keras_model = make(keras, layers)

    def of_keras3():
        loss, metrics = loss_and_metrics(keras)
        return models.from_keras3(keras_model, loss, spec, metrics)

    def of_keras2():
        loss, metrics = loss_and_metrics(tf.keras)
        return tff.learning.models.from_keras_model(
            make(tf.keras, layers), loss, spec, metrics=metrics
        )

    return of_keras3, of_keras2, keras3_models.weights(keras_model)


@pytest.mark.parametrize(("layers", "build"), CASES.values(), ids=CASES)
def test_losses_and_weights_are_equal_bit_for_bit(layers, build):
    of_keras3, of_keras2, weights = model_fns(layers)
    ours = keras3_models.Rounds(build(of_keras3), datasets(), 3, weights)
    theirs = keras3_models.Rounds(build(of_keras2), datasets(), 3, weights)
    assert ours.metrics == theirs.metrics
    for actual, expected, initial in zip(
        ours.weights, theirs.weights, tf.nest.flatten(weights), strict=True
    ):
        assert actual.tobytes() == expected.tobytes()
        assert actual.shape == initial.shape
    assert np.any(ours.weights[0] != weights.trainable[0])


@pytest.mark.parametrize("layers", MODELS.values(), ids=MODELS)
def test_evaluation_is_equal_bit_for_bit(layers):
    of_keras3, of_keras2, weights = model_fns(layers)
    test = simulation.ClientDatasets.from_arrays(client_arrays(), batch_size=4)

    def evaluate(model_fn):
        return simulation.build_evaluation(model_fn, test)(weights)

    ours = evaluate(of_keras3)
    assert ours == evaluate(of_keras2)
    assert ours["num_examples"] == 42


def test_the_weights_of_the_keras_model_are_where_training_starts():
    of_keras3, _, weights = model_fns(batch_norm)
    process = algorithms.build_fed_avg(of_keras3, 0.1)
    initial = process.get_model_weights(process.initialize())
    tf.nest.map_structure(np.testing.assert_array_equal, initial, weights)


def test_clients_are_vectorized(local):
    of_keras3, *_ = model_fns(dense)
    process = algorithms.build_fed_avg(of_keras3, 0.1)
    same_size = datasets()[:1] * 8
    text = str(local.explain(process.next, (process.initialize(), same_size)))
    assert "vectorized in lockstep: 24 steps come in 3 lockstep steps" in text
