"""Clients trained many at a time: who steps with whom, and when it is done at all."""

import collections
import gc

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import models
from tests.execution.local.support import assert_same, call
from tff_drift import algorithms, execution, layers
from tff_drift.execution.local import batches, cohorts, stacking, turns, whole

slices = tf.data.Dataset.from_tensor_slices


def _batches(sizes):
    return batches.Batches([tf.zeros([size, 2])] for size in sizes)


def test_batches_know_how_many_of_a_shape_follow_each_other():
    own = _batches([4, 4, 2, 4])
    assert own.run_lengths == [2, 1, 1, 1]
    assert own.shapes == [((size, 2),) for size in (4, 4, 2, 4)]
    assert own.num_bytes == [32, 32, 16, 32]
    assert len(own) == 4


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=1, max_size=6))
def test_turns_take_every_batch_once_in_its_clients_order(sizes):
    own = list(map(_batches, sizes))
    states = turns._States(len(own), [])
    seen = [[] for _ in own]
    for turn in turns._turns(own, states):
        assert len(set(turn.clients)) == len(turn.clients)
        shapes = set()
        for client in turn.clients:
            first = turn.positions[client]
            taken = range(first, first + turn.num_steps)
            shapes.update(own[client].shapes[position] for position in taken)
            seen[client].extend(taken)
        assert len(shapes) == 1
    assert seen == [list(range(len(client))) for client in own]


def test_clients_of_equal_sizes_take_all_their_steps_together():
    own = [_batches([4, 4, 2]) for _ in range(5)]
    taken = list(turns._turns(own, turns._States(5, [])))
    assert [turn.clients for turn in taken] == [list(range(5))] * 2
    assert [turn.num_steps for turn in taken] == [2, 1]


def test_the_batches_of_a_turn_take_a_limited_memory(monkeypatch):
    # Of two clients, two batches of 32 bytes each.
    monkeypatch.setattr(turns, "_ELEMENT_BYTES", 130)
    own = [_batches([4] * 5) for _ in range(2)]
    taken = turns._turns(own, turns._States(2, []))
    assert [turn.num_steps for turn in taken] == [2, 2, 1]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_states_of_changing_groups_stay_with_their_clients(data):
    num_clients = data.draw(st.integers(1, 6))
    expected = np.arange(num_clients, dtype=np.float32)
    states = turns._States(num_clients, [tf.constant(expected)])
    for turn in range(data.draw(st.integers(0, 6))):
        members = data.draw(st.sets(st.integers(0, num_clients - 1), min_size=1))
        group = states.in_order(sorted(members))
        (values,) = states.get(group)
        np.testing.assert_array_equal(values, expected[group])
        expected[group] = values.numpy() * 2 + turn
        states.set(group, [values * 2 + turn])
    np.testing.assert_array_equal(states.get_all()[0], expected)


class _Spy:
    """Notes how many clients take each step of the vectorized computations."""

    def __init__(self, monkeypatch):
        self.stacks = []
        take_steps = turns.VectorizedClient.take_steps
        run = turns.VectorizedClient.run

        def noting(client, loop, num_steps, state, *args):
            self.stacks.extend([int(state[0].shape[0])] * num_steps)
            return take_steps(client, loop, num_steps, state, *args)

        def noting_run(client, inputs, num_clients, num_steps, elements):
            self.stacks.extend([num_clients] * sum(num_steps))
            return run(client, inputs, num_clients, num_steps, elements)

        monkeypatch.setattr(turns.VectorizedClient, "take_steps", noting)
        monkeypatch.setattr(turns.VectorizedClient, "run", noting_run)


@pytest.fixture
def spy(monkeypatch):
    return _Spy(monkeypatch)


def _round(process, data, **options):
    context = execution.create_local_execution_context(**options)
    state = call(context, process.initialize)
    return call(context, process.next, state, data)


def test_large_cohorts_of_small_models_are_stacked_by_themselves(spy):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    data = models.datasets(models.client_arrays([8] * 20 + [5]))
    stacked = _round(process, data)
    # Twenty clients have two batches of four, the last has one of four and one of one.
    assert sorted(spy.stacks) == [1, 1, 20, 20]
    spy.stacks.clear()
    single = _round(process, data, batch_clients=False)
    assert not spy.stacks
    assert_same(stacked, single, rtol=1e-5, atol=1e-6)


def test_a_client_s_result_does_not_keep_those_of_the_others(spy):
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None, 64]))

    @tff.tensorflow.computation(data_type)
    def add_up(data):
        zero = tf.zeros([64])
        return data.reduce(zero, lambda total, batch: total + batch[0])

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(add_up, data)

    context = execution.create_local_execution_context(batch_clients=True)
    rows = call(context, of_each, [[np.full([1, 64], k, np.float32)] for k in range(8)])
    assert spy.stacks == [8]
    starts = sorted(row.ctypes.data for row in rows)
    # Rows of one stack follow each other at once.
    assert rows[0].nbytes not in np.diff(starts)


class _FakeClient:
    def __init__(self, client_bytes):
        self.client_bytes = client_bytes


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 400), st.integers(0, 4), st.integers(1, 2**28))
def test_chunks_hold_every_client_once_and_have_few_sizes(
    num_clients, num_devices, client_bytes
):
    client = _FakeClient(client_bytes)
    cohort = cohorts.Cohort(client, None, None, always=False)
    chunks = cohort.chunks(num_clients, num_devices)
    assert [client for chunk in chunks for client in chunk] == list(range(num_clients))
    assert len(chunks) >= min(num_devices, num_clients // 8)
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * client_bytes <= 2**27
        assert stacking.known_number(len(chunk)) == len(chunk)


def test_chunks_keep_to_their_memory(spy, monkeypatch):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    data = models.datasets(models.client_arrays([8] * 20))
    whole = _round(process, data)
    assert spy.stacks == [20, 20]
    spy.stacks.clear()
    monkeypatch.setattr(cohorts, "_STACK_BYTES", 1)
    chunked = _round(process, data, batch_clients=True)
    # Not more than eight.
    assert sorted(spy.stacks) == [6, 6, 7, 7, 7, 7]
    assert_same(chunked, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            models.datasets(models.client_arrays([3, 5, 6])), id="few_with_ragged_sizes"
        ),
        pytest.param(
            [
                slices(client).shuffle(8, seed=1).batch(4)
                for client in models.client_arrays([8] * 20)
            ],
            id="datasets_to_be_read_anew",
        ),
    ],
)
def test_cohorts_that_gain_nothing_are_not_stacked(spy, data):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    _round(process, data)
    assert not spy.stacks


def _convolutional():
    keras_model = tf.keras.Sequential(
        [
            tf.keras.layers.Input([models.NUM_FEATURES]),
            tf.keras.layers.Reshape([models.NUM_FEATURES, 1, 1]),
            tf.keras.layers.Conv2D(
                2, (2, 1), kernel_initializer=tf.keras.initializers.GlorotUniform(1)
            ),
            tf.keras.layers.Flatten(),
            layers.Dropout(0.3),
            tf.keras.layers.Dense(
                models.NUM_CLASSES,
                kernel_initializer=tf.keras.initializers.GlorotUniform(2),
            ),
        ]
    )
    return models.from_keras(keras_model)


def test_convolutions_and_dropout_are_stacked_if_asked_for(spy):
    process = algorithms.build_fed_avg(_convolutional, 0.3)
    data = models.datasets(models.client_arrays([8] * 20))
    single = _round(process, data)
    assert not spy.stacks
    stacked = _round(process, data, batch_clients=True)
    assert spy.stacks == [20, 20]
    assert_same(stacked, single, rtol=1e-5, atol=1e-6)


def _recurrent():
    return models.from_keras(
        models.keras_softmax_regression(
            tf.keras.layers.Reshape([models.NUM_FEATURES, 1]),
            tf.keras.layers.GRU(
                2,
                kernel_initializer=tf.keras.initializers.GlorotUniform(1),
                recurrent_initializer=tf.keras.initializers.Orthogonal(seed=2),
            ),
        )
    )


@pytest.mark.parametrize(
    ("model_fn", "loop"),
    [
        # The loop over an iterator is no `Dataset.reduce`.
        (models.softmax_regression, "DATASET_ITERATOR"),
        (_recurrent, "DATASET_REDUCE"),
    ],
)
def test_what_cannot_be_stacked_runs_one_by_one(spy, model_fn, loop):
    process = algorithms.build_fed_avg(
        model_fn, 0.3, loop_implementation=tff.learning.LoopImplementation[loop]
    )
    data = models.datasets(models.client_arrays([8, 5]))
    stacked = _round(process, data, batch_clients=True)
    assert not spy.stacks
    assert_same(stacked, _round(process, data, batch_clients=False))


def _with_dropout():
    return models.from_keras(
        models.keras_softmax_regression(
            tf.keras.layers.Dense(
                5,
                activation="relu",
                kernel_initializer=tf.keras.initializers.GlorotUniform(1),
            ),
            layers.Dropout(0.5),
        )
    )


class _WholeSpy:
    """Notes how many clients run their whole computation together."""

    def __init__(self, monkeypatch):
        self.groups = []
        run = whole.AsWhole._run_group

        def noting(client, inputs, datasets, group):
            self.groups.append(list(group))
            return run(client, inputs, datasets, group)

        monkeypatch.setattr(whole.AsWhole, "_run_group", noting)


def _epochs(sizes, epochs):
    arrays = models.client_arrays(sizes)
    return [slices(client).batch(4).repeat(epochs) for client in arrays]


def test_keep_trace_clients_of_equal_sizes_run_together(monkeypatch):
    spy = _WholeSpy(monkeypatch)
    process = algorithms.build_uga(_with_dropout, 0.1, 0.5, local_epochs=3)
    data = _epochs([8, 5, 8, 5, 3], epochs=3)
    single = _round(process, data, batch_clients=False)
    assert not spy.groups
    # In ragged cohorts as small as this one nothing is gained.
    _round(process, data)
    assert not spy.groups
    stacked = _round(process, data, batch_clients=True)
    assert spy.groups == [[0, 2], [1, 3], [4]]
    assert_same(stacked, single, rtol=1e-5, atol=1e-6)
    spy.groups.clear()
    data = _epochs([6] * 9, epochs=3)
    stacked = _round(process, data)
    assert spy.groups == [list(range(9))]
    assert_same(
        stacked, _round(process, data, batch_clients=False), rtol=1e-5, atol=1e-6
    )


def test_the_checks_of_a_computation_are_made_for_stacks_too():
    process = algorithms.build_uga(models.softmax_regression, 0.1, 0.5, local_epochs=3)
    data = _epochs([4, 4], epochs=3)
    data[1] = data[1].take(2)
    for batch_clients in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError, match="local_epochs is 3"):
            _round(process, data, batch_clients=batch_clients)


def test_clients_are_stacked_on_each_of_several_devices(spy):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    data = models.datasets(models.client_arrays([4] * 5))
    devices = ["/CPU:0", "/CPU:0"]
    stacked = _round(process, data, batch_clients=True, client_devices=devices)
    assert sorted(spy.stacks) == [2, 3]
    assert_same(stacked, _round(process, data), rtol=1e-5, atol=1e-6)


def test_a_mapping_whose_keys_are_not_in_order():
    spec = collections.OrderedDict(
        y=tf.TensorSpec([None, 1], tf.float32), x=tf.TensorSpec([None, 3], tf.float32)
    )

    def model_fn():
        keras_model = tf.keras.Sequential(
            [tf.keras.layers.Input([3]), tf.keras.layers.Dense(1)]
        )
        return tff.learning.models.from_keras_model(
            keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=spec
        )

    process = algorithms.build_fed_avg(model_fn, 0.1)
    random = np.random.default_rng(0)
    arrays = [
        collections.OrderedDict(
            y=random.random((4, 1), np.float32), x=random.random((4, 3), np.float32)
        )
        for _ in range(3)
    ]
    single = execution.create_local_execution_context(batch_clients=False)
    stacked = execution.create_local_execution_context(batch_clients=True)
    state = call(single, process.initialize)
    expected = call(single, process.next, state, [slices(a).batch(4) for a in arrays])
    for data in ([slices(a).batch(4) for a in arrays], [[a] for a in arrays]):
        output = call(stacked, process.next, state, data)
        assert_same(output, expected, rtol=1e-5, atol=1e-6)


def _bytes(num_bytes):
    return batches.Batches([[tf.zeros([num_bytes], tf.int8)]])


def test_the_cache_keeps_what_was_used_last_within_its_limit():
    cache = batches.BatchCache(limit_bytes=250)
    first, second, third = (tf.data.Dataset.range(n).batch(2) for n in (1, 2, 3))
    for dataset in (first, second):
        cache.put(dataset, _bytes(100))
    assert cache.get(first) is not None
    cache.put(third, _bytes(100))
    assert cache.get(second) is None
    assert cache.get(first) is not None
    assert cache.used_bytes == 200
    cache.put(second, _bytes(251))
    assert cache.get(second) is None


def test_the_cache_keeps_the_stacks_of_cohorts_that_come_again(monkeypatch):
    stacked = []
    stack = batches.stack_batches
    monkeypatch.setattr(
        batches,
        "stack_batches",
        lambda own, positions: stacked.append(len(own)) or stack(own, positions),
    )
    cache = batches.BatchCache(limit_bytes=1000)
    datasets = [slices([1.0 + k, 2.0]).batch(1) for k in range(3)]
    own = [
        batches.Batches([[tf.fill([1], 1.0 + k)], [tf.fill([1], 2.0)]])
        for k in range(3)
    ]
    positions = [(0, 0), (1, 0), (0, 1), (1, 1)]
    # Of no dataset, never.
    for _ in range(3):
        cache.stack(own[:2], positions)
    assert stacked == [2] * 3
    for dataset, each in zip(datasets, own):
        cache.put(dataset, each)
    stacked.clear()
    for _ in range(4):
        (result,) = cache.stack(own[:2], positions)
        np.testing.assert_array_equal(result, [[1], [2], [2], [2]])
        (other,) = cache.stack(own[1:], positions)
        np.testing.assert_array_equal(other, [[2], [3], [2], [2]])
    assert stacked == [2] * 4
    # 8 bytes of each client, and 16 of each cohort.
    assert cache.used_bytes == 3 * 8 + 2 * 16
    del datasets, dataset, each
    own.clear()
    gc.collect()
    assert cache.used_bytes == 0


def test_the_cache_forgets_datasets_that_are_gone():
    cache = batches.BatchCache(limit_bytes=1000)
    dataset = tf.data.Dataset.range(3)
    cache.put(dataset, _bytes(100))
    assert cache.used_bytes == 100
    del dataset
    gc.collect()
    assert cache.used_bytes == 0


@pytest.mark.parametrize(
    ("dataset", "repeatable"),
    [
        (slices([1.0, 2.0]).batch(1).repeat(2).take(3), True),
        (slices([1.0]).concatenate(slices([2.0])).prefetch(1), True),
        (slices([1.0, 2.0]).shuffle(2), False),
        (slices([1.0, 2.0]).shuffle(2, seed=1).batch(2), False),
        (slices([1.0]).map(lambda x: x + tf.random.uniform([])), False),
        (tf.data.Dataset.random(seed=1).take(2), False),
    ],
)
def test_only_datasets_that_give_the_same_every_time_are_kept(dataset, repeatable):
    cache = batches.BatchCache(limit_bytes=1000)
    cache.put(dataset, _bytes(1))
    assert (cache.get(dataset) is not None) == repeatable


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"batch_clients": 3}, TypeError, "batch_clients"),
        ({"dataset_cache_bytes": -1}, ValueError, "dataset_cache_bytes"),
    ],
)
def test_bad_options(options, error, names):
    with pytest.raises(error, match=names):
        execution.create_local_execution_context(**options)
