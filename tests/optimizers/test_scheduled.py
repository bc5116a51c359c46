import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import optimizers

_SCALAR = tf.TensorSpec([], tf.float32)


def _sgd(learning_rate=0.5):
    return tff.learning.optimizers.build_sgdm(learning_rate)


def test_each_step_uses_its_rounds_factor(take_steps):
    # By hand: rates 0.5, 0.25, 0.125 on the gradient 2.
    optimizer = optimizers.build_scheduled(_sgd(), optimizers.per_round_factor(0.5))
    steps = take_steps(optimizer, [np.array(0.0)], [[2.0]] * 3)
    np.testing.assert_array_equal(np.ravel(steps), [-1.0, -1.5, -1.75])


def test_momentum_is_not_scheduled(take_steps):
    # By hand: m = 1, 1.5, 1.75 and rates 1, 0.5, 0.25.
    optimizer = optimizers.build_scheduled(
        tff.learning.optimizers.build_sgdm(1.0, momentum=0.5),
        optimizers.per_round_factor(0.5),
    )
    steps = take_steps(optimizer, [np.array(0.0)], [[1.0]] * 3)
    np.testing.assert_array_equal(np.ravel(steps), [-1.0, -1.75, -2.1875])


def test_the_constant_schedule_changes_no_bit(weights, gradients, take_steps):
    inner = optimizers.build_adam(0.3)
    scheduled = optimizers.build_scheduled(inner, optimizers.constant())
    for plain, with_schedule in zip(
        take_steps(inner, weights, gradients),
        take_steps(scheduled, weights, gradients),
        strict=True,
    ):
        for a, b in zip(plain, with_schedule, strict=True):
            np.testing.assert_array_equal(a, b)


def test_state_holds_the_round_and_the_base_rate():
    optimizer = optimizers.build_scheduled(_sgd(), optimizers.warm_up(10))
    state = optimizer.initialize(_SCALAR)
    assert list(state) == ["round_number", "optimizer"]
    for _ in range(3):
        state, _ = optimizer.next(state, tf.constant(1.0), tf.constant(1.0))
    assert state["round_number"].dtype == tf.int32
    assert state["round_number"] == 3
    assert float(state["optimizer"]["learning_rate"]) == 0.5


def test_hyperparameters_are_the_inner_ones():
    optimizer = optimizers.build_scheduled(
        optimizers.build_adam(0.5), optimizers.per_round_factor(0.5)
    )
    state = optimizer.initialize(_SCALAR)
    state, _ = optimizer.next(state, tf.constant(0.0), tf.constant(1.0))
    hparams = optimizer.get_hparams(state)
    assert list(hparams) == ["learning_rate", "beta_1", "tau", "beta_2"]
    assert float(hparams["learning_rate"]) == 0.5

    # By hand from here on: no moments, rate 4, factor 0.5 of round 1.
    hparams.update(learning_rate=4.0, beta_1=0.0, beta_2=0.0, tau=1.0)
    state = optimizer.set_hparams(state, hparams)
    assert state["round_number"] == 1
    _, weight = optimizer.next(state, tf.constant(0.0), tf.constant(1.0))
    np.testing.assert_allclose(weight, -4.0 * 0.5 * 1.0 / (1.0 + 1.0))


def test_an_integer_base_rate_takes_fractions(take_steps):
    optimizer = optimizers.build_scheduled(_sgd(1), optimizers.warm_up(4))
    steps = take_steps(optimizer, [np.array(0.0)], [[1.0]] * 3)
    np.testing.assert_array_equal(np.ravel(steps), [0.0, -0.25, -0.75])


def test_the_round_may_be_used_with_python_control_flow(take_steps):
    def first_round_only(round_number):
        return 1.0 if round_number == 0 else 0.0

    optimizer = optimizers.build_scheduled(_sgd(1.0), first_round_only)
    steps = take_steps(optimizer, [np.array(0.0)], [[1.0]] * 3)
    np.testing.assert_array_equal(np.ravel(steps), [-1.0, -1.0, -1.0])


class _WithoutRate(tff.learning.optimizers.Optimizer):
    def initialize(self, specs):
        return collections.OrderedDict(momentum=0.9)

    def next(self, state, weights, gradients):
        return state, weights


@pytest.mark.parametrize(
    "inner",
    [_WithoutRate(), optimizers.build_scheduled(_sgd(), optimizers.constant())],
    ids=["without_rate", "scheduled_already"],
)
def test_an_optimizer_without_a_rate_is_refused(inner):
    optimizer = optimizers.build_scheduled(inner, optimizers.constant())
    with pytest.raises(ValueError, match="must keep 'learning_rate' in its state"):
        optimizer.initialize(_SCALAR)


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"optimizer must be a tff\.learning"):
        optimizers.build_scheduled(0.1, optimizers.constant())
    with pytest.raises(TypeError, match="schedule must be a function"):
        optimizers.build_scheduled(_sgd(), 0.1)
