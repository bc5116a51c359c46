"""Small models and data that several tests use."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms

NUM_FEATURES = 3
NUM_CLASSES = 4
INPUT_SPEC = (
    tf.TensorSpec([None, NUM_FEATURES], tf.float32),
    tf.TensorSpec([None], tf.int32),
)


def _metrics():
    return [tf.keras.metrics.SparseCategoricalAccuracy("accuracy")]


def _loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def keras_softmax_regression(*layers_before):
    """A linear classifier on fixed initial weights, after optional layers."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input([NUM_FEATURES]),
            *layers_before,
            tf.keras.layers.Dense(
                NUM_CLASSES,
                kernel_initializer=tf.keras.initializers.GlorotUniform(seed=7),
            ),
        ]
    )


def from_keras(keras_model):
    return tff.learning.models.from_keras_model(
        keras_model, loss=_loss(), input_spec=INPUT_SPEC, metrics=_metrics()
    )


def softmax_regression():
    """A `VariableModel`, for use as `model_fn`."""
    return from_keras(keras_softmax_regression())


def functional_softmax_regression():
    """The same model as a `FunctionalModel`."""
    return functional(keras_softmax_regression)


def functional(keras_model_fn):
    """A `FunctionalModel` of a Keras classifier."""
    return tff.learning.models.functional_model_from_keras(
        keras_model_fn,
        loss_fn=_loss(),
        input_spec=INPUT_SPEC,
        metrics_constructor=collections.OrderedDict(
            loss=lambda: tf.keras.metrics.SparseCategoricalCrossentropy(
                from_logits=True
            ),
            accuracy=_metrics()[0].__class__,
        ),
    )


@functools.cache
def fed_avg(rate=0.3):
    """FedAvg on the softmax regression, built once for all tests.

    A context keeps the programs that it makes of a process as long as there is one.
    """
    return algorithms.build_fed_avg(softmax_regression, rate)


def client_arrays(sizes, seed=0):
    """Features and labels of one client for each size."""
    random = np.random.default_rng(seed)
    return [
        (
            random.normal(size=(size, NUM_FEATURES)).astype(np.float32),
            random.integers(0, NUM_CLASSES, size).astype(np.int32),
        )
        for size in sizes
    ]


def datasets(arrays, batch_size=4):
    """One `tf.data.Dataset` of batches for each client."""
    return [
        tf.data.Dataset.from_tensor_slices(client).batch(batch_size)
        for client in arrays
    ]


def train(process, client_data, rounds=1, state=None):
    """Runs some rounds on the same cohort: returns the state and all metrics."""
    state = process.initialize() if state is None else state
    metrics = []
    for _ in range(rounds):
        output = process.next(state, client_data)
        state = output.state
        metrics.append(output.metrics)
    return state, metrics


def trainable(process, state):
    """The trainable weights of a server state, as NumPy arrays."""
    weights = process.get_model_weights(state).trainable
    return [np.asarray(tensor) for tensor in weights]


def assert_bit_equal(actual, expected):
    """Asserts that two lists of arrays agree in every bit."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


# An independent NumPy reference of local training on softmax regression.


def softmax_gradient(weights, features, labels):
    """Gradient of the mean cross-entropy of `features @ W + b`."""
    kernel, bias = weights
    logits = features @ kernel + bias
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(labels)), labels] -= 1
    residual = probabilities / len(labels)
    return [features.T @ residual, residual.sum(axis=0)]


def local_sgd(weights, client, rate, batch_size=4):
    """y after one epoch of SGD from `weights` in float64, batches in order."""
    features, labels = (np.asarray(part) for part in client)
    local = [np.asarray(tensor, np.float64) for tensor in weights]
    for start in range(0, len(labels), batch_size):
        batch = slice(start, start + batch_size)
        gradient = softmax_gradient(local, features[batch], labels[batch])
        local = [w - rate * g for w, g in zip(local, gradient, strict=True)]
    return local


def pseudo_gradient(weights, clients, rate, batch_size=4):
    """Δ, weighted by the clients' numbers of examples."""
    total = sum(len(labels) for _, labels in clients)
    result = [np.zeros_like(tensor, np.float64) for tensor in weights]
    for client in clients:
        local = local_sgd(weights, client, rate, batch_size)
        share = len(client[1]) / total
        result = [
            r + share * (w - y) for r, w, y in zip(result, weights, local, strict=True)
        ]
    return result
