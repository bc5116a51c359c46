"""Batches that are made while a round runs, in the place of lists made before it."""

import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tests import models, tiers
from tests.execution.local.support import assert_same, call, training
from tff_drift import compat, simulation
from tff_drift.execution.batches_on_demand import BatchesOnDemand
from tff_drift.execution.local.data.client_data import BatchShapes, ClientData

pytestmark = pytest.mark.no_smoke

# More than three groups of 64, the largest.
SIZES = [9, 4, 12, 1, 8, 8, 5, 3, 10] * 22


@pytest.fixture(scope="module")
def process():
    return models.fed_avg()


def _train(sizes, **options):
    arrays = models.client_arrays(sizes)
    clients = {f"client_{number}": each for number, each in enumerate(arrays)}
    return simulation.ClientDatasets.from_arrays(clients, batch_size=4, **options)


@pytest.fixture(scope="module")
def train():
    return _train(SIZES, epochs=2)


@pytest.fixture
def clients(mode, train):
    """Where clients train one after the other, a few of them in place of groups."""
    return train.subset(train.client_ids[:18]) if mode == "plain" else train


def _cohort(train, make=None):
    def on_demand(client_id):
        def batches():
            made = train.training_batches(client_id, 1)
            made = made if make is None else make(client_id, made)
            return [(batch, None) for batch in made]

        return BatchesOnDemand(
            train.batch_sizes(client_id), train.element_spec, batches
        )

    return [on_demand(client_id) for client_id in train.client_ids]


@pytest.mark.parametrize("mode", tiers.first([1], ["plain", "fast"]))
def test_results_are_those_of_lists_bit_for_bit(mode, process, clients, local_contexts):
    local = local_contexts[mode]
    lists = [list(clients.training_batches(each, 1)) for each in clients.client_ids]
    state = call(local, process.initialize)
    on_demand = _cohort(clients)
    told = training(local, process.next, state, on_demand)
    assert told == training(local, process.next, state, lists)
    output = call(local, process.next, state, on_demand)
    assert_same(output, call(local, process.next, state, lists))


@pytest.mark.conformance
@pytest.mark.parametrize(("mode", "most"), [("plain", 1), ("fast", 2 * 64)])
def test_batches_are_freed_when_their_clients_are_through(
    mode, most, process, clients, local_contexts
):
    made, counts, lock = [], [], threading.Lock()

    def watched(client_id, batches):
        with lock:
            made.append(weakref.ref(batches[0][0]))
            counts.append(sum(array() is not None for array in made))
        return batches

    context = local_contexts[mode]
    state = call(context, process.initialize)
    call(context, process.next, state, _cohort(clients, watched))
    assert len(made) == len(clients.client_ids)
    assert max(counts) <= most
    assert all(array() is None for array in made)


def _fails(client_id, batches):
    if client_id == "client_7":
        raise OSError("the disk is gone")
    return batches


def _one_batch_less(client_id, batches):
    return batches[:-1] if client_id == "client_7" else batches


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (_fails, OSError, "the disk is gone"),
        (_one_batch_less, ValueError, "Let BatchesOnDemand.make return batches of its"),
    ],
)
def test_errors_end_the_round_and_the_next_one_works(
    make, error, message, process, train, fast
):
    state = call(fast, process.initialize)
    with pytest.raises(error, match=message):
        call(fast, process.next, state, _cohort(train, make))
    call(fast, process.next, state, _cohort(train))


def test_other_types_are_refused_before_anything_is_made(process, train, fast):
    spec = tf.TensorSpec([None, 5], tf.float32), tf.TensorSpec([None], tf.int32)
    state = call(fast, process.initialize)
    with pytest.raises(ValueError, match="Expected elements of type"):
        call(fast, process.next, state, [BatchesOnDemand([4], spec, lambda: 1 / 0)])


@pytest.mark.parametrize("last_batch", ["short", "drop", "bootstrap"])
@pytest.mark.parametrize("options", [{"epochs": 3}, {"local_steps": 7}])
def test_sizes_are_known_before_the_batches(last_batch, options):
    train = _train([1, 3, 4, 5, 11], last_batch=last_batch, **options)
    for client_id in train.client_ids:
        batches = train.training_batches(client_id, 2)
        assert train.batch_sizes(client_id) == [len(y) for _, y in batches]


def _rows_of(train, client_id):
    """The cohort's batches as rows that are copied when they are put together."""
    return train.training_batches(client_id, round_number=1).make


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("mode", tiers.first([1], ["plain", "fast"]))
def test_chosen_rows_are_the_batches(mode, shuffle, process, clients, local_contexts):
    train = clients.replace(shuffle=shuffle, last_batch="bootstrap")
    lists = [list(train.training_batches(each, 1)) for each in train.client_ids]
    chosen = [
        BatchesOnDemand(
            train.batch_sizes(client_id),
            train.element_spec,
            _rows_of(train, client_id),
        )
        for client_id in train.client_ids
    ]
    for batches, own in zip(chosen, lists, strict=True):
        assert_same(list(batches), own)
    local = local_contexts[mode]
    state = call(local, process.initialize)
    output = call(local, process.next, state, chosen)
    assert_same(output, call(local, process.next, state, lists))


def test_rows_of_other_dtypes_and_orders_in_memory_are_converted(process, fast):
    x = np.asfortranarray(np.random.default_rng(3).normal(size=(8, 3)))
    y = np.arange(8) % 3
    spec = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.int32)
    rows = np.array([3, 1, 4, 1, 5, 0])
    cohort = [BatchesOnDemand([4, 2], spec, lambda: [((x, y), rows)])] * 10
    batches = [
        (x[own].astype(np.float32), y[own].astype(np.int32))
        for own in (rows[:4], rows[4:])
    ]
    state = call(fast, process.initialize)
    output = call(fast, process.next, state, cohort)
    assert_same(output, call(fast, process.next, state, [batches] * 10))


@pytest.mark.parametrize("rows", [[0, 3], [-1, 0]])
def test_rows_that_there_are_not_are_refused(rows):
    examples = np.zeros([3, 2]), np.zeros(3)
    spec = tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None], tf.int32)
    batches = BatchesOnDemand([2], spec, lambda: [(examples, np.array(rows))])
    with pytest.raises(IndexError, match="examples from 0 to 2, found"):
        list(batches)


@pytest.mark.parametrize("shape", [(2, 4), (3, 3)])
def test_batches_of_other_shapes_than_announced_are_refused(shape):
    spec = tf.TensorSpec([None, 3], tf.float32)
    make = lambda: [(np.zeros(shape, np.float32), None)]  # noqa: E731
    source = BatchesOnDemand([2], spec, make)
    batches = ClientData(source, compat.TensorType(np.float32, [None, None]))
    assert batches.shapes == [((2, 3),)]
    with pytest.raises(ValueError, match=r"\(2, 3\).* made with .*Let BatchesOnDemand"):
        batches.copy(0, 0, np.zeros([2, 3], np.float32))


def test_shapes_are_looked_into_once_for_a_cohort():
    # From the first client on, of whom nothing is known yet.
    spec = tf.TensorSpec([None, 3], tf.float32)
    element_type = compat.TensorType(np.float32, [None, 3])
    known = BatchShapes(spec, element_type)
    sources = [BatchesOnDemand([4, size], spec, list) for size in (1, 4, 2)]
    for source in sources:
        ClientData(source, element_type, known)
    assert set(known) == {1, 2, 4}


def test_no_batch_is_made_of_a_client_without_any():
    spec = tf.TensorSpec([None, 3], tf.float32)
    nothing = np.zeros((0, 3), np.float32)
    for numbers in (None, np.zeros(0, np.int64)):
        make = [(nothing, numbers)]
        assert list(BatchesOnDemand([], spec, lambda make=make: make)) == []
        (empty,) = BatchesOnDemand([0], spec, lambda make=make: make)
        assert empty.shape == (0, 3)
