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
        for index, (examples, own) in enumerate(zip(DATA, states, strict=True))
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


def test_sequences_of_clients_come_back_as_datasets(two, native):
    sequence = compat.SequenceType(np.int32)

    @compat.tf_computation(sequence)
    def double(values):
        return values.map(lambda value: value * 2)

    @compat.federated_computation(compat.FederatedType(sequence, compat.CLIENTS))
    def double_all(values):
        return compat.federated_map(double, values)

    # One client for two actors, and more clients than actors.
    for clients in ([[7]], [[1, 2], [3], []]):
        doubled = call(two, double_all, clients)
        assert [list(map(int, each)) for each in doubled] == [
            [2 * value for value in client] for client in clients
        ]

    @compat.tf_computation(sequence)
    def inside(values):
        pairs = values.map(lambda value: collections.OrderedDict(x=value, y=-value))
        return collections.OrderedDict(pairs=pairs, first=(values, 5))

    @compat.federated_computation(
        compat.FederatedType(sequence, compat.CLIENTS),
        compat.FederatedType(np.int32, compat.SERVER),
    )
    def inside_all(values, server):
        return compat.federated_map(inside, values), server

    ours, theirs = (
        call(context, inside_all, [[1, 2], [3]], 4) for context in (two, native)
    )
    for found, _ in (ours, theirs):
        assert [type(each) for each in found] == [collections.OrderedDict] * 2
        assert [type(each["first"]) for each in found] == [tuple] * 2
        elements = [list(each["pairs"].as_numpy_iterator()) for each in found]
        assert elements == [[{"x": 1, "y": -1}, {"x": 2, "y": -2}], [{"x": 3, "y": -3}]]
    assert ours[1] == theirs[1] == 4


def test_selected_slices_come_back_as_datasets(two):
    @compat.tf_computation(compat.TensorType(np.float32, [4]), np.int32)
    def pick(values, key):
        return tf.gather(values, key)

    @compat.federated_computation(
        compat.FederatedType(compat.TensorType(np.int32, [1]), compat.CLIENTS),
        compat.FederatedType(np.int32, compat.SERVER),
        compat.FederatedType(compat.TensorType(np.float32, [4]), compat.SERVER),
    )
    def select(keys, num_keys, values):
        return tff.federated_select(keys, num_keys, values, pick)

    selected = call(two, select, [[0], [3], [2]], 4, [1.0, 2.0, 3.0, 4.0])
    assert [list(map(float, each)) for each in selected] == [[1.0], [4.0], [3.0]]


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
