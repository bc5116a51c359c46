"""Arguments are dealt by clients, and results come back in their order."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.execution.remote import partition

CLIENTS_FLOATS = compat.FederatedType(np.float32, compat.CLIENTS)
ARGUMENT = compat.to_type(
    collections.OrderedDict(
        state=compat.FederatedType(np.int32, compat.SERVER),
        data=CLIENTS_FLOATS,
        more=[CLIENTS_FLOATS, np.int32],
    )
)


def argument(num_clients):
    return collections.OrderedDict(
        more=[[10.0 + k for k in range(num_clients)], 5],
        state=7,
        data=[float(k) for k in range(num_clients)],
    )


@pytest.mark.parametrize(
    ("num_clients", "num_parts", "sizes"),
    [(7, 3, [2, 2, 3]), (2, 3, [1, 1]), (3, 1, [3]), (0, 3, [0])],
)
def test_parts_hold_all_clients_in_order(num_clients, num_parts, sizes):
    parts = partition.split(argument(num_clients), ARGUMENT, num_parts)

    assert [len(part.data) for part in parts] == sizes
    assert [x for part in parts for x in part.data] == list(range(num_clients))
    for part in parts:
        assert part.more[0] == [10 + x for x in part.data]
        assert (part.state, part.more[1]) == (7, 5)


def test_different_numbers_of_clients_are_an_error():
    value = argument(3)
    value["data"] = [1.0]
    with pytest.raises(ValueError, match="Conflicting cardinalities"):
        partition.split(value, ARGUMENT, 2)


def test_values_of_clients_must_be_a_list():
    with pytest.raises(TypeError, match="a value for each client"):
        partition.split(3.0, CLIENTS_FLOATS, 2)


def test_joined_results_have_the_containers_of_their_type():
    result = compat.to_type(
        collections.OrderedDict(
            total=compat.FederatedType(np.int32, compat.SERVER), each=CLIENTS_FLOATS
        )
    )
    parts = [
        tff.structure.Struct([("total", 3), ("each", [1.0])]),
        tff.structure.Struct([("total", 3), ("each", [2.0, 4.0])]),
    ]
    assert partition.join(parts, result) == collections.OrderedDict(
        total=3, each=[1.0, 2.0, 4.0]
    )


def test_only_values_of_clients_make_an_argument_one_of_clients():
    everywhere = compat.FederatedType(np.int32, compat.CLIENTS, all_equal=True)
    assert partition.mentions_clients(ARGUMENT)
    assert not partition.mentions_clients(everywhere)
    assert not partition.mentions_clients(compat.to_type([np.int32, np.float32]))
    assert not partition.mentions_clients(None)
