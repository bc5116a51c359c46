"""The variables of a graph that is evaluated as a function of tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf


class UnsupportedGraphError(Exception):
    """A graph holds something that is not a function of tensors."""


@dataclasses.dataclass(eq=False)
class Variable:
    """A variable while its graph is evaluated.

    Attributes:
      value: Its present value, None before the first assignment.
      shape: That of all its values, as far as the graph says.
      first_value_read: Whether the value that it was made with has been read.
    """

    value: tf.Tensor | None = None
    shape: tf.TensorShape = dataclasses.field(
        default_factory=lambda: tf.TensorShape(None)
    )
    first_value_read: bool = False
    _assigned: bool = False

    def read(self) -> tf.Tensor:
        """Returns the present value."""
        if self.value is None:
            raise UnsupportedGraphError("a variable is read before it is assigned")
        if not self._assigned:
            self.first_value_read = True
        return self.value

    def restart(self, value: tf.Tensor) -> None:
        """Sets the value, as if the variable had been made with it."""
        self.value, self.first_value_read, self._assigned = value, False, False

    def assign(self, value: tf.Tensor) -> None:
        """Sets the value."""
        self.value = value
        self._assigned = True


def use_variable(node: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, int]]:
    """Evaluates an operation on a variable.

    Args:
      node: The operation's node.
      inputs: Its inputs, the variable first.

    Returns:
      The outputs, and where each named output starts.

    Raises:
      UnsupportedGraphError: If there is no such operation on tensors.
    """
    variable, *others = inputs
    if not isinstance(variable, Variable) or any(
        isinstance(other, Variable) for other in others
    ):
        raise UnsupportedGraphError(f"{node.op!r} takes several resources")
    if node.op == "Identity":
        return [variable], {"output": 0}
    if node.op == "ReadVariableOp":
        return [tf.identity(variable.read())], {"value": 0}
    if node.op == "AssignVariableOp":
        variable.assign(_fitting(others[0], variable))
        return [], {}
    if node.op == "AssignAddVariableOp":
        variable.assign(variable.read() + _fitting(others[0], variable))
        return [], {}
    if node.op == "AssignSubVariableOp":
        variable.assign(variable.read() - _fitting(others[0], variable))
        return [], {}
    if node.op == "VarIsInitializedOp":
        return [tf.constant(variable.value is not None)], {"is_initialized": 0}
    if node.op == "VariableShape":
        out_type = tf.as_dtype(node.attr["out_type"].type)
        return [tf.shape(variable.read(), out_type)], {"output": 0}
    if node.op == "ResourceGather":
        gathered = tf.gather(
            variable.read(), others[0], batch_dims=node.attr["batch_dims"].i
        )
        return [gathered], {"output": 0}
    raise UnsupportedGraphError(f"it has the operation {node.op!r} on a variable")


def _fitting(value: tf.Tensor, variable: Variable) -> tf.Tensor:
    """Returns a value for a variable, which takes no other shape than its own."""
    if variable.shape.is_fully_defined() and value.shape != variable.shape:
        return tf.ensure_shape(value, variable.shape)
    return value


def distinct_variables(values: Iterable[Any]) -> list[Variable]:
    """Returns the variables among values.

    Args:
      values: Tensors and variables.

    Raises:
      UnsupportedGraphError: If a variable is there twice.
    """
    variables = [value for value in values if isinstance(value, Variable)]
    if len(set(map(id, variables))) != len(variables):
        raise UnsupportedGraphError("one variable is passed on under two names")
    return variables


def without_values(
    results: list[tf.Tensor], variables: Sequence[Variable]
) -> list[tf.Tensor]:
    """Assigns the last results to the variables.

    Args:
      results: The results, the values of the variables last.
      variables: The variables.

    Returns:
      The other results.
    """
    num_results = len(results) - len(variables)
    for variable, value in zip(variables, results[num_results:], strict=True):
        variable.assign(value)
    return results[:num_results]
