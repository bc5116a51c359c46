"""The nodes of graphs: in which order they run, and what they are given and return."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local.client_program import vectorizable
from tff_drift.execution.local.client_program.variables import UnsupportedGraphError

# Attributes that TensorFlow adds for itself: of shapes and of placement.
_LEFT_OUT_ATTRIBUTES = ("_output_shapes", "_class")
# Around it TensorFlow looks for a deprecated argument at every call, which takes a
# tenth of the time that it takes to evaluate a graph.
_create_op = inspect.unwrap(tf.Graph.create_op)


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


def functions_of(node: Any) -> set[str]:
    """Returns the names of the functions that a node calls or passes on."""
    values = node.attr.values()
    names = {each.name for value in values for each in value.list.func}
    names.update(value.func.name for value in values if value.HasField("func"))
    return names


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
