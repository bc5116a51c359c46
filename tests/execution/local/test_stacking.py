"""Clients trained many at a time: when it is done, and that it changes no result."""

import collections
import functools

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
from tff_drift.execution.local.runners.vectorized import VectorizedRunner

slices = tf.data.Dataset.from_tensor_slices


@functools.cache
def _context(options):
    # One for several rounds of a process, whose functions take long to build.
    return execution.create_local_execution_context(**dict(options))


def _round(process, data, **options):
    """Runs a round; returns its output, and what is said of how clients train."""
    context = _context(tuple(options.items()))
    state = call(context, process.initialize)
    told = training(context, process.next, state, data)
    return call(context, process.next, state, data), told


def _one_by_one(process, data):
    output, told = _round(process, data, batch_clients=False)
    assert told == ["one by one: batch_clients is False"]
    return output


def _agree(stacked, single):
    assert_same(stacked, single, rtol=1e-5, atol=1e-6)


@pytest.mark.no_smoke
def test_large_cohorts_of_small_models_are_stacked_by_themselves():
    process = models.fed_avg()
    data = models.datasets(models.client_arrays([8] * 20 + [5]))
    stacked, told = _round(process, data)
    # Twenty clients have two batches of four, the last has one of four and one of one.
    assert told == [
        "vectorized in lockstep: 41 steps come in 2 lockstep steps, at least 4 "
        "together on average, and 1 alone",
        "clients 0 to 20: 1 step of 21 clients, 1 step of 20 clients, 1 step of 1 "
        "client",
    ]
    _agree(stacked, _one_by_one(process, data))


@pytest.mark.no_smoke
def test_what_is_told_is_what_runs(monkeypatch):
    sizes = []
    run = VectorizedRunner.run

    def noting(self, inputs, group):
        sizes.append(len(group.clients))
        return run(self, inputs, group)

    monkeypatch.setattr(VectorizedRunner, "run", noting)
    data = models.datasets(models.client_arrays([8] * 10))
    process = models.fed_avg()
    _, told = _round(process, data)
    assert told[0].startswith("vectorized in lockstep")
    assert told[1:] == ["clients 0 to 9: 2 steps of 10 clients"]
    assert sizes == [10]
    _, told = _round(process, data[:2])
    assert told[0].startswith("one by one: ")
    assert sizes == [10]


def test_a_client_s_result_does_not_keep_those_of_the_others():
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None, 64]))

    @tff.tensorflow.computation(data_type)
    def add_up(data):
        zero = tf.zeros([64])
        return data.reduce(zero, lambda total, batch: total + batch[0])

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(add_up, data)

    context = execution.create_local_execution_context(batch_clients=True)
    data = [[np.full([1, 64], k, np.float32)] for k in range(8)]
    assert training(context, of_each, data)[1:] == [
        "clients 0 to 7: 1 step of 8 clients"
    ]
    rows = call(context, of_each, data)
    starts = sorted(row.ctypes.data for row in rows)
    # Rows of one stack follow each other at once.
    assert rows[0].nbytes not in np.diff(starts)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(
            models.datasets(models.client_arrays([3, 5, 6])),
            "2 steps come in 1 lockstep steps, fewer than 4 together on average, "
            "and 3 alone",
            id="few_with_ragged_sizes",
        ),
        pytest.param([], "the cohort is empty", id="nobody"),
    ],
)
def test_cohorts_that_gain_nothing_are_not_stacked(data, reason):
    process = models.fed_avg()
    assert _round(process, data)[1] == [f"one by one: {reason}"]


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
    ("model_fn", "loop", "reason"),
    tiers.first(
        [0],
        [
            # The loop over an iterator is no `Dataset.reduce`.
            (models.softmax_regression, "DATASET_ITERATOR", "dataset operation"),
            (_recurrent, "DATASET_REDUCE", "it has a loop, as recurrent layers do"),
        ],
    ),
)
def test_what_cannot_be_stacked_runs_one_by_one(model_fn, loop, reason):
    process = algorithms.build_fed_avg(
        model_fn, 0.3, loop_implementation=tff.learning.LoopImplementation[loop]
    )
    data = models.datasets(models.client_arrays([8, 5]))
    stacked, (told,) = _round(process, data, batch_clients=True)
    assert told.startswith("one by one: it cannot be vectorized: ")
    assert reason in told
    assert_same(stacked, _one_by_one(process, data))


def _epochs(sizes, epochs):
    arrays = models.client_arrays(sizes)
    return [slices(client).batch(4).repeat(epochs) for client in arrays]


@functools.cache
def _uga():
    # One for two tests: its stacks take long to build.
    return algorithms.build_uga(with_dropout, 0.1, 0.5, local_epochs=2)


@pytest.mark.parametrize(
    "sizes",
    tiers.first(
        [],
        [
            [6] * 9,
            # Short last batches, batches that few have, and no batch at all.
            [8, 5, 8, 5, 3],
            [23, 9, 4, 0, 11, 2, 16],
        ],
    ),
)
def test_keep_trace_clients_run_together(sizes):
    data = _epochs(sizes, epochs=2)
    stacked, told = _round(_uga(), data, batch_clients=True)
    assert told[0] == "vectorized in lockstep: batch_clients is True"
    _agree(stacked, _one_by_one(_uga(), data))


@pytest.mark.conformance
def test_keep_trace_clients_of_unequal_sizes_run_together_where_it_pays():
    process = _uga()
    state = call(_context(()), process.initialize)

    def told(sizes):
        return training(_context(()), process.next, state, _epochs(sizes, epochs=2))[0]

    # Ten batches in each of two epochs: ten steps there, ten to evaluate, ten back.
    assert told([8, 5, 9, 12] * 3) == (
        "one by one: 90 steps are few for the time that it takes to build the "
        "function of unequal clients that go back"
    )
    assert told([84, 80, 93, 96] * 6).startswith("vectorized in lockstep: ")


@pytest.mark.parametrize(
    ("build", "epochs"),
    tiers.first(
        [],
        [
            (
                lambda: algorithms.build_uga(
                    models.softmax_regression, 0.1, 0.5, local_epochs=1
                ),
                1,
            ),
            (
                lambda: algorithms.build_uga(
                    models.functional(models.keras_softmax_regression),
                    0.1,
                    0.5,
                    local_epochs=3,
                ),
                3,
            ),
            (
                lambda: algorithms.build_uga(
                    models.softmax_regression,
                    0.1,
                    0.5,
                    local_epochs=3,
                    gradient_clipping_norm=0.1,
                    client_weight_decay=0.1,
                ),
                3,
            ),
        ],
        ["nothing traced", "functional", "with clipping and decay"],
    ),
)
def test_keep_trace_in_all_its_forms_is_stacked(build, epochs):
    process, data = build(), _epochs([9, 7, 4, 13], epochs)
    stacked, told = _round(process, data, batch_clients=True)
    assert told[0].startswith("vectorized in lockstep: ")
    _agree(stacked, _one_by_one(process, data))


@pytest.mark.conformance
def test_the_checks_of_a_computation_are_made_for_stacks_too():
    data = _epochs([4, 4], epochs=2)
    data[1] = data[1].take(1)
    for batch_clients in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError, match="local_epochs is 2"):
            _round(_uga(), data, batch_clients=batch_clients)


def test_clients_are_stacked_on_each_of_several_devices():
    process = models.fed_avg()
    data = models.datasets(models.client_arrays([4] * 5))
    devices = ("/CPU:0", "/CPU:0")
    stacked, told = _round(process, data, batch_clients=True, client_devices=devices)
    assert told[1:] == [
        "clients 0 to 1: 1 step of 2 clients",
        "clients 2 to 4: 1 step of 3 clients",
    ]
    _agree(stacked, _one_by_one(process, data))


@pytest.mark.conformance
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
