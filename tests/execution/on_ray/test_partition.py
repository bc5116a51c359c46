"""Clients are dealt to actors, and what comes back is in their order."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift import compat
from tff_drift.execution.on_ray import partition

CLIENTS_FLOATS = compat.FederatedType(np.float32, compat.CLIENTS)
ARGUMENT = compat.to_type(
    collections.OrderedDict(
        state=compat.FederatedType(np.int32, compat.SERVER),
        data=CLIENTS_FLOATS,
        more=[CLIENTS_FLOATS, np.int32],
    )
)


def test_what_clients_share_is_separated_and_filled_in_again():
    of_clients = {"ann": 0.0, "bob": 1.0}.values()
    value = {"more": [[10.0, 11.0], 5], "state": 7, "data": of_clients}
    shared, columns = partition.separate(value, ARGUMENT)
    assert (shared.state, shared.data, shared.more[0], shared.more[1]) == (
        *(7, None),
        *(None, 5),
    )
    assert columns == [[0.0, 1.0], [10.0, 11.0]]
    assert [str(each) for each in partition.client_types(ARGUMENT)] == ["float32"] * 2

    part = partition.fill(shared, ARGUMENT, iter([[1.0], [11.0]]))
    assert (part.state, part.data, part.more[0], part.more[1]) == (7, [1.0], [11.0], 5)


@pytest.mark.parametrize(
    ("num_clients", "num_parts", "expected"),
    [
        (7, 3, [[0, 1], [2, 3], [4, 5, 6]]),
        (1, 2, [[], [0]]),
        (0, 2, [[], []]),
    ],
)
def test_without_more_clients_are_dealt_in_their_order(
    num_clients, num_parts, expected
):
    assert partition.deal_in_order(num_clients, num_parts) == expected


def test_even_parts_stay_at_home():
    assert partition.deal([0, 1, 1, 0], [5, 3, 3, 1], 2) == [[0, 3], [1, 2]]


def test_clients_leave_the_part_with_the_most_to_do():
    # 12 against 2: of 4, 3 and 5, the 5 brings them closest together.
    assert partition.deal([0, 0, 0, 1], [4, 3, 5, 2], 2) == [[0, 1], [2, 3]]
    # A large client cannot be evened out.
    assert partition.deal([0, 1], [100, 1], 2) == [[0], [1]]
    assert partition.deal([0, 0], [100, 1], 2) == [[0], [1]]


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), max_size=60),
)
def test_every_client_is_dealt_once_and_no_part_gets_more_than_it_must(
    num_parts, clients
):
    homes = [home % num_parts for home, _ in clients]
    loads = [load for _, load in clients]
    parts = partition.deal(homes, loads, num_parts)
    assert sorted(client for part in parts for client in part) == list(
        range(len(clients))
    )
    totals = [sum(loads[client] for client in part) for part in parts]
    at_home = [
        sum(load for home, load in zip(homes, loads, strict=True) if home == part)
        for part in range(num_parts)
    ]
    assert max(totals) <= max(at_home)
    # What the largest has more than the smallest is little, or no more than twice a
    # client.
    most = max(2 * load for load in [0, *loads])
    assert max(totals) - min(totals) <= max(0.02 * sum(loads), most)


def test_homes_do_not_change_from_program_to_program():
    # What CRC-32 gives for these digits is how its implementations are told apart.
    assert partition.home("123456789", 1000) == 0xCBF43926 % 1000
    ids = [f"client {k}" for k in range(1000)]
    homes = [partition.home(each, 4) for each in ids]
    assert all(200 < homes.count(part) < 300 for part in range(4))


def test_joined_results_are_in_the_order_of_the_clients():
    result = compat.to_type(
        collections.OrderedDict(
            total=compat.FederatedType(np.int32, compat.SERVER), each=CLIENTS_FLOATS
        )
    )
    results = [
        tff.structure.Struct([("total", 3), ("each", [2.0])]),
        tff.structure.Struct([("total", 3), ("each", [1.0, 4.0])]),
    ]
    assert partition.join(results, result, [[1], [0, 2]]) == collections.OrderedDict(
        total=3, each=[1.0, 2.0, 4.0]
    )


def test_only_values_of_clients_make_an_argument_one_of_clients():
    everywhere = compat.FederatedType(np.int32, compat.CLIENTS, all_equal=True)
    assert partition.client_types(everywhere) == []
    assert partition.client_types(compat.to_type([np.int32, np.float32])) == []
    assert partition.client_types(None) == []
