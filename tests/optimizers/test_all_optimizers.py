"""What must hold of every server step, TFF's own SGD included."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tff_drift import compat, optimizers

_OPTIMIZERS = {
    "sgd": tff.learning.optimizers.build_sgdm(0.3),
    "momentum": tff.learning.optimizers.build_sgdm(0.1, momentum=0.5),
    "adagrad": optimizers.build_adagrad(0.5),
    "adam": optimizers.build_adam(0.1),
    "yogi": optimizers.build_yogi(0.1),
    "lars": optimizers.build_lars(0.1),
    "lamb": optimizers.build_lamb(0.1),
    "normalized_sgd": optimizers.build_normalized_sgd(0.2),
    "scheduled": optimizers.build_scheduled(
        optimizers.build_adam(0.1), optimizers.inverse_sqrt(100)
    ),
}
_WEIGHTS = (np.array([[2.0, -1.0], [0.5, 1.5]]), np.array([1.0, -1.0, 2.0]))
_TARGET = (np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([0.0, 1.0, 1.0]))


def _tensors(structure, dtype):
    return tf.nest.map_structure(lambda a: tf.constant(a, dtype), structure)


def _specs(structure):
    return tf.nest.map_structure(tf.type_spec_from_value, structure)


def _loss(weights):
    return sum(
        0.5 * np.sum((w - t) ** 2) for w, t in zip(weights, _TARGET, strict=True)
    )


def _types(structure):
    tensors = tf.nest.map_structure(tf.convert_to_tensor, structure)
    return tf.nest.map_structure(lambda t: (t.dtype, tuple(t.shape)), tensors)


@pytest.fixture(params=_OPTIMIZERS)
def optimizer(request):
    return _OPTIMIZERS[request.param]


def test_a_quadratic_is_descended(optimizer):
    weights = _tensors(_WEIGHTS, tf.float32)
    state = optimizer.initialize(_specs(weights))
    for _ in range(30):
        gradients = tuple(w - t for w, t in zip(weights, _TARGET, strict=True))
        state, weights = optimizer.next(state, weights, gradients)
    assert _loss(weights) < 0.25 * _loss(_WEIGHTS)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_types_and_structure_are_kept(optimizer, dtype):
    weights = _tensors(_WEIGHTS, dtype)
    state = optimizer.initialize(_specs(weights))
    new_state, new_weights = optimizer.next(state, weights, weights)
    assert _types(new_weights) == _types(weights)
    assert _types(new_state) == _types(state)
    assert list(new_state) == list(state)


def test_hyperparameters_go_round_and_take_effect(optimizer):
    weights = _tensors(_WEIGHTS, tf.float32)
    state = optimizer.initialize(_specs(weights))
    hparams = optimizer.get_hparams(state)
    assert "learning_rate" in hparams
    assert _types(optimizer.set_hparams(state, hparams)) == _types(state)

    hparams["learning_rate"] = 0.0
    frozen = optimizer.set_hparams(state, hparams)
    assert float(optimizer.get_hparams(frozen)["learning_rate"]) == 0.0
    _, unmoved = optimizer.next(frozen, weights, weights)
    _, moved = optimizer.next(state, weights, weights)
    for before, still, after in zip(_WEIGHTS, unmoved, moved, strict=True):
        np.testing.assert_array_equal(before, still)
        assert np.all(before != after)


@pytest.mark.conformance
def test_clients_of_tffs_own_fed_avg_take_its_steps(optimizer):
    process = tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, optimizer, tff.learning.optimizers.build_sgdm(1.0)
    )
    arrays = models.client_arrays([4])
    state = process.initialize()
    before = process.get_model_weights(state).trainable
    after = process.get_model_weights(
        process.next(state, models.datasets(arrays)).state
    ).trainable

    x, y = arrays[0]
    weights = tuple(map(tf.constant, before))
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits = x @ weights[0] + weights[1]
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        loss = tf.reduce_mean(loss)
    gradients = tape.gradient(loss, weights)
    _, expected = optimizer.next(
        optimizer.initialize(_specs(weights)), weights, gradients
    )
    for found, wanted in zip(after, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


# By hand: m is 0.05, 0.095, 0.1355 and v 0.25e-3, 0.49975e-3, 0.74925e-3.
@pytest.mark.parametrize(
    ("bias_correction", "expected"), [(False, -0.18176), (True, 0.70060)]
)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_adam_in_half_precision(dtype, bias_correction, expected):
    optimizer = optimizers.build_adam(
        0.1, beta_2=0.999, bias_correction=bias_correction
    )
    weights = [tf.ones([2], dtype)]
    state = optimizer.initialize(_specs(weights))
    for _ in range(3):
        state, weights = optimizer.next(
            state, weights, [tf.fill([2], tf.cast(0.5, dtype))]
        )
    np.testing.assert_allclose(float(weights[0][0]), expected, atol=6e-3)
    assert _types(state["second_moment"]) == _types(weights)


def test_momentum_zero_is_sgd_bit_for_bit(weights, gradients, take_steps):
    plain = take_steps(tff.learning.optimizers.build_sgdm(0.3), weights, gradients)
    zero = take_steps(
        tff.learning.optimizers.build_sgdm(0.3, momentum=0.0), weights, gradients
    )
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(zero), strict=True):
        np.testing.assert_array_equal(a, b)


def test_tffs_momentum_is_heavy_ball(weights, gradients, take_steps, assert_close):
    x, m, expected = weights, [np.zeros_like(w) for w in weights], []
    for step in gradients:
        m = [0.9 * a + delta for a, delta in zip(m, step, strict=True)]
        x = [w - 0.3 * a for w, a in zip(x, m, strict=True)]
        expected.append(x)
    optimizer = tff.learning.optimizers.build_sgdm(0.3, momentum=0.9)
    assert_close(take_steps(optimizer, weights, gradients), expected)


@pytest.mark.conformance
def test_all_run_in_tffs_finalizer():
    weights = _tensors(_WEIGHTS, tf.float32)
    weights_type = compat.tensorflow_to_type(
        tff.learning.models.ModelWeights(_specs(weights), ())
    )
    finalizers = {
        name: tff.learning.templates.build_apply_optimizer_finalizer(
            optimizer, weights_type
        )
        for name, optimizer in _OPTIMIZERS.items()
    }

    @compat.tf_computation
    def frozen(hparams):
        return collections.OrderedDict(hparams, learning_rate=0.0)

    # One computation for all: two steps, then one with the rate set to 0.
    @compat.federated_computation(
        compat.FederatedType(weights_type, compat.SERVER),
        compat.FederatedType(weights_type.trainable, compat.SERVER),
    )
    def three_steps(weights, update):
        results = collections.OrderedDict()
        for name, finalizer in finalizers.items():
            first = finalizer.next(finalizer.initialize(), weights, update)
            second = finalizer.next(first.state, first.result, update)
            hparams = compat.federated_map(finalizer.get_hparams, second.state)
            state = compat.federated_map(
                finalizer.set_hparams,
                compat.federated_zip(
                    (second.state, compat.federated_map(frozen, hparams))
                ),
            )
            third = finalizer.next(state, second.result, update)
            results[name] = (second.result.trainable, third.result.trainable, hparams)
        return compat.federated_zip(results)

    results = three_steps(
        tff.learning.models.ModelWeights(weights, ()), _tensors(_TARGET, tf.float32)
    )

    for name, optimizer in _OPTIMIZERS.items():
        second, third, hparams = results[name]
        state, expected = optimizer.initialize(_specs(weights)), weights
        for _ in range(2):
            state, expected = optimizer.next(
                state, expected, _tensors(_TARGET, tf.float32)
            )
        for a, b, e in zip(second, third, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6, err_msg=name)
            np.testing.assert_array_equal(a, b, err_msg=name)
        assert list(hparams) == list(optimizer.get_hparams(state))
