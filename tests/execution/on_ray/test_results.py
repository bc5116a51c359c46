"""What actors on Ray compute is what TFF's native context computes."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.local.support import assert_same, call, containers
from tff_drift import aggregators, algorithms, compat

ARRAYS = models.client_arrays([10, 7, 3, 5, 6], seed=3)
DATA = models.datasets(ARRAYS)
INTS = compat.FederatedType(np.int32, compat.CLIENTS)


def _clipped():
    return algorithms.build_fed_adam(
        models.softmax_regression,
        0.1,
        0.05,
        model_aggregator=aggregators.adaptive_clipping_factory(initial_clipping_norm=1),
    )


PROCESSES = {
    "stock": lambda: tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, tff.learning.optimizers.build_sgdm(0.1)
    ),
    "clipped_fed_adam": _clipped,
}


@pytest.mark.parametrize("name", PROCESSES)
def test_learning_processes(two, native, name):
    process = PROCESSES[name]()
    ours = theirs = call(native, process.initialize)
    assert_same(call(two, process.initialize), theirs)
    for _ in range(2):
        output, expected = (
            call(context, process.next, state, DATA)
            for context, state in ((two, ours), (native, theirs))
        )
        # Sums of floats are added up in another order.
        assert_same(output, expected, rtol=1e-4, atol=1e-6)
        assert containers(output) == containers(expected)
        ours, theirs = output.state, expected.state


def test_states_of_clients_come_back_in_their_order(two, native):
    process = algorithms.build_scaffold(
        models.softmax_regression, 0.1, num_clients=len(DATA)
    )
    state = call(native, process.initialize)
    states = [
        tf.nest.map_structure(
            lambda value, k=k: np.full_like(value, 0.01 * k),
            process.initial_client_state,
        )
        for k in range(len(DATA))
    ]
    clients = [
        collections.OrderedDict(examples=examples, state=own, index=index)
        for index, (examples, own) in enumerate(zip(DATA, states))
    ]
    output, expected = (
        call(context, process.next, state, clients) for context in (two, native)
    )
    assert_same(output, expected, rtol=1e-4, atol=1e-6)
    collected = output.metrics[algorithms.CLIENT_STATES]
    assert list(collected["index"]) == list(range(len(DATA)))


def test_evaluation(two, native):
    evaluation = tff.learning.algorithms.build_fed_eval(models.softmax_regression)
    state = call(native, evaluation.initialize)
    output, expected = (
        call(context, evaluation.next, state, DATA) for context in (two, native)
    )
    assert_same(output, expected, rtol=1e-5)


def test_values_of_clients_keep_their_order(two):
    @compat.tf_computation(np.int32, np.int32)
    def add(one, two):
        return one + two

    @compat.federated_computation(INTS)
    def add_total(values):
        total = compat.federated_broadcast(compat.federated_sum(values))
        return compat.federated_map(add, (values, total)), compat.federated_sum(values)

    assert call(two, add_total, [1, 2, 3, 4, 5, 6, 7]) == (
        [29, 30, 31, 32, 33, 34, 35],
        28,
    )
    # Fewer clients than actors, and none.
    assert call(two, add_total, [5]) == ([10], 5)
    assert call(two, add_total, []) == ([], 0)


def test_aggregations_that_depend_on_each_other_run_on_one_actor(two, caplog):
    @compat.tf_computation(np.int32, np.int32)
    def multiply(one, two):
        return one * two

    @compat.federated_computation(INTS)
    def weighted(values):
        total = compat.federated_broadcast(compat.federated_sum(values))
        return compat.federated_sum(compat.federated_map(multiply, (values, total)))

    # (1 + 2 + 3 + 4) * (1 + 2 + 3 + 4)
    assert call(two, weighted, [1, 2, 3, 4]) == 100
    assert "cannot be spread over actors" in caplog.text


def test_secure_sums_are_simulated_on_one_actor(two, caplog):
    @compat.federated_computation(INTS)
    def total(values):
        return tff.federated_secure_sum_bitwidth(values, 8)

    assert call(two, total, [1, 2, 3]) == 6
    assert "runs on one actor" in caplog.text


def test_a_mistake_in_the_computation_is_no_loss_of_an_actor(two):
    @compat.tf_computation(np.int32)
    def refuse(value):
        with tf.control_dependencies([tf.debugging.assert_less(value, 2)]):
            return tf.identity(value)

    @compat.federated_computation(INTS)
    def total(values):
        return compat.federated_sum(compat.federated_map(refuse, values))

    with pytest.raises(Exception, match="assertion failed"):
        call(two, total, [0, 1, 2])
    assert call(two, total, [0, 1, 1]) == 2
