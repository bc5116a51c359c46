"""The decisions of the local context, as numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift.execution.local import policy
from tff_drift.execution.local.policy import TurnSize


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 400), st.integers(0, 4), st.integers(1, 2**28))
def test_chunks_hold_every_client_once_and_have_few_sizes(
    num_clients, num_devices, client_bytes
):
    chunks = policy.chunks(num_clients, num_devices, client_bytes)
    assert [client for chunk in chunks for client in chunk] == list(range(num_clients))
    assert len(chunks) >= min(num_devices, num_clients // 8)
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * client_bytes <= 2**27
        assert policy.known_number(len(chunk)) == len(chunk)


@pytest.mark.parametrize(
    ("client_bytes", "most"),
    # The states of a stack take 10 MiB, but 8 clients may take 128 MiB together.
    [(1, 256), (2**16, 160), (2**20, 10), (2**22, 8), (2**25, 4), (2**30, 1)],
)
def test_the_clients_of_a_chunk_stay_within_their_bytes(client_bytes, most):
    assert policy.most_together(client_bytes) == most
    assert max(map(len, policy.chunks(400, 1, client_bytes))) <= most


def test_a_chunk_of_large_clients_holds_eight_at_most():
    chunks = policy.chunks(20, 0, 2**22)
    assert list(map(len, chunks)) == [6, 7, 7]


@pytest.mark.parametrize(
    ("turns", "holds", "reason"),
    [
        ([(20, 2), (1, 2)], True, "42 steps come in 4 turns, at least 8 together"),
        ([(8, 3)], True, "24 steps come in 3 turns, at least 8 together"),
        ([(8, 3), (7, 1)], False, "31 steps come in 4 turns, fewer than 8 together"),
        ([], True, "0 steps come in 0 turns, at least 8 together"),
    ],
)
def test_stacking_wants_eight_steps_together(turns, holds, reason):
    decision = policy.steps_come_together([TurnSize(*turn) for turn in turns])
    assert decision == (holds, f"{reason} on average")


@pytest.mark.parametrize(
    ("batch_clients", "has_datasets", "one_at_a_time", "holds", "reason"),
    [
        (None, True, False, True, "each client brings a dataset"),
        (True, True, False, True, "each client brings a dataset"),
        (False, True, False, False, "batch_clients is False"),
        (True, False, False, False, "the clients bring no datasets"),
        (True, True, True, False, "seeded stream"),
    ],
)
def test_stacking_is_asked_for(
    batch_clients, has_datasets, one_at_a_time, holds, reason
):
    decision = policy.stacking_asked_for(batch_clients, has_datasets, one_at_a_time)
    assert decision.holds == holds
    assert reason in decision.reason


def test_convolutions_are_stacked_on_demand_alone():
    assert policy.stacking_may_pay(None, has_convolution=False).holds
    assert not policy.stacking_may_pay(None, has_convolution=True).holds
    assert policy.stacking_may_pay(True, has_convolution=True).holds


@pytest.mark.parametrize(
    ("num_steps", "step_bytes", "taken"),
    [(5, 2**23, 2), (5, 0, 5), (5, 2**30, 1), (1, 1, 1)],
)
def test_the_batches_read_for_a_turn_are_limited(num_steps, step_bytes, taken):
    assert policy.steps_in_turn(num_steps, step_bytes) == taken
