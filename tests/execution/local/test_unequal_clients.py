"""Clients of unequal sizes, stacked: each trains on exactly its own batches."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tests.execution.local.support import (
    assert_same,
    call,
    training,
    with_dropout,
)
from tff_drift import algorithms, execution
from tff_drift.execution.local.runners import functions

pytestmark = pytest.mark.no_smoke

slices = tf.data.Dataset.from_tensor_slices
# In batches of four: several, exactly one, a short one alone, a single example, none.
SIZES = [22, 4, 9, 1, 0, 17, 3, 8, 8, 30, 5, 12]


@pytest.fixture(name="stacked")
def _stacked(local_contexts):
    return local_contexts["batched"]


@pytest.fixture(name="single")
def _single(one_by_one):
    return one_by_one


def _client_data(process, datasets):
    if not isinstance(process, algorithms.StatefulLearningProcess):
        return datasets
    return [
        {
            "examples": dataset,
            "state": tf.nest.map_structure(
                lambda array, k=k: np.full_like(array, 0.1 * k),
                process.initial_client_state,
            ),
            "index": np.int32(k),
        }
        for k, dataset in enumerate(datasets)
    ]


def _agree(process, data, stacked, single):
    state = call(stacked, process.initialize)
    told = training(stacked, process.next, state, data)
    assert told[0].startswith("vectorized in lockstep: ")
    assert training(single, process.next, state, data)[0].startswith("one by one: ")
    ours = call(stacked, process.next, state, data)
    expected = call(single, process.next, state, data)
    assert_same(ours, expected, rtol=1e-5, atol=1e-6)
    return ours


def _of_tff(optimizer):
    return tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, client_optimizer_fn=optimizer
    )


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    "build",
    tiers.first(
        ["scaffold"],
        [
            lambda: algorithms.build_fed_avg(with_dropout, 0.3),
            lambda: _of_tff(tff.learning.optimizers.build_sgdm(0.3, momentum=0.9)),
            lambda: _of_tff(tff.learning.optimizers.build_adam(0.1)),
            lambda: algorithms.build_scaffold(models.softmax_regression, 0.3, 20),
            lambda: algorithms.build_adabest(models.softmax_regression, 0.3),
        ],
        ["dropout", "momentum", "adam", "scaffold", "adabest"],
    ),
)
def test_unequal_clients_are_trained_as_one_by_one(build, stacked, single):
    process = build()
    datasets = models.datasets(models.client_arrays(SIZES))
    output = _agree(process, _client_data(process, datasets), stacked, single)
    trained = output.metrics["client_work"]["train"]
    assert trained["num_examples"] == sum(SIZES)


def test_one_function_serves_all_groups_of_cohorts(monkeypatch):
    built = []
    concrete = functions.concrete

    def noting(*args):
        built.append(args)
        return concrete(*args)

    monkeypatch.setattr(functions, "concrete", noting)
    process = models.fed_avg()
    limits = execution.Limits(many_sorted_clients=16)
    context = execution.create_local_execution_context(limits=limits)
    state = call(context, process.initialize)
    # Groups of 12, 12 and 11 clients, the first of whom never wait; then 12, 12 and 10.
    for sizes in ([20] * 12 + [9, 10] * 11 + [5], [13, 9] * 17):
        data = models.datasets(models.client_arrays(sizes))
        told = training(context, process.next, state, data)
        assert told[0].startswith("vectorized in lockstep: ")
        assert len(told[1:]) == 3
    assert len(built) == 1


@pytest.mark.conformance
def test_epochs_that_end_with_a_short_batch(stacked, single):
    process = models.fed_avg()
    arrays = models.client_arrays(SIZES)
    data = [slices(client).batch(4).repeat(3) for client in arrays]
    output = _agree(process, data, stacked, single)
    assert output.metrics["client_work"]["train"]["num_examples"] == 3 * sum(SIZES)


def test_a_diverged_client_is_rejected_alone(stacked, single):
    process = models.fed_avg()
    arrays = models.client_arrays(SIZES)
    # The client of the fewest full batches, which is masked longest, and the longest.
    for client in (1, 9):
        arrays[client][0][:] = np.inf
    output = _agree(process, models.datasets(arrays), stacked, single)
    weights = process.get_model_weights(output.state).trainable
    assert all(np.isfinite(array).all() for array in weights)


def test_a_seeded_shuffle_gives_the_order_that_it_gives_one_by_one(stacked, single):
    process = models.fed_avg()
    data = [
        slices(client)
        .map(lambda x, y: (2 * x, y))
        .shuffle(30, seed=k)
        .repeat(2)
        .batch(4)
        .take(9)
        for k, client in enumerate(models.client_arrays(SIZES))
    ]
    _agree(process, data, stacked, single)


@pytest.mark.conformance
def test_shuffled_datasets_are_stacked_by_themselves():
    process = models.fed_avg()
    data = [
        slices(client).shuffle(8).batch(4) for client in models.client_arrays([8] * 20)
    ]
    context = execution.create_local_execution_context()
    state = call(context, process.initialize)
    assert training(context, process.next, state, data)[1:] == [
        "clients 0 to 19: 2 steps of 20 clients"
    ]
    output = call(context, process.next, state, data)
    assert output.metrics["client_work"]["train"]["num_examples"] == 160


def test_values_at_clients_and_their_order_survive_sorting(stacked, single):
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None]))

    @tff.tensorflow.computation(data_type)
    def add_up(data):
        return data.reduce(0.0, lambda total, batch: total + tf.reduce_sum(batch))

    @tff.tensorflow.computation(np.float32, np.float32)
    def fold(total, value):
        return total * 2.0 + value

    @tff.tensorflow.computation(np.float32, np.float32)
    def merge(one, other):
        return one + other

    @tff.tensorflow.computation(np.float32)
    def report(total):
        return total

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        sums = tff.federated_map(add_up, data)
        folded = tff.federated_aggregate(sums, np.float32(0), fold, merge, report)
        return sums, folded

    data = [
        [np.full([2], 1.0 + k, np.float32)] * (k % 3) + [np.full([1], k, np.float32)]
        for k in range(7)
    ]
    assert training(stacked, of_each, data)[0].startswith("vectorized")
    assert_same(call(stacked, of_each, data), call(single, of_each, data))


def test_steps_that_check_values_never_wait():
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None]))

    @tff.tensorflow.computation(data_type)
    def add_up(data):
        def step(total, batch):
            with tf.control_dependencies([tf.debugging.Assert(total < 3.0, [total])]):
                return total + tf.reduce_sum(batch)

        return data.reduce(0.0, step)

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(add_up, data)

    context = execution.create_local_execution_context(batch_clients=True)
    equal = [[np.ones([1], np.float32)] * 2] * 2
    assert training(context, of_each, equal)[0].startswith("vectorized")
    assert training(context, of_each, [equal[0], equal[1] * 2]) == [
        "one by one: its steps check values, and clients of other sizes would be masked"
    ]


def test_nobody_is_checked_who_stands_in_for_nobody(stacked, single):
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None]))

    @tff.tensorflow.computation(data_type)
    def add_up(data):
        total = data.reduce(0.0, lambda total, batch: total + tf.reduce_sum(batch))
        with tf.control_dependencies([tf.debugging.assert_positive(total)]):
            return tf.identity(total)

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(add_up, data)

    # Nine clients are few enough for places to be left; the last takes its only step
    # alone.
    data = [[np.ones([2], np.float32)]] * 8 + [[np.ones([1], np.float32)]]
    assert training(stacked, of_each, data)[0].startswith("vectorized")
    assert call(stacked, of_each, data) == call(single, of_each, data) == [2] * 8 + [1]


@pytest.mark.conformance
def test_batches_that_take_too_much_ram_are_not_read(single):
    process = models.fed_avg()
    data = [
        slices(client).shuffle(8, seed=k).batch(4)
        for k, client in enumerate(models.client_arrays([8] * 20))
    ]
    limits = execution.Limits(read_bytes=0)
    context = execution.create_local_execution_context(limits=limits)
    state = call(context, process.initialize)
    assert training(context, process.next, state, data) == [
        "one by one: the batches of the cohort take more than 0 GiB"
    ]
    ours = call(context, process.next, state, data)
    assert_same(ours, call(single, process.next, state, data))


def test_datasets_that_vary_are_not_read_once_for_two_passes(stacked):
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None]))

    @tff.tensorflow.computation(data_type)
    def last_of_both(data):
        first = data.reduce(0.0, lambda _, batch: batch[0])
        return first, data.reduce(0.0, lambda _, batch: batch[0])

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(last_of_both, data)

    data = [slices(np.arange(9, dtype=np.float32)).batch(1) for _ in range(3)]
    assert training(stacked, of_each, data)[0].startswith("vectorized")
    shuffled = [dataset.shuffle(9, seed=1) for dataset in data]
    assert training(stacked, of_each, shuffled) == [
        "one by one: datasets that vary are passed over several times"
    ]


@pytest.mark.conformance
def test_groups_of_other_sizes_build_nothing_anew(monkeypatch):
    built = []
    concrete = functions.concrete

    def noting(*args):
        built.append(1)
        return concrete(*args)

    monkeypatch.setattr(functions, "concrete", noting)
    # Another has what earlier tests have built.
    context = execution.create_local_execution_context(batch_clients=True)
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    state = call(context, process.initialize)
    for number in (12, 11, 12, 11):
        data = models.datasets(models.client_arrays(SIZES[:number]))
        call(context, process.next, state, data)
    assert len(built) == 1


@pytest.mark.conformance
def test_a_group_that_comes_again_as_a_cohort_of_its_own(stacked, single):
    # The second of two groups has the first one's 52 places, and 50 if it is alone.
    process = models.fed_avg()
    data = models.datasets(models.client_arrays([12] * 52 + [4] * 49))
    state = call(stacked, process.initialize)
    assert training(stacked, process.next, state, data)[1:] == [
        "clients 0 to 51: 3 steps of 52 clients",
        "clients 52 to 100: 1 step of 49 clients",
    ]
    # What is put together for a cohort is kept from its second round on.
    for _ in range(2):
        call(stacked, process.next, state, data)
    _agree(process, data[52:], stacked, single)
