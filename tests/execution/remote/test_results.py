"""What workers on several machines compute is what TFF's native context computes."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.local.support import assert_same, call, containers
from tests.execution.remote.conftest import addresses_of
from tff_drift import aggregators, algorithms, compat, execution

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
def test_learning_processes(three, native, name):
    process = PROCESSES[name]()
    ours = theirs = call(native, process.initialize)
    assert_same(call(three, process.initialize), theirs)
    for _ in range(2):
        output, expected = (
            call(context, process.next, state, DATA)
            for context, state in ((three, ours), (native, theirs))
        )
        # Sums of floats are added up in another order.
        assert_same(output, expected, rtol=1e-4, atol=1e-6)
        assert containers(output) == containers(expected)
        ours, theirs = output.state, expected.state


def test_states_of_clients_come_back_in_their_order(three, native):
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
        call(context, process.next, state, clients) for context in (three, native)
    )
    assert_same(output, expected, rtol=1e-4, atol=1e-6)
    collected = output.metrics[algorithms.CLIENT_STATES]
    assert list(collected["index"]) == list(range(len(DATA)))


def test_evaluation(three, native):
    evaluation = tff.learning.algorithms.build_fed_eval(models.softmax_regression)
    state = call(native, evaluation.initialize)
    output, expected = (
        call(context, evaluation.next, state, DATA) for context in (three, native)
    )
    assert_same(output, expected, rtol=1e-5)


def test_values_of_clients_keep_their_order(three):
    @compat.tf_computation(np.int32, np.int32)
    def add(one, two):
        return one + two

    @compat.federated_computation(INTS)
    def add_total(values):
        total = compat.federated_broadcast(compat.federated_sum(values))
        return compat.federated_map(add, (values, total)), compat.federated_sum(values)

    assert call(three, add_total, [1, 2, 3, 4, 5, 6, 7]) == (
        [29, 30, 31, 32, 33, 34, 35],
        28,
    )
    # Fewer clients than workers, and none.
    assert call(three, add_total, [5]) == ([10], 5)
    assert call(three, add_total, []) == ([], 0)


def test_what_has_no_clients_runs_here(start_workers):
    (worker,) = start_workers(1)
    context = execution.create_remote_execution_context(
        addresses_of([worker]), connect_seconds=5, max_retries=0
    )
    add = compat.tf_computation(lambda value: value + 1, np.int32)
    total = compat.federated_computation(compat.federated_sum, INTS)
    assert call(context, total, [1, 2]) == 3
    context.close()
    worker.stop()
    assert call(context, add, 1) == 2
    with pytest.raises(execution.WorkerError, match="No worker is left"):
        call(context, total, [1, 2])


def test_aggregations_that_depend_on_each_other_run_on_one_worker(three, caplog):
    @compat.tf_computation(np.int32, np.int32)
    def multiply(one, two):
        return one * two

    @compat.federated_computation(INTS)
    def weighted(values):
        total = compat.federated_broadcast(compat.federated_sum(values))
        return compat.federated_sum(compat.federated_map(multiply, (values, total)))

    # (1 + 2 + 3 + 4) * (1 + 2 + 3 + 4)
    assert call(three, weighted, [1, 2, 3, 4]) == 100
    assert "cannot be spread over workers" in caplog.text


def test_secure_aggregation_is_refused(three):
    @compat.federated_computation(INTS)
    def total(values):
        return tff.federated_secure_sum_bitwidth(values, 8)

    with pytest.raises(NotImplementedError, match="secure aggregation"):
        call(three, total, [1, 2, 3])


def test_a_mistake_in_the_computation_is_no_loss_of_a_worker(three):
    @compat.tf_computation(np.int32)
    def refuse(value):
        with tf.control_dependencies([tf.debugging.assert_less(value, 2)]):
            return tf.identity(value)

    @compat.federated_computation(INTS)
    def total(values):
        return compat.federated_sum(compat.federated_map(refuse, values))

    with pytest.raises(Exception, match="assertion failed"):
        call(three, total, [0, 1, 2])
    assert call(three, total, [0, 1, 1]) == 2
