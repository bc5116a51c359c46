"""Which clients take a step together, and which take theirs alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift import compat
from tff_drift.execution.local.data.client_data import ClientData
from tff_drift.execution.local.data.stacks import (
    build_schedule,
    most_frequent_shape,
)

_CLIENTS = st.lists(st.lists(st.integers(1, 3), max_size=6), min_size=1, max_size=6)


def _batches(sizes):
    batches = ([np.zeros([size, 2], np.float32)] for size in sizes)
    return ClientData.of_arrays(batches, compat.TensorType(np.float32, [None, 2]))


@settings(deadline=None, max_examples=100)
@given(_CLIENTS, st.integers(0, 3))
def test_clients_take_every_batch_once_in_its_order(sizes, few):
    own = list(map(_batches, sizes))
    shape = most_frequent_shape(own)
    few = min(few, len(own) - 1)
    schedule = build_schedule(own, shape, few)
    seen = [[] for _ in own]
    step = alone = 0
    for common_end, alone_end in zip(
        schedule.common_ends, schedule.alone_ends, strict=True
    ):
        for common in range(step, common_end):
            for client in np.flatnonzero(schedule.takes_part[common]):
                assert schedule.owners[common, client] == client
                seen[client].append(schedule.numbers[common, client])
        step = common_end
        for client, number in schedule.alone[alone:alone_end]:
            assert few or own[client].shapes[number] != shape
            seen[client].append(number)
        alone = alone_end
    assert seen == [list(range(len(client))) for client in own]
    assert len(schedule.takes_part) == step
    assert (schedule.takes_part.sum(axis=1) > few).all()
    assert len(schedule.alone) == alone


@settings(deadline=None, max_examples=100)
@given(_CLIENTS, st.integers(0, 3))
def test_clients_that_wait_are_given_a_batch_of_the_shape(sizes, few):
    own = list(map(_batches, sizes))
    shape = most_frequent_shape(own)
    schedule = build_schedule(own, shape, min(few, len(own) - 1))
    for owners, numbers in zip(schedule.owners, schedule.numbers, strict=True):
        for owner, number in zip(owners, numbers, strict=True):
            assert own[owner].shapes[number] == shape


def test_turns_of_unequal_clients():
    schedule = build_schedule(list(map(_batches, [[4, 4, 2], [4], [1]])), ((4, 2),), 0)
    assert schedule.masked
    assert sorted(schedule.lockstep_steps()) == [(1, 1), (1, 2), (2, 1)]


def test_steps_of_few_are_taken_alone():
    sizes = [[4, 4, 4, 2, 4, 4], [4, 4, 2, 4], [4]]
    schedule = build_schedule(list(map(_batches, sizes)), ((4, 2),), 1)
    # All three, then two of them; the rest of the first, of each part, goes alone.
    assert schedule.takes_part.tolist() == [
        [True, True, True],
        [True, True, False],
        [True, True, False],
    ]
    assert schedule.numbers.tolist() == [[0, 0, 0], [1, 1, 0], [4, 3, 0]]
    assert schedule.common_ends.tolist() == [2, 3]
    assert schedule.alone == [(0, 2), (0, 3), (1, 2), (0, 5)]
    assert schedule.alone_ends.tolist() == [3, 4]


def test_equal_clients_never_wait():
    own = [_batches([4, 4]) for _ in range(3)]
    schedule = build_schedule(own, most_frequent_shape(own), 1)
    assert not schedule.masked
    assert schedule.lockstep_steps() == [(3, 2)]


def test_clients_without_batches():
    own = [_batches([]), _batches([])]
    assert most_frequent_shape(own) is None
    schedule = build_schedule(own, None, 0)
    assert not schedule.masked
    assert schedule.lockstep_steps() == []
