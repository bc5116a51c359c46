"""Splits arguments over workers by clients, and joins results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tff_drift import compat
from tff_drift.execution import containers


def _is_of_clients(type_signature: compat.Type) -> bool:
    return (
        isinstance(type_signature, compat.FederatedType)
        and type_signature.placement is compat.CLIENTS
        and not type_signature.all_equal
    )


def mentions_clients(type_signature: compat.Type | None) -> bool:
    """Returns whether values of a type hold a value for each client.

    Args:
      type_signature: A type that is no function; `None` has no values.
    """
    if isinstance(type_signature, compat.StructType):
        return any(
            mentions_clients(element)
            for _, element in compat.structure.iter_elements(type_signature)
        )
    return type_signature is not None and _is_of_clients(type_signature)


def count_clients(value: Any, type_signature: compat.Type) -> int:
    """Returns the number of clients in an argument.

    Args:
      value: The argument.
      type_signature: Its type.

    Returns:
      The number.

    Raises:
      TypeError: If the values of clients are not in a list or a tuple.
      ValueError: If there are different numbers of values of clients.
    """
    return containers.cardinalities(value, type_signature).get(compat.CLIENTS, 0)


def take_clients(value: Any, type_signature: compat.Type, clients: slice) -> Any:
    """Returns an argument with some of its clients alone.

    Args:
      value: The argument.
      type_signature: Its type.
      clients: Which ones.

    Returns:
      The argument, a `tff.structure.Struct` where the type is a structure.

    Raises:
      TypeError: If the value is not of that type.
    """
    if _is_of_clients(type_signature):
        return value[clients]
    if not isinstance(type_signature, compat.StructType):
        return value
    elements = containers.struct_elements(value, type_signature)
    return compat.structure.Struct(
        (name, take_clients(element, element_type, clients))
        for element, (name, element_type) in zip(
            elements, compat.structure.iter_elements(type_signature)
        )
    )


def split(value: Any, type_signature: compat.Type, num_parts: int) -> list[Any]:
    """Splits an argument by clients into parts of about equal numbers.

    Args:
      value: The argument.
      type_signature: Its type.
      num_parts: How many parts to make at the most: none is empty, unless there is
        no client at all.

    Returns:
      The parts, their clients in the order of the argument.

    Raises:
      TypeError: If the value is not of that type.
      ValueError: If there are different numbers of values of clients.
    """
    num_clients = count_clients(value, type_signature)
    num_parts = max(1, min(num_parts, num_clients))
    bounds = [num_clients * part // num_parts for part in range(num_parts + 1)]
    return [
        take_clients(value, type_signature, slice(start, end))
        for start, end in zip(bounds, bounds[1:])
    ]


def join(results: Sequence[Any], type_signature: compat.Type) -> Any:
    """Joins the results of parts.

    Args:
      results: One result per part. They differ in the values of clients alone.
      type_signature: Their type.

    Returns:
      The result, the values of clients in the order of the parts, with the Python
      containers of the type.

    Raises:
      TypeError: If a result is not of that type.
    """
    if _is_of_clients(type_signature):
        return [each for result in results for each in result]
    if not isinstance(type_signature, compat.StructType):
        return results[0]
    columns = zip(
        *(containers.struct_elements(result, type_signature) for result in results)
    )
    joined = compat.structure.Struct(
        (name, join(column, element_type))
        for column, (name, element_type) in zip(
            columns, compat.structure.iter_elements(type_signature)
        )
    )
    return compat.type_to_py_container(joined, type_signature)
