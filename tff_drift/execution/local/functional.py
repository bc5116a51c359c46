"""Graphs with variables, evaluated as functions of tensors.

A client's computation is a graph that assigns and reads variables. Running many
clients in one graph needs the same computation without them: a pure function from
the variables' values before to their values after. The evaluator here walks a graph
in the order of its dependencies and adds its operations, one by one, to the graph
being built; a variable is a Python object that holds its present value, and calls and
branches are entered so that no variable hides in them.

A `Dataset.reduce` is not entered: what it stands for is up to the caller, who gives
`on_reduce`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

_RESOURCE = tf.resource.as_datatype_enum
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_DATASET_OPERATIONS = ("Dataset", "Iterator", "Optional")
# Attributes that TensorFlow adds for itself: of shapes and of placement.
_LEFT_OUT_ATTRIBUTES = ("_output_shapes", "_class")


class UnsupportedGraphError(Exception):
    """A graph holds something that is not a function of tensors."""


@dataclasses.dataclass(eq=False)
class Variable:
    """A variable while its graph is evaluated.

    Attributes:
      value: Its present value, None before the first assignment.
      first_value_read: Whether the value that it was made with has been read.
    """

    value: tf.Tensor | None = None
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


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A `Dataset.reduce` that the evaluation has come to.

    Attributes:
      dataset: The value that stands for the dataset.
      state: The initial state, a tensor for each part.
      arguments: What the step takes besides state and element: tensors and
        variables.
      step: The step's function, for `Evaluator.call_function`.
    """

    dataset: Any
    state: list[tf.Tensor]
    arguments: list[Any]
    step: Any


class Evaluator:
    """Evaluates one graph.

    Args:
      graph_def: The graph.
      on_reduce: Of a `Reduce` to the final state, a list of tensors.

    Attributes:
      variables: The variables, in the order in which the graph makes them.
      operations: The kinds of operations met so far.
    """

    def __init__(
        self, graph_def: Any, on_reduce: Callable[[Reduce], list[tf.Tensor]]
    ) -> None:
        self._graph_def = graph_def
        self._functions = {
            function.signature.name: function for function in graph_def.library.function
        }
        self._on_reduce = on_reduce
        self.variables: list[Variable] = []
        self.operations: set[str] = set()

    def evaluate(
        self, feeds: Mapping[str, Any], fetches: Sequence[str]
    ) -> list[tf.Tensor]:
        """Evaluates the graph.

        Args:
          feeds: Values by the names of the nodes that they replace.
          fetches: Names of tensors.

        Returns:
          The values of `fetches`.

        Raises:
          UnsupportedGraphError: If the graph is not a function of tensors.
        """
        frame = _Frame({name: [value] for name, value in feeds.items()}, {})
        self._run(self._graph_def.node, frame)
        return [frame.value(name) for name in fetches]

    def call_function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Evaluates a function of the graph's library.

        Args:
          name: The function.
          arguments: Tensors and variables.

        Returns:
          Its results.

        Raises:
          UnsupportedGraphError: If the function is not one of tensors.
        """
        function = self._functions.get(name)
        if function is None:
            raise UnsupportedGraphError(f"there is no function {name!r}")
        names = [argument.name for argument in function.signature.input_arg]
        if len(names) != len(arguments):
            raise UnsupportedGraphError(f"{name!r} takes lists of arguments")
        frame = _Frame({n: [value] for n, value in zip(names, arguments)}, {})
        self._run(function.node_def, frame)
        return [
            frame.value(function.ret[result.name])
            for result in function.signature.output_arg
        ]

    def _run(self, nodes: Iterable[Any], frame: _Frame) -> None:
        for node in _in_order(nodes, set(frame.outputs)):
            inputs = [frame.value(name) for name in _data_inputs(node)]
            outputs, layout = self._run_node(node, inputs)
            frame.outputs[node.name] = outputs
            frame.layouts[node.name] = layout

    def _run_node(self, node: Any, inputs: list[Any]) -> tuple[list[Any], Any]:
        """Returns the outputs of a node, and where each named output starts."""
        self.operations.add(node.op)
        if node.op == "VarHandleOp":
            variable = Variable()
            self.variables.append(variable)
            return [variable], {"resource": 0}
        if node.op == "NoOp":
            return [], {}
        if node.op in _CALLS:
            return self.call_function(node.attr["f"].func.name, inputs), {"output": 0}
        if node.op == "ReduceDataset":
            return self._reduce(node, inputs), {"components": 0}
        if node.op in _BRANCHES:
            return self._branch(node, inputs), {"output": 0}
        if node.op in _LOOPS:
            # TensorFlow vectorizes loops, but fails on the lists of tensors that the
            # gradients of loops are made of.
            raise UnsupportedGraphError("it has a loop, as recurrent layers do")
        if any(isinstance(value, Variable) for value in inputs):
            return _use_variable(node, inputs)
        if node.op in self._functions:
            outputs = self.call_function(node.op, inputs)
            names = self._functions[node.op].signature.output_arg
            return outputs, {arg.name: index for index, arg in enumerate(names)}
        if not all(tf.is_tensor(value) for value in inputs):
            raise UnsupportedGraphError(
                f"it has the operation {node.op!r} on a dataset"
            )
        if any(part in node.op for part in _DATASET_OPERATIONS):
            raise UnsupportedGraphError(f"it has the dataset operation {node.op!r}")
        return _emit(node, inputs)

    def _reduce(self, node: Any, inputs: list[Any]) -> list[tf.Tensor]:
        num_state = len(node.attr["Tstate"].list.type)
        reduce = Reduce(
            inputs[0],
            inputs[1 : 1 + num_state],
            inputs[1 + num_state :],
            node.attr["f"].func.name,
        )
        return self._on_reduce(reduce)

    def _branch(self, node: Any, inputs: list[Any]) -> list[Any]:
        predicate, *arguments = inputs
        variables = _distinct_variables(arguments)

        def branch(name: str) -> Callable[[], list[tf.Tensor]]:
            def run() -> list[tf.Tensor]:
                before = [variable.read() for variable in variables]
                results = self.call_function(node.attr[name].func.name, arguments)
                results = [*results, *(variable.read() for variable in variables)]
                for variable, value in zip(variables, before):
                    variable.assign(value)
                return [tf.identity(result) for result in results]

            return run

        results = tf.cond(
            tf.cast(predicate, tf.bool), branch("then_branch"), branch("else_branch")
        )
        results = tf.nest.flatten(results)
        return _without_values(results, variables)


class _Frame:
    """The values of the nodes of one graph or one function's body."""

    def __init__(
        self, outputs: dict[str, list[Any]], layouts: dict[str, dict[str, int]]
    ) -> None:
        self.outputs = outputs
        self.layouts = layouts

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


def _data_inputs(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def _in_order(nodes: Iterable[Any], done: set[str]) -> Iterable[Any]:
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


def _emit(node: Any, inputs: Sequence[tf.Tensor]) -> tuple[list[Any], dict[str, int]]:
    """Adds a node to the graph being built."""
    graph_def = tf.compat.v1.GraphDef()
    copy = graph_def.node.add()
    copy.CopyFrom(node)
    copy.name = "operation"
    copy.device = ""
    copy.ClearField("input")
    for attribute in _LEFT_OUT_ATTRIBUTES:
        copy.attr.pop(attribute, None)
    input_map = {}
    here = tf.compat.v1.get_default_graph()
    for index, tensor in enumerate(inputs):
        placeholder = graph_def.node.add(name=f"input_{index}", op="Placeholder")
        placeholder.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
        copy.input.append(f"input_{index}")
        # Tensors of an outer graph have to be captured before they are mapped.
        input_map[f"input_{index}:0"] = (
            tensor if tensor.graph is here else tf.identity(tensor)
        )
    (operation,) = tf.graph_util.import_graph_def(
        graph_def, input_map, ["operation"], name=""
    )
    return list(operation.outputs), _layout(operation)


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


def _use_variable(node: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, int]]:
    """Evaluates an operation on a variable."""
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
        variable.assign(others[0])
        return [], {}
    if node.op == "AssignAddVariableOp":
        variable.assign(variable.read() + others[0])
        return [], {}
    if node.op == "AssignSubVariableOp":
        variable.assign(variable.read() - others[0])
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


def _distinct_variables(values: Iterable[Any]) -> list[Variable]:
    variables = [value for value in values if isinstance(value, Variable)]
    if len(set(map(id, variables))) != len(variables):
        raise UnsupportedGraphError("one variable is passed on under two names")
    return variables


def _without_values(
    results: list[tf.Tensor], variables: Sequence[Variable]
) -> list[tf.Tensor]:
    """Assigns the last results to the variables; returns the others."""
    num_results = len(results) - len(variables)
    for variable, value in zip(variables, results[num_results:]):
        variable.assign(value)
    return results[:num_results]
