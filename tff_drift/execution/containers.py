"""The Python containers in which arguments and results are given.

Shared by the local context, which takes arguments apart into tensors, and the one on
Ray, which deals their clients to actors.
"""

from __future__ import annotations

import collections.abc
from typing import Any

from tff_drift import compat


def cardinalities(value: Any, type_signature: compat.Type) -> dict[Any, int]:
    """Returns how many members a value implies for each placement.

    Args:
      value: An argument.
      type_signature: Its type.

    Returns:
      The number of clients under `tff.CLIENTS`, if `value` says how many.

    Raises:
      TypeError: If the values of clients are not in a list or a tuple.
      ValueError: If there are different numbers of values of clients.
    """
    if isinstance(value, compat.framework.CardinalityCarrying):
        return dict(value.cardinality)
    if isinstance(type_signature, compat.FederatedType):
        if type_signature.all_equal:
            return {}
        # Values of a dict come as a view.
        if not isinstance(value, (list, tuple, collections.abc.MappingView)):
            is_mapping = isinstance(value, collections.abc.Mapping)
            remedy = " Give a list of its values." if is_mapping else ""
            raise TypeError(
                f"Expected a list with a value for each client, of type "
                f"{type_signature}, found a {type(value).__name__}.{remedy}"
            )
        return {type_signature.placement: len(value)}
    found: dict[Any, int] = {}
    if isinstance(type_signature, compat.StructType):
        elements = struct_elements(value, type_signature)
        for element, (_, element_type) in zip(
            elements, compat.structure.iter_elements(type_signature), strict=True
        ):
            found = compat.framework.merge_cardinalities(
                found, cardinalities(element, element_type)
            )
    return found


def struct_elements(value: Any, type_signature: compat.StructType) -> list[Any]:
    """Returns the elements of a Python container, in the order of its type.

    Args:
      value: A container: mapping, list, tuple, named tuple, `attrs` object.
      type_signature: The type of the container.

    Returns:
      The elements.

    Raises:
      TypeError: If the container has other elements than the type.
    """
    names = compat.structure_names(type_signature)
    # Most values are of these three kinds; TFF's conversion takes longer.
    if isinstance(value, dict) and tuple(value) == tuple(names):
        return list(value.values())
    if type(value) in (list, tuple) and len(value) == len(names):
        return list(value)
    fields = [field.name for field in getattr(value, "__attrs_attrs__", ())]
    if fields and fields == names:
        return [getattr(value, name) for name in names]
    try:
        struct = compat.structure.from_container(value)
    except TypeError as error:
        remedy = "" if None in names else f" Give a dictionary of {', '.join(names)}."
        raise TypeError(
            f"Expected a structure of type {type_signature}, found a "
            f"{type(value).__name__}.{remedy}"
        ) from error
    given = compat.structure_names(struct)
    if len(given) == len(names) and all(
        None in (name, wanted) or name == wanted
        for name, wanted in zip(given, names, strict=True)
    ):
        return list(struct)
    if sorted(map(str, given)) == sorted(map(str, names)) and None not in names:
        return [struct[name] for name in names]
    raise TypeError(
        f"Expected a structure of type {type_signature}, found one of "
        f"{len(given)} elements with the names {given}."
    )
