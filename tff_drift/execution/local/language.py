"""TFF's language, a small lambda calculus: its values, and its rules.

A value is a tree: a `Struct` of values, a function, or a leaf. What a leaf is, is up
to the interpreter: an object of a plan, or a tensor of a graph that is being built.
`Interpreter` knows the rules; what a graph does with a value and what an intrinsic
means is up to its subclasses: one plans federated computations, the other builds
TensorFlow functions.
"""

from __future__ import annotations

import abc
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


def _free_names(block: Any) -> frozenset[str]:
    """Returns the names that `block` takes from around it."""
    if isinstance(block, compat.framework.Reference):
        return frozenset({block.name})
    if isinstance(block, compat.framework.Lambda):
        return _free_names(block.result) - {block.parameter_name}
    if isinstance(block, compat.framework.Block):
        free = _free_names(block.result)
        for name, local in reversed(block.locals):
            free = (free - {name}) | _free_names(local)
        return free
    free = frozenset()
    for child in block.children():
        free |= _free_names(child)
    return free


class Interpreter(abc.ABC):
    """Evaluates building blocks; see the module."""

    @abc.abstractmethod
    def call_graph(
        self, block: compat.framework.CompiledComputation, argument: Any
    ) -> Any:
        """Returns the result of a compiled computation."""

    @abc.abstractmethod
    def call_intrinsic(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        """Returns the result of an intrinsic."""

    @abc.abstractmethod
    def literal(self, block: compat.framework.Literal) -> Any:
        """Returns the value of a literal."""

    def call(self, function: Function, argument: Any) -> Any:
        """Calls a function.

        Args:
          function: The function.
          argument: Its argument, None for a function without a parameter.

        Returns:
          The result, a tree.
        """
        if isinstance(function, compat.framework.CompiledComputation):
            return self.call_graph(function, argument)
        if isinstance(function, compat.framework.Intrinsic):
            return self.call_intrinsic(function, argument)
        if isinstance(function, TreeFunction):
            return function.body(argument)
        block = function.block
        scope = function.scope
        if block.parameter_name is not None:
            scope = {**scope, block.parameter_name: argument}
        return self.evaluate(block.result, scope)

    def evaluate(self, block: Any, scope: Mapping[str, Any]) -> Any:
        """Evaluates a building block.

        Args:
          block: The block.
          scope: The values of the names that the block takes from around it.

        Returns:
          A tree.

        Raises:
          NotImplementedError: If the block is of a kind that is not supported.
        """
        if isinstance(block, compat.framework.Reference):
            return scope[block.name]
        if isinstance(block, FUNCTIONS):
            return block
        if isinstance(block, compat.framework.Lambda):
            return Closure(block, {name: scope[name] for name in _free_names(block)})
        if isinstance(block, compat.framework.Block):
            scope = dict(scope)
            for name, local in block.locals:
                scope[name] = self.evaluate(local, scope)
            return self.evaluate(block.result, scope)
        if isinstance(block, compat.framework.Call):
            function = self.evaluate(block.function, scope)
            argument = None
            if block.argument is not None:
                argument = self.evaluate(block.argument, scope)
            return self.call(function, argument)
        if isinstance(block, compat.framework.Struct):
            return Struct(
                (name, self.evaluate(element, scope))
                for name, element in compat.structure.iter_elements(block)
            )
        if isinstance(block, compat.framework.Selection):
            source = self.evaluate(block.source, scope)
            return source[block.as_index()]
        if isinstance(block, compat.framework.Literal):
            return self.literal(block)
        raise NotImplementedError(
            "The local execution context does not support a building block of kind "
            f"{type(block).__name__}: {block.compact_representation()[:200]}"
        )
