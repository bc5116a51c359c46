"""Checks in clients' computations fail here where they fail natively."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import call
from tff_drift import execution

NUMBERS = tff.SequenceType(np.int64)
ZERO = np.int64(0)
# The clients' numbers of examples; a check allows fewer than three.
FEW, MANY = [2, 2, 1], [2, 4, 5]


def _count(data):
    return data.reduce(ZERO, lambda total, _: total + 1)


def _check(number):
    return tf.debugging.assert_less(number, np.int64(3), "too many")


@tf.function
def _only_check(number):
    _check(number)


@tf.function
def _check_in_a_branch(number):
    if number > 0:
        _check(number)


def before_a_constant(data):
    with tf.control_dependencies([_check(_count(data))]):
        return tf.constant(5, tf.int64) + _count(data)


def before_what_waits(data):
    """The last operation waits for a sum, which a check is before."""
    number = _count(data)

    def checked():
        with tf.control_dependencies([_check(number)]):
            return tf.constant(1, tf.int64)

    chosen = tf.cond(number > 0, checked, lambda: tf.constant(0, tf.int64))
    with tf.control_dependencies([chosen + 1]):
        return tf.identity(number)


def before_elements(data):
    with tf.control_dependencies([_check(_count(data))]):
        start = tf.identity(ZERO)
    return _count(data.map(lambda number: number + start))


def in_a_step(data):
    def step(total, _):
        with tf.control_dependencies([_check(total + 1)]):
            return total + 1

    return data.reduce(ZERO, step)


def in_a_function_without_results(data):
    def step(total, _):
        _only_check(total + 1)
        return total + 1

    return data.reduce(ZERO, step)


def in_a_branch_without_results(data):
    def step(total, _):
        _check_in_a_branch(total + 1)
        return total + 1

    return data.reduce(ZERO, step)


def of_finite_numbers(data):
    logarithm = tf.math.log(tf.cast(3 - _count(data), tf.float32))
    return tf.cast(tf.debugging.check_numerics(logarithm, "too many"), tf.int64)


@pytest.fixture(scope="module")
def contexts(native):
    create = execution.create_local_execution_context
    return {
        "native": native,
        "default": create(),
        "one by one": create(batch_clients=False),
        "vectorized": create(batch_clients=True),
    }


@pytest.mark.parametrize(
    "function",
    tiers.first(
        [3, 6],
        [
            before_a_constant,
            before_what_waits,
            before_elements,
            in_a_step,
            in_a_function_without_results,
            in_a_branch_without_results,
            of_finite_numbers,
        ],
    ),
)
def test_a_check_fails_where_it_fails_natively(function, contexts):
    of_client = tff.tensorflow.computation(function, NUMBERS)
    total = tff.federated_computation(
        lambda data: tff.federated_sum(tff.federated_map(of_client, data)),
        tff.FederatedType(NUMBERS, tff.CLIENTS),
    )
    few, many = ([list(range(number)) for number in each] for each in (FEW, MANY))
    expected = call(contexts["native"], total, few)
    for context in contexts.values():
        assert call(context, total, few) == expected
        with pytest.raises(Exception, match="too many"):
            call(context, total, many)
