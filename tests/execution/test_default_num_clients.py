"""Computations whose argument does not say how many clients there are."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import call
from tff_drift import execution

NUMBER, CLIENTS, SERVER = 3, tff.CLIENTS, tff.SERVER
AT_CLIENTS = tff.FederatedType(np.int32, CLIENTS)


_OURS = {
    "default": execution.create_local_execution_context,
    "vectorized": lambda **options: execution.create_local_execution_context(
        batch_clients=True, **options
    ),
    "one by one": lambda **options: execution.create_local_execution_context(
        batch_clients=False, functionalize_clients=False, **options
    ),
    "native": execution.create_native_execution_context,
}


@pytest.fixture(scope="module", params=list(_OURS))
def ours(request, worker):
    return _OURS[request.param](default_num_clients=NUMBER)


@tff.tensorflow.computation
def half():
    return np.float32(0.5)


@tff.tensorflow.computation(np.int32)
def square(x):
    return x * x


@tff.tensorflow.computation
def draw():
    return tf.random.uniform([])


@tff.federated_computation
def smallest():
    return tff.federated_min(tff.federated_eval(half, CLIENTS))


@tff.federated_computation
def at_clients():
    return tff.federated_eval(half, CLIENTS)


@tff.federated_computation
def value_at_clients():
    return tff.federated_sum(tff.federated_value(7, CLIENTS))


@tff.federated_computation(tff.FederatedType(np.int32, SERVER))
def broadcast(x):
    return tff.federated_sum(tff.federated_map(square, tff.federated_broadcast(x)))


@tff.federated_computation(tff.FederatedType(np.int32, CLIENTS, all_equal=True))
def equal_at_clients(x):
    return tff.federated_sum(x)


@tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.int32, [4]), SERVER),
)
def selected(rows):
    @tff.tensorflow.computation
    def keys():
        return tf.constant([1, 2])

    @tff.tensorflow.computation(tff.TensorType(np.int32, [4]), np.int32)
    def row(rows, key):
        return tf.gather(rows, key)

    @tff.tensorflow.computation(tff.SequenceType(np.int32))
    def total(chosen):
        return chosen.reduce(0, lambda total, each: total + each)

    last = tff.federated_value(4, SERVER)
    of_clients = tff.federated_select(
        tff.federated_eval(keys, CLIENTS), last, rows, row
    )
    return tff.federated_sum(tff.federated_map(total, of_clients))


@tff.federated_computation(AT_CLIENTS)
def total(x):
    return tff.federated_sum(x)


@pytest.mark.parametrize(
    ("computation", "arguments", "expected"),
    [
        (smallest, [], 0.5),
        (at_clients, [], [0.5] * NUMBER),
        (value_at_clients, [], 7 * NUMBER),
        (broadcast, [2], 4 * NUMBER),
        (equal_at_clients, [2], 2 * NUMBER),
        (selected, [[1, 10, 100, 1000]], 110 * NUMBER),
        # Arguments that say how many there are.
        (total, [[5, 6]], 11),
        (total, [[]], 0),
    ],
)
def test_there_are_so_many_clients_in_tffs_worker_and_here(
    computation, arguments, expected, ours
):
    assert call(ours, computation, *arguments) == expected


def test_each_of_them_draws_its_own_numbers(ours):
    @tff.federated_computation
    def draws():
        return tff.federated_eval(draw, CLIENTS)

    assert len(set(call(ours, draws))) == NUMBER


def test_without_the_option_there_are_none():
    context = execution.create_local_execution_context()
    assert call(context, at_clients) == []
    assert call(context, broadcast, 2) == 0


def test_explain_counts_them():
    context = execution.create_local_execution_context(default_num_clients=NUMBER)
    assert f"{NUMBER} clients" in context.explain(smallest)


@pytest.mark.parametrize(
    "create",
    [
        execution.create_local_execution_context,
        execution.create_async_local_execution_context,
        execution.create_native_execution_context,
    ],
)
def test_bad_numbers_are_refused(create):
    with pytest.raises(ValueError, match="default_num_clients must be at least 0"):
        create(default_num_clients=-1)
    with pytest.raises(TypeError, match="default_num_clients must be an integer"):
        create(default_num_clients=2.5)


def test_tffs_names_of_options_are_told_ours():
    with pytest.raises(TypeError, match="Did you mean max_concurrent_clients"):
        execution.create_local_execution_context(max_concurrent_computation_calls=2)
