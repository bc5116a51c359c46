"""Values of TFF's language while it is interpreted: trees with leaves.

A value is a tree: a `Struct` of values, a function, or a leaf. What a leaf is, is up
to the interpreter: an object of a plan, or a tensor of a graph that is being built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from tff_drift import compat

Struct = compat.structure.Struct


@dataclasses.dataclass(frozen=True, eq=False)
class Closure:
    """A lambda, and the values of the names around it."""

    block: compat.framework.Lambda
    scope: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class TreeFunction:
    """A function that is not written in TFF's language.

    Attributes:
      body: From the argument, a tree of tensors, to the result.
    """

    body: Callable[[Any], Any]


Function: TypeAlias = (
    Closure
    | TreeFunction
    | compat.framework.CompiledComputation
    | compat.framework.Intrinsic
)
FUNCTIONS = (
    Closure,
    TreeFunction,
    compat.framework.CompiledComputation,
    compat.framework.Intrinsic,
)


def function_type(function: Any) -> compat.FunctionType:
    """Returns the type of a function value of TFF's language."""
    block = function.block if isinstance(function, Closure) else function
    return block.type_signature


def leaves(value: Any) -> Iterator[Any]:
    """Yields the leaves of a value, those that its closures hold included.

    Args:
      value: A tree.

    Yields:
      Leaves, in the order of TFF's structures.
    """
    if isinstance(value, Struct):
        for element in value:
            yield from leaves(element)
    elif isinstance(value, Closure):
        for name in sorted(value.scope):
            yield from leaves(value.scope[name])
    elif value is not None and not isinstance(value, FUNCTIONS):
        yield value


def substitute(value: Any, replacements: Mapping[Any, Any]) -> Any:
    """Returns `value` with other leaves.

    Args:
      value: A tree.
      replacements: A new leaf for every leaf of `value`.

    Returns:
      A tree of the same form.
    """
    if isinstance(value, Struct):
        return Struct(
            (name, substitute(element, replacements))
            for name, element in compat.structure.iter_elements(value)
        )
    if isinstance(value, Closure):
        scope = {
            name: substitute(element, replacements)
            for name, element in value.scope.items()
        }
        return Closure(value.block, scope)
    if value is None or isinstance(value, FUNCTIONS):
        return value
    return replacements[value]


def leaf_types(type_signature: compat.Type) -> Iterator[compat.Type]:
    """Yields the tensor and sequence types of which a type consists.

    Args:
      type_signature: A type without functions.

    Yields:
      The types of the leaves of a value of that type. The member types of a
      federated type count as if they were not placed.
    """
    if isinstance(type_signature, compat.FederatedType):
        yield from leaf_types(type_signature.member)
    elif isinstance(type_signature, compat.StructType):
        for _, element in compat.structure.iter_elements(type_signature):
            yield from leaf_types(element)
    elif isinstance(type_signature, (compat.TensorType, compat.SequenceType)):
        yield type_signature
    else:
        raise NotImplementedError(
            "The local execution context does not support values of type "
            f"{type_signature}."
        )


def pack(type_signature: compat.Type, flat: Iterator[Any]) -> Any:
    """Builds a tree from leaves.

    Args:
      type_signature: The type whose form the tree takes.
      flat: The leaves, in the order of `leaf_types`.

    Returns:
      The tree.
    """
    if isinstance(type_signature, compat.FederatedType):
        return pack(type_signature.member, flat)
    if isinstance(type_signature, compat.StructType):
        return Struct(
            (name, pack(element, flat))
            for name, element in compat.structure.to_elements(type_signature)
        )
    return next(flat)


def pair(first: Any, second: Any) -> Any:
    """Returns a structure of two unnamed elements."""
    return Struct([(None, first), (None, second)])
