"""Who takes steps with whom, and whose state is whose."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift.execution.local.stacked import turns
from tff_drift.execution.local.values import client_batches


def _batches(sizes):
    return client_batches.Batches([tf.zeros([size, 2])] for size in sizes)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=1, max_size=6))
def test_turns_take_every_batch_once_in_its_clients_order(sizes):
    own = list(map(_batches, sizes))
    states = turns.States(len(own), [])
    seen = [[] for _ in own]
    for turn in turns.take_turns(own, states):
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
    taken = list(turns.take_turns(own, turns.States(5, [])))
    assert [turn.clients for turn in taken] == [list(range(5))] * 2
    assert [turn.num_steps for turn in taken] == [2, 1]


def test_the_batches_of_a_turn_take_limited_ram():
    own = [_batches([4] * 5) for _ in range(2)]
    for each in own:
        # A step of both takes 8 MiB, of the 16 MiB that are read at once.
        each.num_bytes = [2**22] * 5
    taken = list(turns.take_turns(own, turns.States(2, [])))
    assert [turn.num_steps for turn in taken] == [2, 2, 1]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_states_of_changing_groups_stay_with_their_clients(data):
    num_clients = data.draw(st.integers(1, 6))
    expected = np.arange(num_clients, dtype=np.float32)
    states = turns.States(num_clients, [tf.constant(expected)])
    for turn in range(data.draw(st.integers(0, 6))):
        members = data.draw(st.sets(st.integers(0, num_clients - 1), min_size=1))
        group = states.in_order(sorted(members))
        (values,) = states.get(group)
        np.testing.assert_array_equal(values, expected[group])
        expected[group] = values.numpy() * 2 + turn
        states.set(group, [values * 2 + turn])
    np.testing.assert_array_equal(states.get_all()[0], expected)
