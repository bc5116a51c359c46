"""Masks follow from round, step and batch, and from nothing else."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, layers
from tff_drift.layers import step_seed

FEATURES = np.ones([64, 50], np.float32)


def mask(seed, rate=0.5, num_layers=1):
    """The output of the last of some dropout layers on ones, under a seed."""
    stack = [layers.Dropout(rate) for _ in range(num_layers)]
    with step_seed.step_seed(tf.Variable(tf.constant(seed, tf.int64))):
        outputs = [layer(FEATURES, training=True) for layer in stack]
    return outputs[-1].numpy()


def test_kept_elements_are_scaled_and_the_rate_is_met():
    output = mask([1, 2], rate=0.25)
    assert set(np.unique(output)) == {np.float32(0), np.float32(1 / 0.75)}
    dropped = np.mean(output == 0)
    # 3200 draws: five standard deviations are 0.038.
    assert abs(dropped - 0.25) < 0.04


def test_the_mask_is_a_function_of_the_seed_and_the_layer():
    np.testing.assert_array_equal(mask([1, 2]), mask([1, 2]))
    assert np.any(mask([1, 2]) != mask([1, 3]))
    assert np.any(mask([1, 2]) != mask([2, 2]))
    assert np.any(mask([1, 2], num_layers=1) != mask([1, 2], num_layers=2))


def test_is_the_identity_outside_training_and_at_rate_zero():
    layer = layers.Dropout(0.5)
    np.testing.assert_array_equal(layer(FEATURES, training=False), FEATURES)
    np.testing.assert_array_equal(mask([1, 2], rate=0.0), FEATURES)


def test_draws_as_keras_does_without_a_seed():
    layer = layers.Dropout(0.5)
    tf.random.set_seed(3)
    ours = layer(FEATURES, training=True)
    tf.random.set_seed(3)
    np.testing.assert_array_equal(ours, tf.nn.dropout(FEATURES, 0.5))


@pytest.mark.parametrize("seed", [None, [1, 2]])
def test_the_arguments_of_keras_layer(seed):
    """A mask with a size of 1 drops whole columns of steps."""
    layer = layers.Dropout(0.5, noise_shape=(None, 1, None), seed=7)
    x = np.ones([3, 4, 50], np.float32)
    if seed is None:
        outputs = layer(x, training=True).numpy()
    else:
        with step_seed.step_seed(tf.Variable(tf.constant(seed, tf.int64))):
            outputs = layer(x, training=True).numpy()
    assert set(np.unique(outputs)) == {0, 2}
    np.testing.assert_array_equal(outputs, np.repeat(outputs[:, :1], 4, axis=1))
    config = layers.Dropout.from_config(layer.get_config()).get_config()
    assert (config["noise_shape"], config["seed"]) == ((None, 1, None), 7)
    with pytest.raises(TypeError, match="noise_shape must be a list or tuple of sizes"):
        layers.Dropout(0.5, noise_shape=1)
    with pytest.raises(TypeError, match="seed must be an integer"):
        layers.Dropout(0.5, seed="7")


def test_padding_stays_padding_behind_it():
    tokens = np.array([[1, 2, 0, 0, 0]])
    outputs = []
    for dropout in (layers.Dropout, tf.keras.layers.Dropout):
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(10, 4, mask_zero=True),
                dropout(0.3),
                tf.keras.layers.LSTM(3),
            ]
        )
        outputs.append(model(tokens, training=False).numpy())
    np.testing.assert_array_equal(*outputs)


def test_a_saved_model_brings_the_layer_back():
    layer = layers.Dropout(0.3, name="d")
    copy = layers.Dropout.from_config(layer.get_config())
    assert (copy.rate, copy.name) == (0.3, "d")


def test_step_seed_depends_on_round_step_and_content():
    labels = np.arange(64)

    def seed(round_number=1, step=2, batch=(FEATURES, labels)):
        return tuple(step_seed.build_step_seed(round_number, step, batch).numpy())

    other = FEATURES.copy()
    other[3, 4] += 1e-6
    seeds = {
        seed(),
        seed(round_number=2),
        seed(step=3),
        seed(round_number=2, step=1),
        seed(batch=(other, labels)),
        seed(batch=(FEATURES, labels[::-1] + 1)),
        seed(batch=(labels, FEATURES)),
    }
    assert len(seeds) == 7
    assert seed() == seed()


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_bad_rates_are_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        layers.Dropout(rate)


RATE = 0.3


@functools.cache
def fed_avg(loop):
    return algorithms.build_fed_avg(dropout_model, RATE, loop_implementation=loop)


def dropout_model():
    return models.from_keras(models.keras_softmax_regression(layers.Dropout(0.5)))


@pytest.mark.parametrize(
    "loop",
    tiers.first(
        [0],
        [
            tff.learning.LoopImplementation.DATASET_REDUCE,
            tff.learning.LoopImplementation.DATASET_ITERATOR,
        ],
    ),
)
def test_training_with_dropout_repeats_bit_for_bit(loop):
    clients = models.client_arrays([30, 20, 10, 40])
    data = models.datasets(clients)
    process = fed_avg(loop)
    initial = process.initialize()
    first, _ = models.train(process, data, rounds=2, state=initial)
    again, _ = models.train(process, data, rounds=2, state=initial)
    models.assert_bit_equal(
        models.trainable(process, first), models.trainable(process, again)
    )
    # Without dropout, by NumPy.
    without = models.trainable(process, initial)
    for _ in range(2):
        delta = models.pseudo_gradient(without, clients, RATE)
        without = [x - d for x, d in zip(without, delta, strict=True)]
    assert np.any(np.abs(models.trainable(process, first)[0] - without[0]) > 1e-3)


def test_one_step_with_dropout_equals_numpy_on_the_masked_batch():
    """The mask that training uses is the one that its definition gives."""
    (client,) = models.client_arrays([5])
    features, labels = client
    process = fed_avg(tff.learning.LoopImplementation.DATASET_REDUCE)
    state = process.initialize()
    before = models.trainable(process, state)
    state, _ = models.train(process, models.datasets([client], 5), state=state)
    seed = step_seed.build_step_seed(0, 0, client).numpy()
    layer = layers.Dropout(0.5)
    with step_seed.step_seed(tf.Variable(seed)):
        masked = layer(features, training=True).numpy()
    gradient = models.softmax_gradient(before, masked, labels)
    for actual, x, g in zip(
        models.trainable(process, state), before, gradient, strict=True
    ):
        np.testing.assert_allclose(actual, x - RATE * g, atol=1e-6)
