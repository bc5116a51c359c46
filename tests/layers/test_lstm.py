"""Our LSTM against Keras': the same results, gradients and second derivatives."""

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tff_drift import algorithms, layers

BATCH, TIME, FEATURES, UNITS = 3, 7, 4, 5
RANDOM = np.random.default_rng(2)
INPUTS = RANDOM.normal(size=(BATCH, TIME, FEATURES)).astype(np.float32)
# A sequence that ends early, one with a gap, one that begins late.
MASK = np.ones([BATCH, TIME], bool)
MASK[0, 4:] = MASK[1, 3] = MASK[2, :2] = False
MASK = tf.constant(MASK)


def _layers(**options):
    ours = layers.LSTM(UNITS, **options)
    keras = tf.keras.layers.LSTM(UNITS, **options)
    for layer in (ours, keras):
        layer(INPUTS)  # Makes the weights.
    keras.set_weights(
        [RANDOM.normal(size=w.shape).astype(np.float32) for w in keras.get_weights()]
    )
    ours.set_weights(keras.get_weights())
    return ours, keras


def _loss(layer, inputs, mask):
    return tf.reduce_sum(tf.sin(3.0 * layer(inputs, mask=mask)))


def _results(layer, mask):
    """Outputs, first derivatives, and second ones in a fixed direction."""
    direction = [
        np.cos(np.arange(w.size, dtype=np.float32)).reshape(w.shape)
        for w in layer.get_weights()
    ]

    @tf.function
    def results(inputs):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                loss = _loss(layer, inputs, mask)
            first = inner.gradient(loss, [inputs, *layer.trainable_variables])
            along = tf.add_n(
                [tf.reduce_sum(g * d) for g, d in zip(first[1:], direction)]
            )
        second = outer.gradient(along, layer.trainable_variables)
        return layer(inputs, mask=mask), first, second

    return tf.nest.flatten(results(tf.constant(INPUTS)))


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("return_sequences", [True, False])
def test_agrees_with_keras(mask, return_sequences):
    ours, keras = _layers(return_sequences=return_sequences)
    actual, expected = _results(ours, mask), _results(keras, mask)
    assert len(actual) == len(expected) == 1 + 4 + 3
    for one, other in zip(actual, expected):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_a_step_by_hand():
    ours, _ = _layers()
    kernel, recurrent_kernel, bias = (w.astype(np.float64) for w in ours.get_weights())
    h = c = np.zeros([BATCH, UNITS])
    for t in range(2):
        z = INPUTS[:, t] @ kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(z, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
    np.testing.assert_allclose(ours(INPUTS[:, :2]), h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"go_backwards": True}, {"activation": "relu"}, {"use_bias": False}],
    ids=lambda options: next(iter(options)),
)
def test_does_what_keras_does_where_it_has_no_faster_way(options):
    ours, keras = _layers(**options)
    np.testing.assert_array_equal(ours(INPUTS), keras(INPUTS))
    assert type(ours).from_config(ours.get_config()).get_config() == ours.get_config()


def _model_fn(layer_type):
    def model_fn():
        return models.from_keras(
            models.keras_softmax_regression(
                tf.keras.layers.Reshape([models.NUM_FEATURES, 1]),
                layer_type(
                    4,
                    kernel_initializer=tf.keras.initializers.GlorotUniform(3),
                    recurrent_initializer=tf.keras.initializers.Orthogonal(seed=4),
                ),
            )
        )

    return model_fn


def test_a_round_of_federated_averaging():
    data = models.datasets(models.client_arrays([6, 3]))
    results = []
    for layer_type in (layers.LSTM, tf.keras.layers.LSTM):
        process = algorithms.build_fed_avg(_model_fn(layer_type), 0.5)
        state, _ = models.train(process, data)
        results.append(models.trainable(process, state))
    for ours, keras in zip(*results):
        np.testing.assert_allclose(ours, keras, rtol=1e-4, atol=1e-6)
