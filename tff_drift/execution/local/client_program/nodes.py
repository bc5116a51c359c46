"""The nodes of a graph that is evaluated as a function of tensors.

In which order they are evaluated, what they are given and return: tensors, variables,
which are Python objects that hold their present value, and checks to wait for.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local.client_program import vectorizable

# Attributes that TensorFlow adds for itself: of shapes and of placement.
_LEFT_OUT_ATTRIBUTES = ("_output_shapes", "_class")
# Around it TensorFlow looks for a deprecated argument at every call, which takes a
# tenth of the time that it takes to evaluate a graph.
_create_op = inspect.unwrap(tf.Graph.create_op)


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


class Frame:
    """The values of the nodes of one graph or one function's body.

    A node without outputs, such as a check, has the operations to wait for instead.
    """

    def __init__(self, outputs: dict[str, list[Any]]) -> None:
        self.outputs = outputs
        self.layouts: dict[str, dict[str, int]] = {}

    def outputs_before(self, node: Any) -> list[Any]:
        """Returns the outputs of the nodes that a node waits for without using them."""
        names = [name[1:] for name in node.input if name.startswith("^")]
        return [output for name in names for output in self.outputs[name]]

    def value(self, name: str) -> Any:
        """Returns a value by the name of a node's input."""
        parts = name.split(":")
        outputs = self.outputs[parts[0]]
        if len(parts) == 1:
            return outputs[0]
        if len(parts) == 2:  # In a graph: node, position.
            return outputs[int(parts[1])]
        # In a function: node, name of the output, position in it.
        return outputs[self.layouts[parts[0]][parts[1]] + int(parts[2])]


class Checks:
    """The checks of a graph being built, and what comes after them.

    Of what a node waits for, only checks matter here: there are no other effects.
    """

    def __init__(self) -> None:
        self._is_after: dict[tf.Operation, bool] = {}

    def add(self, values: Iterable[Any]) -> None:
        """Takes up the operations that some values come from as checks."""
        self._is_after.update(dict.fromkeys(_operations(values), True))

    def among(self, values: Iterable[Any]) -> list[tf.Operation]:
        """Returns, of the operations that values come from, checks and what follows."""
        here = tf.compat.v1.get_default_graph()
        found = [each for each in _operations(values) if each.graph is here]
        return [each for each in found if self._is_after and self._follows(each)]

    def _follows(self, operation: tf.Operation) -> bool:
        pending = [operation]
        while pending:
            last = pending[-1]
            sources = [*last.control_inputs, *(tensor.op for tensor in last.inputs)]
            unknown = [source for source in sources if source not in self._is_after]
            if last in self._is_after:
                pending.pop()
            elif unknown:
                pending.extend(unknown)
            else:
                self._is_after[last] = any(self._is_after[each] for each in sources)
        return self._is_after[operation]


def _operations(values: Iterable[Any]) -> list[tf.Operation]:
    found = [getattr(value, "op", value) for value in values]
    return [each for each in found if isinstance(each, tf.Operation)]


def after(checks: list[tf.Operation], values: list[Any]) -> list[Any]:
    """Returns values that are there after checks only."""
    if not checks:
        return values
    with tf.control_dependencies(checks):
        return [
            tf.identity(value) if tf.is_tensor(value) else value for value in values
        ]


def data_inputs(node: Any) -> list[str]:
    """Returns the names of a node's inputs."""
    return [name for name in node.input if not name.startswith("^")]


def in_order(nodes: Iterable[Any], done: set[str]) -> Iterable[Any]:
    """Yields nodes so that each comes after what it depends on."""
    by_name = {node.name: node for node in nodes if node.name not in done}
    pending = list(reversed(by_name))
    entered: set[str] = set()
    while pending:
        name = pending[-1]
        if name in done:
            pending.pop()
            continue
        sources = [source.lstrip("^").split(":")[0] for source in by_name[name].input]
        missing = [source for source in sources if source not in done]
        if missing:
            if name in entered or any(source not in by_name for source in missing):
                raise UnsupportedGraphError(f"{name!r} has an input that is not there")
            entered.add(name)
            pending.extend(missing)
            continue
        done.add(name)
        pending.pop()
        yield by_name[name]


def emit(node: Any, inputs: Sequence[tf.Tensor]) -> tuple[list[Any], dict[str, int]]:
    """Adds a node to the graph being built."""
    attributes = {
        name: value
        for name, value in node.attr.items()
        if name not in _LEFT_OUT_ATTRIBUTES
    }
    # `tf.graph_util.import_graph_def` takes several times as long for one node.
    graph = tf.compat.v1.get_default_graph()
    try:
        operation = _create_op(
            graph, node.op, inputs, name="operation", attrs=attributes
        )
    except ValueError as error:
        # More is known of shapes here than where the graph was made, also where it is
        # of a branch that is never taken.
        (reason, *_) = str(error).splitlines()
        raise UnsupportedGraphError(f"of {node.op!r}: {reason}") from error
    vectorizable.choose_conversion(operation)
    return list(operation.outputs) or [operation], _layout(operation)


def _layout(operation: tf.Operation) -> dict[str, int]:
    """Returns the position of the first tensor of each named output."""
    layout = {}
    position = 0
    for argument in operation.op_def.output_arg:
        layout[argument.name] = position
        if argument.number_attr:
            position += operation.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            position += len(operation.get_attr(argument.type_list_attr))
        else:
            position += 1
    return layout
