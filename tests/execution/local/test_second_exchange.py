"""A second exchange in a round works on the stacks that vectorized clients left."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.local.support import assert_same, call
from tff_drift import algorithms
from tff_drift.execution.local.runners.clients import StackedClients

SIZES = [22, 4, 9, 1, 0, 17, 3, 8, 8, 30, 5, 12]
VECTOR = tff.TensorType(np.float32, [3])


@tff.tensorflow.computation(tff.SequenceType(tff.TensorType(np.float32, [None])))
def trained(data):
    """Returns a vector of some client's own, which many steps have made."""
    zeros = tf.zeros([3])
    return data.reduce(zeros, lambda y, x: 0.5 * y + tf.reduce_sum(x))


def _process(function, accumulate=None):
    """A round of two exchanges, which returns what clients have in the end, too."""

    @tff.tensorflow.computation(VECTOR, VECTOR)
    def larger(total, y):
        return (accumulate or tf.add)(total, y)

    zeros = tff.tensorflow.computation(lambda: tf.zeros([3]))
    same = tff.tensorflow.computation(lambda y: y, VECTOR)

    @tff.federated_computation(
        tff.FederatedType(trained.type_signature.parameter, tff.CLIENTS)
    )
    def run(data):
        y = tff.federated_map(trained, data)
        mean = tff.federated_mean(y)
        moved = tff.federated_map(function, (y, tff.federated_broadcast(mean)))
        total = tff.federated_aggregate(moved, zeros(), larger, larger, same)
        return total, tff.federated_sum(y), moved

    return run


def _moved(function):
    return tff.tensorflow.computation(function, VECTOR, VECTOR)


def _data():
    arrays = [np.arange(size, dtype=np.float32) / 8 for size in SIZES]
    return [tf.data.Dataset.from_tensor_slices(array).batch(4) for array in arrays]


@pytest.fixture(name="groups")
def _groups(monkeypatch):
    """The groups of clients that run on stacks."""
    run, seen = StackedClients.run, []

    def watched(self, values, group):
        seen.append(group.clients)
        return run(self, values, group)

    monkeypatch.setattr(StackedClients, "run", watched)
    return seen


@pytest.mark.parametrize("accumulate", [None, tf.maximum], ids=["sum", "in turn"])
def test_it_runs_on_stacks_as_one_by_one(accumulate, groups, local_contexts, native):
    process = _process(_moved(lambda y, mean: y * mean - 1), accumulate)
    expected = call(native, process, _data())
    actual = call(local_contexts["batched"], process, _data())
    clients = sorted(client for group in groups for client in group)
    assert clients == list(range(len(SIZES)))
    assert len(groups) < len(SIZES)
    assert_same(actual, expected, rtol=1e-6)
    told = local_contexts["batched"].explain(process, _data())
    assert "vectorized if what they take was vectorized before" in told
    groups.clear()
    assert_same(call(local_contexts["plain"], process, _data()), expected, rtol=1e-6)
    assert not groups


def test_clients_that_trained_one_by_one_go_on_so(groups, fast, native):
    process = _process(_moved(lambda y, mean: y - mean))
    data = _data()[:2]
    assert_same(call(fast, process, data), call(native, process, data), rtol=1e-6)
    assert not groups


def test_what_is_in_no_stack_is_taken_one_by_one(groups, local_contexts, native):
    moved = tff.tensorflow.computation(
        lambda y, mean, own: y * mean - own, VECTOR, VECTOR, VECTOR
    )

    @tff.federated_computation(
        tff.FederatedType(trained.type_signature.parameter, tff.CLIENTS),
        tff.FederatedType(VECTOR, tff.CLIENTS),
    )
    def run(data, own):
        y = tff.federated_map(trained, data)
        mean = tff.federated_broadcast(tff.federated_mean(y))
        return tff.federated_sum(tff.federated_map(moved, (y, mean, own)))

    own = [np.full(3, k, np.float32) for k in range(len(SIZES))]
    actual = call(local_contexts["batched"], run, _data(), own)
    assert_same(actual, call(native, run, _data(), own), rtol=1e-6)
    assert not groups


def test_stacks_of_other_groups_are_taken_one_by_one(groups, local_contexts, native):
    start = tff.tensorflow.computation(
        lambda data, total: data.reduce(total, lambda y, x: 0.5 * y + x[0]),
        trained.type_signature.parameter,
        VECTOR,
    )
    moved = tff.tensorflow.computation(
        lambda y, z, total: y * 3 + z * total / 64, VECTOR, VECTOR, VECTOR
    )

    @tff.federated_computation(
        tff.FederatedType(trained.type_signature.parameter, tff.CLIENTS),
        tff.FederatedType(trained.type_signature.parameter, tff.CLIENTS),
    )
    def run(data, others):
        y = tff.federated_map(trained, data)
        total = tff.federated_broadcast(tff.federated_sum(y))
        z = tff.federated_map(start, (others, total))
        total = tff.federated_broadcast(tff.federated_sum(z))
        return tff.federated_sum(tff.federated_map(moved, (y, z, total)))

    data, others = _data(), _data()[::-1]
    actual = call(local_contexts["batched"], run, data, others)
    assert_same(actual, call(native, run, data, others), rtol=1e-6)
    assert not groups


def test_what_cannot_be_vectorized_runs_one_by_one(groups, local_contexts, native):
    def function(y, mean):
        return tf.linalg.svd([y, mean], compute_uv=False)[0] + y

    process = _process(_moved(function))
    actual = call(local_contexts["batched"], process, _data())
    assert_same(actual, call(native, process, _data()), rtol=1e-5)
    assert not groups


def test_a_check_that_fails_is_told_as_one_by_one(local_contexts):
    def checked(y, mean):
        with tf.control_dependencies([tf.debugging.assert_less(y, 9.0, "too far")]):
            return y + mean

    process = _process(_moved(checked))
    with pytest.raises(tf.errors.InvalidArgumentError, match="too far"):
        call(local_contexts["batched"], process, _data())


@pytest.mark.conformance
def test_fed_nova_multiplies_its_updates_in_stacks(groups, local_contexts, one_by_one):
    process = algorithms.build_fed_nova(models.softmax_regression, 0.3)
    data = models.datasets(models.client_arrays(SIZES))
    state = call(one_by_one, process.initialize)
    actual = call(local_contexts["batched"], process.next, state, data)
    assert groups
    expected = call(one_by_one, process.next, state, data)
    assert_same(actual, expected, rtol=1e-5, atol=1e-6)
