"""Deals the clients of an argument to actors, and joins what comes back."""

from __future__ import annotations

import bisect
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from tff_drift import compat
from tff_drift.execution import containers

# Parts whose loads differ by less than this share of the mean are even enough.
_EVEN = 0.02


def is_of_clients(type_signature: compat.Type | None) -> bool:
    """Returns whether values of a type are lists with a value for each client."""
    return (
        isinstance(type_signature, compat.FederatedType)
        and type_signature.placement is compat.CLIENTS
        and not type_signature.all_equal
    )


def client_types(type_signature: compat.Type | None) -> list[compat.Type]:
    """Returns the types of one client's values, in the order of `separate`."""
    if is_of_clients(type_signature):
        assert isinstance(type_signature, compat.FederatedType)
        return [type_signature.member]
    if isinstance(type_signature, compat.StructType):
        return [
            found
            for _, element in compat.structure.iter_elements(type_signature)
            for found in client_types(element)
        ]
    return []


def separate(value: Any, type_signature: compat.Type) -> tuple[Any, list[Any]]:
    """Parts what all clients share from what each has for itself.

    Args:
      value: An argument.
      type_signature: Its type.

    Returns:
      The argument with None for the values of clients, a `tff.structure.Struct` where
      the type is a structure; and the lists of the clients' values that were there.

    Raises:
      TypeError: If the value is not of that type.
    """
    if is_of_clients(type_signature):
        return None, [list(value)]
    if not isinstance(type_signature, compat.StructType):
        return value, []
    shared, columns = [], []
    for element, (name, element_type) in zip(
        containers.struct_elements(value, type_signature),
        compat.structure.iter_elements(type_signature),
        strict=True,
    ):
        of_element, found = separate(element, element_type)
        shared.append((name, of_element))
        columns += found
    return compat.structure.Struct(shared), columns


def fill(shared: Any, type_signature: compat.Type, columns: Iterator[Any]) -> Any:
    """Undoes `separate`.

    Args:
      shared: What it returned first.
      type_signature: The type of the argument.
      columns: The lists of clients' values, perhaps of some clients alone.

    Returns:
      The argument.
    """
    if is_of_clients(type_signature):
        return next(columns)
    if not isinstance(type_signature, compat.StructType):
        return shared
    return compat.structure.Struct(
        (name, fill(element, element_type, columns))
        for element, (name, element_type) in zip(
            shared, compat.structure.iter_elements(type_signature), strict=True
        )
    )


def join(
    results: Sequence[Any],
    type_signature: compat.Type,
    parts: Sequence[Sequence[int]],
) -> Any:
    """Joins the results of parts.

    Args:
      results: One result per part. They differ in the values of clients alone.
      type_signature: Their type.
      parts: The numbers of the clients in each part.

    Returns:
      The result, the values of clients in the order of their numbers, with the Python
      containers of the type.

    Raises:
      TypeError: If a result is not of that type.
    """
    if is_of_clients(type_signature):
        by_client = {
            client: value
            for part, values in zip(parts, results, strict=True)
            for client, value in zip(part, values, strict=True)
        }
        return [by_client[client] for client in sorted(by_client)]
    if not isinstance(type_signature, compat.StructType):
        return results[0]
    columns = zip(
        *(containers.struct_elements(result, type_signature) for result in results),
        strict=True,
    )
    joined = compat.structure.Struct(
        (name, join(column, element_type, parts))
        for column, (name, element_type) in zip(
            columns, compat.structure.iter_elements(type_signature), strict=True
        )
    )
    return compat.type_to_py_container(joined, type_signature)


def home(client_id: str, num_parts: int) -> int:
    """Returns the part to which a client belongs, the same in every program."""
    key = client_id.encode(errors="surrogatepass")
    return zlib.crc32(key) % num_parts


def deal_in_order(num_clients: int, num_parts: int) -> list[list[int]]:
    """Returns parts of about equal numbers of clients, in their order."""
    bounds = [num_clients * part // num_parts for part in range(num_parts + 1)]
    return [list(range(start, end)) for start, end in itertools.pairwise(bounds)]


def deal(homes: Sequence[int], loads: Sequence[int], num_parts: int) -> list[list[int]]:
    """Deals clients to the parts they belong to, and evens out what these have to do.

    From the part with the most to do, clients go to the one with the least, until both
    are about even or no client is small enough to make them more so.

    Args:
      homes: The part to which each client belongs.
      loads: What each brings to do, such as its number of examples.
      num_parts: The number of parts.

    Returns:
      The numbers of the clients of each part, ascending. It depends on nothing but the
      arguments.
    """
    # Of each part the loads with their clients, ascending.
    members: list[list[tuple[int, int]]] = [[] for _ in range(num_parts)]
    for client, (part, load) in enumerate(zip(homes, loads, strict=True)):
        members[part].append((load, client))
    totals = [sum(load for load, _ in part) for part in members]
    for of_part in members:
        of_part.sort()
    tolerance = _EVEN * sum(totals) / num_parts
    while True:
        most = max(range(num_parts), key=lambda part: (totals[part], -part))
        least = min(range(num_parts), key=lambda part: (totals[part], part))
        gap = totals[most] - totals[least]
        # A client of more than half the gap would make the other one the larger.
        place = bisect.bisect_right(members[most], (gap // 2, len(homes))) - 1
        if gap <= tolerance or place < 0 or not members[most][place][0]:
            break
        moved = members[most].pop(place)
        bisect.insort(members[least], moved)
        totals[most] -= moved[0]
        totals[least] += moved[0]
    return [sorted(client for _, client in part) for part in members]
