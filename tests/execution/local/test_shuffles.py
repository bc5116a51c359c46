"""Seeded shuffles start over in every computation, as under the native context."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.local.support import assert_same, call
from tff_drift import algorithms

NUMBERS = tff.SequenceType(tff.TensorType(np.float32, [None]))
AT_CLIENTS = tff.FederatedType(NUMBERS, tff.CLIENTS)
FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


def _digest(data, start=0.0):
    """Returns a number that tells the order of the data."""
    return data.reduce(tf.constant(start), lambda d, x: d * 3 % 1009 + x[0])


_first = tff.tensorflow.computation(lambda data: _digest(data), NUMBERS)
_second = tff.tensorflow.computation(lambda data: _digest(data, 1.0), NUMBERS)
_with_number = tff.tensorflow.computation(
    lambda data, x: _digest(data) + 0 * x, NUMBERS, np.float32
)


def _shuffled(seed=1):
    numbers = tf.data.Dataset.from_tensor_slices(np.arange(9, dtype=np.float32))
    return numbers.shuffle(9, seed=seed).batch(1)


@tff.federated_computation(AT_CLIENTS)
def _in_one_phase(data):
    return tff.federated_map(_first, data), tff.federated_map(_second, data)


@tff.federated_computation(AT_CLIENTS)
def _in_two_phases(data):
    orders = tff.federated_map(_first, data)
    total = tff.federated_broadcast(tff.federated_sum(orders))
    return orders, tff.federated_map(_with_number, (data, total))


@pytest.mark.parametrize("computation", [_in_one_phase, _in_two_phases])
def test_a_shuffle_starts_over_in_every_computation(computation, local, native):
    data = [_shuffled(seed) for seed in range(1, 7)]
    assert_same(call(local, computation, data), call(native, computation, data))


def test_a_shuffle_that_a_function_has_captured_starts_over(local):
    def two_epochs():
        once = _shuffled()
        return tf.data.Dataset.range(2).flat_map(lambda _: once)

    data = two_epochs()
    # Of a new dataset, that nothing has read from.
    expected = 0.0
    for (number,) in two_epochs().as_numpy_iterator():
        expected = expected * 3 % 1009 + number
    for _ in range(2):
        assert call(local, _in_one_phase, [data])[0] == [expected]


@tff.federated_computation(
    tff.FederatedType(NUMBERS, tff.CLIENTS, all_equal=True), FLOATS
)
def _all_equal(data, numbers):
    return tff.federated_map(_with_number, (data, numbers))


@tff.federated_computation(tff.FederatedType(NUMBERS, tff.SERVER), FLOATS)
def _broadcast(data, numbers):
    shared = tff.federated_broadcast(data)
    return tff.federated_map(_with_number, (shared, numbers))


@pytest.mark.parametrize("computation", [_all_equal, _broadcast])
def test_clients_that_share_a_shuffle_have_one_order(computation, local, native):
    data, numbers = _shuffled(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    expected = call(native, computation, data, numbers)
    assert len(set(map(float, expected))) == 1
    for _ in range(2):
        assert_same(call(local, computation, data, numbers), expected)


@pytest.mark.conformance
def test_both_exchanges_of_mime_have_one_order(local, native):
    process = algorithms.build_mime(models.softmax_regression, 0.3)
    data = [
        tf.data.Dataset.from_tensor_slices(arrays).shuffle(100, seed=k).batch(2)
        for k, arrays in enumerate(models.client_arrays([12] * 4), 1)
    ]
    state = call(local, process.initialize)
    output = call(local, process.next, state, data)
    expected = call(native, process.next, state, data)
    assert_same(
        output.state.global_model_weights,
        expected.state.global_model_weights,
        rtol=1e-5,
        atol=1e-6,
    )
