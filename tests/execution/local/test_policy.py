"""The decisions of the local context, as numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift.execution.local import policy
from tff_drift.execution.local.data.stacks import LockstepSteps
from tff_drift.execution.local.options import Limits

LIMITS = Limits()


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 400), st.integers(0, 4), st.integers(1, 2**28))
def test_chunks_hold_every_client_once_and_have_few_sizes(
    num_clients, num_devices, client_bytes
):
    chunks = policy.chunks(LIMITS, num_clients, num_devices, client_bytes)
    assert [client for chunk in chunks for client in chunk] == list(range(num_clients))
    assert len(chunks) >= min(num_devices, num_clients // 8)
    assert len(set(map(len, chunks))) <= 2
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * client_bytes <= 2**27


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 9), max_size=300), st.integers(0, 4), st.integers(1, 2**28)
)
def test_groups_hold_every_client_once_the_longest_first(
    num_steps, num_devices, client_bytes
):
    groups = policy.groups(
        LIMITS, num_steps, num_steps, num_devices, client_bytes, 2**10
    )
    clients = [client for group in groups for client in group]
    assert sorted(clients) == list(range(len(num_steps)))
    taken = [num_steps[client] for client in clients]
    assert taken == sorted(num_steps, reverse=True)
    assert len(groups) >= min(num_devices, len(num_steps))
    if len(set(num_steps)) > 1:
        assert max(map(len, groups)) <= 64


@pytest.mark.parametrize(
    ("client_bytes", "sizes"),
    # Of 0.75 MiB in states, or of 10 clients, if 10 MiB hold as many.
    [(2**18, [10] * 10), (2**22, [8] * 12 + [4]), (1, [50, 50])],
)
def test_sorted_groups_are_small(client_bytes, sizes):
    groups = policy.groups(LIMITS, [1, 2] * 50, [0] * 100, 0, client_bytes, 1)
    assert list(map(len, groups)) == sizes


def test_clients_of_equal_last_batches_are_side_by_side():
    (first, second) = policy.groups(LIMITS, [1] * 15 + [2], [5, 3] * 8, 0, 2**18, 1)
    assert list(first) == [15, *range(0, 14, 2)]
    assert list(second) == [14, *range(1, 15, 2)]


@pytest.mark.parametrize(
    ("sizes", "places"),
    [([9], [10]), ([15, 16, 3], [16] * 3), ([8, 7, 16, 16], [8, 7, 16, 16])],
)
def test_one_function_is_for_nearly_all_groups(sizes, places):
    assert policy.padded_sizes(sizes) == places


@pytest.mark.parametrize(
    ("num_steps", "sizes"),
    # 64 steps of 1 MiB for four clients are 256 MiB; eight may take more.
    [([16] * 16, [16]), ([16] * 17, [8, 9]), ([64] * 8, [8]), ([64] * 9, [4, 5])],
)
def test_the_batches_of_a_group_stay_within_their_bytes(num_steps, sizes):
    assert (
        list(map(len, policy.groups(LIMITS, num_steps, num_steps, 0, 1, 2**20)))
        == sizes
    )


@pytest.mark.parametrize(
    ("num_clients", "places"),
    [(1, 1), (7, 7), (9, 10), (21, 22), (50, 50), (65, 72), (200, 200)],
)
def test_functions_are_for_few_numbers_of_clients(num_clients, places):
    assert policy.padded_size(num_clients) == places


@pytest.mark.parametrize(
    ("num_clients", "on_cpus", "few"),
    [(1, True, 0), (2, True, 0), (3, True, 1), (10, True, 3), (10, False, 0)],
)
def test_steps_of_so_few_clients_are_taken_one_by_one(num_clients, on_cpus, few):
    assert policy.few_together(LIMITS, num_clients, on_cpus) == few


@pytest.mark.parametrize(
    ("client_bytes", "most"),
    # The states of a stack take 10 MiB, but 8 clients may take 128 MiB together.
    [(1, 256), (2**16, 160), (2**20, 10), (2**22, 8), (2**25, 4), (2**30, 1)],
)
def test_the_clients_of_a_chunk_stay_within_their_bytes(client_bytes, most):
    assert policy.most_together(LIMITS, client_bytes) == most
    assert max(map(len, policy.chunks(LIMITS, 400, 1, client_bytes))) <= most


@pytest.mark.parametrize(
    ("patch_bytes", "most"),
    [(0, 256), (2**17, 128), (2**20, 16), (2**21, 8), (2**25, 8)],
)
def test_the_patches_of_a_group_stay_within_their_bytes(patch_bytes, most):
    """16 MiB or 8 clients, of equal ones and of sorted ones, of which 64 at most."""
    for num_steps, at_most in (([3] * 400, most), ([2, 3] * 200, min(most, 64))):
        groups = policy.groups(LIMITS, num_steps, [0] * 400, 1, 1, 1, patch_bytes)
        assert max(map(len, groups)) <= at_most
        assert len(groups) == -(-400 // at_most)


def test_a_chunk_of_large_clients_holds_eight_at_most():
    chunks = policy.chunks(LIMITS, 20, 0, 2**22)
    assert list(map(len, chunks)) == [6, 7, 7]


@pytest.mark.parametrize(
    ("turns", "holds", "reason"),
    [
        (
            [(20, 2)],
            True,
            "40 steps come in 2 lockstep steps, at least 4 together on average",
        ),
        (
            [(4, 3)],
            True,
            "12 steps come in 3 lockstep steps, at least 4 together on average",
        ),
        (
            [(4, 3), (3, 1)],
            False,
            "15 steps come in 4 lockstep steps, fewer than 4 together on average",
        ),
        (
            [(20, 2), (1, 3)],
            True,
            "40 steps come in 2 lockstep steps, at least 4 together on average, "
            "and 3 alone",
        ),
        (
            [(20, 2), (1, 320)],
            True,
            "40 steps come in 2 lockstep steps, at least 4 together on average, "
            "and 320 alone",
        ),
        (
            [(20, 2), (1, 321)],
            False,
            "40 steps come together, too few beside the 321 alone",
        ),
        ([(1, 1)], False, "0 steps come together, too few beside the 1 alone"),
        ([], True, "0 steps come in 0 lockstep steps, at least 4 together on average"),
    ],
)
def test_vectorizing_wants_four_steps_together(turns, holds, reason):
    steps = [[LockstepSteps(*turn) for turn in turns]]
    assert policy.vectorizing_pays(LIMITS, steps, 1, False) == (holds, reason)
    # On CPUs one client, or three that take few steps.
    for num_clients in (1, 3) if sum(a * b for a, b in turns) < 40 else (1,):
        decision = policy.vectorizing_pays(
            LIMITS, steps, 1, True, num_clients=num_clients
        )
        assert decision == (holds, reason)


@pytest.mark.parametrize(
    ("turns", "num_clients", "num_patch_values", "holds", "reason"),
    [
        (
            [(4, 3), (3, 1)],
            4,
            0,
            True,
            "15 steps come in 4 lockstep steps, fewer than 4 together on average, but "
            "of at least 4 clients",
        ),
        (
            [(1, 13)],
            10,
            1,
            True,
            "0 steps come together, too few beside the 13 alone, but of at least 4 "
            "clients",
        ),
        (
            [(3, 13), (1, 1)],
            3,
            0,
            True,
            "39 steps come in 13 lockstep steps, fewer than 4 together on average, and "
            "1 alone, but at least 40 in all",
        ),
        (
            [(3, 13)],
            3,
            0,
            False,
            "39 steps come in 13 lockstep steps, fewer than 4 together on average",
        ),
        (
            [(3, 14)],
            3,
            1,
            False,
            "42 steps come in 14 lockstep steps, fewer than 4 together on average",
        ),
        (
            [(1, 40)],
            2,
            0,
            True,
            "0 steps come together, too few beside the 40 alone, but at least 40 in "
            "all",
        ),
        ([(1, 40)], 1, 0, False, "0 steps come together, too few beside the 40 alone"),
    ],
)
def test_few_clients_are_vectorized_on_cpus(
    turns, num_clients, num_patch_values, holds, reason
):
    """Four clients, or forty steps of fewer without convolutions."""
    decision = policy.vectorizing_pays(
        LIMITS,
        [[LockstepSteps(*turn) for turn in turns]],
        1,
        True,
        num_patch_values=num_patch_values,
        num_clients=num_clients,
    )
    assert decision == (holds, reason)


@pytest.mark.parametrize(
    ("turns", "state_bytes", "on_cpus", "holds"),
    [
        ([(20, 2)], 5 * 2**19, True, True),
        ([(20, 2)], 5 * 2**19 + 1, True, False),
        ([(20, 2)], 5 * 2**19 + 1, False, True),
        ([(20, 2), (15, 1)], 5 * 2**18, True, True),
        ([(20, 2), (15, 1)], 5 * 2**18 + 1, True, False),
        ([(20, 2), (1, 1)], 5 * 2**18 + 1, True, False),
        ([(20, 2), (1, 1)], 5 * 2**18 + 1, False, True),
    ],
)
def test_vectorizing_on_cpus_wants_small_states(turns, state_bytes, on_cpus, holds):
    turns = [LockstepSteps(*turn) for turn in turns]
    decision = policy.vectorizing_pays(LIMITS, [turns], state_bytes, on_cpus)
    assert decision.holds == holds
    assert ("MiB" in decision.reason) == (not holds)


def test_groups_of_different_sizes_do_not_make_clients_wait():
    groups = [[LockstepSteps(20, 2)], [LockstepSteps(18, 2)]]
    assert policy.vectorizing_pays(LIMITS, groups, 5 * 2**19, True).holds


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
def test_vectorizing_is_asked_for(
    batch_clients, has_datasets, one_at_a_time, holds, reason
):
    decision = policy.vectorizing_asked_for(batch_clients, has_datasets, one_at_a_time)
    assert decision.holds == holds
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("num_patch_values", "on_cpus", "reason"),
    [
        (0, True, None),
        (1_400_000, True, None),
        (1_400_001, True, "take patches of 1,400,001 values in a step, and gain by"),
        (float("inf"), True, "of unknown size, or of a kind that is done one client"),
        (0, False, None),
        (1, False, "measured on CPUs alone"),
    ],
)
def test_convolutions_are_vectorized_where_they_are_small(
    num_patch_values, on_cpus, reason
):
    turns = [[LockstepSteps(20, 2)]]
    decision = policy.vectorizing_pays(
        LIMITS, turns, 4, on_cpus, num_patch_values=num_patch_values
    )
    assert decision.holds == (reason is None)
    assert (reason or "40 steps come in 2 lockstep steps") in decision.reason


def test_what_is_too_large_with_one_example_is_not_even_tried():
    assert policy.convolutions_pay(LIMITS, 1_400_000).holds
    assert not policy.convolutions_pay(LIMITS, 1_400_001).holds


def test_tables_are_trained_on_the_rows_that_few_numbers_name():
    assert policy.name_few_rows(LIMITS, 2**15, 2**16)
    assert not policy.name_few_rows(LIMITS, 2**15 + 1, 2**16)
    # Steps on a small table are quick anyway.
    assert policy.name_few_rows(LIMITS, 0, 2**16)
    assert not policy.name_few_rows(LIMITS, 0, 2**16 - 1)
