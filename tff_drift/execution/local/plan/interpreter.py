"""The rules of TFF's language, over any kind of value.

TFF's language is a small lambda calculus. `Interpreter` knows its rules; what a
value is, what a graph does with it and what an intrinsic means is up to the
subclasses: one plans federated computations, the other builds TensorFlow functions.
Values are trees, see `trees`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from tff_drift import compat
from tff_drift.execution.local.plan import trees


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

    def call(self, function: trees.Function, argument: Any) -> Any:
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
        if isinstance(function, trees.TreeFunction):
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
        if isinstance(block, trees.FUNCTIONS):
            return block
        if isinstance(block, compat.framework.Lambda):
            return trees.Closure(
                block, {name: scope[name] for name in _free_names(block)}
            )
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
            return trees.Struct(
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
