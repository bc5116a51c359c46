"""Graphs with variables, evaluated as functions of tensors.

A client's computation is a graph that assigns and reads variables. Running many
clients in one graph needs the same computation without them: a pure function from
the variables' values before to their values after. The interpreter here walks a graph
in the order of its dependencies and adds its operations, one by one, to the graph
being built; a variable is a Python object that holds its present value, and calls,
branches and loops are entered so that no variable hides in them. Operations are kept
in order by their data; of the others, only the checks that a graph makes are kept.

A `Dataset.reduce` is not entered: what it stands for is up to the caller, who gives
`on_reduce`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.pure.variables import (
    UnsupportedGraphError,
    Variable,
    distinct_variables,
    use_variable,
    without_values,
)

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_BRANCH_NAMES = ("then_branch", "else_branch")
# What branches consist of that reset something, such as metrics.
_CHEAP = frozenset(
    {"AssignVariableOp", "Const", "Fill", "Identity", "NoOp", "ReadVariableOp"}
)
LOOPS = frozenset({"While", "StatelessWhile"})
_DATASET_OPERATIONS = ("Dataset", "Iterator", "Optional")
# Attributes that TensorFlow adds for itself: of shapes and of placement.
_LEFT_OUT_ATTRIBUTES = ("_output_shapes", "_class")
NESTED_LOOP = "a loop in a loop"


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A `Dataset.reduce` that the evaluation has come to.

    Attributes:
      dataset: The value that stands for the dataset.
      state: The initial state, a tensor for each part.
      arguments: What the step takes besides state and element: tensors and
        variables.
      step: The step's function, for `GraphInterpreter.call_function`.
      shapes: The shapes of the state, which hold before and after every step.
    """

    dataset: Any
    state: list[tf.Tensor]
    arguments: list[Any]
    step: Any
    shapes: list[tf.TensorShape]


class GraphInterpreter:
    """Evaluates one graph.

    Args:
      graph_def: The graph.
      on_reduce: Of a `Reduce` to the final state, a list of tensors.

    Attributes:
      variables: The variables, in the order in which the graph makes them.
      operations: The kinds of operations met so far; `NESTED_LOOP` for a loop in a
        loop.
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
        self._loops_around = 0

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
        frame = _Frame({name: [value] for name, value in feeds.items()})
        self._run(self._graph_def.node, frame)
        return [frame.value(name) for name in fetches]

    def call_function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Evaluates a function of the graph's library.

        Args:
          name: The function.
          arguments: TensorList and variables.

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
        frame = _Frame({n: [value] for n, value in zip(names, arguments)})
        self._run(function.node_def, frame)
        return [
            frame.value(function.ret[result.name])
            for result in function.signature.output_arg
        ]

    def _run(self, nodes: Iterable[Any], frame: _Frame) -> None:
        for node in _in_order(nodes, set(frame.outputs)):
            inputs = [frame.value(name) for name in _data_inputs(node)]
            checks = frame.checks_before(node)
            if node.op == "NoOp":
                frame.outputs[node.name], frame.checks[node.name] = [], checks
                continue
            outputs, layout = self._run_node(node, _after(checks, inputs))
            frame.outputs[node.name], frame.layouts[node.name] = outputs, layout
            if self._may_fail(node):
                frame.checks[node.name] = [
                    getattr(output, "op", output)
                    for output in outputs
                    if isinstance(output, (tf.Tensor, tf.Operation))
                ]

    def _run_node(self, node: Any, inputs: list[Any]) -> tuple[list[Any], Any]:
        """Returns the outputs of a node, and where each named output starts."""
        self.operations.add(node.op)
        if node.op == "VarHandleOp":
            variable = Variable()
            self.variables.append(variable)
            return [variable], {"resource": 0}
        if node.op in _CALLS:
            return self.call_function(node.attr["f"].func.name, inputs), {"output": 0}
        if node.op == "ReduceDataset":
            return self._reduce(node, inputs), {"components": 0}
        if node.op in _BRANCHES:
            return self._branch(node, inputs), {"output": 0}
        if node.op in LOOPS:
            return self._while(node, inputs), {"output": 0}
        if node.op == "Assert":
            return [tf.debugging.Assert(inputs[0], inputs[1:])], {}
        if any(isinstance(value, Variable) for value in inputs):
            return use_variable(node, inputs)
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
            _shapes(node),
        )
        return self._on_reduce(reduce)

    def _while(self, node: Any, inputs: list[Any]) -> list[Any]:
        def call(attribute: str) -> Callable[[list[Any]], list[Any]]:
            name = node.attr[attribute].func.name
            return lambda values: self.call_function(name, values)

        return self.loop(call("cond"), call("body"), inputs, _shapes(node))

    def loop(
        self,
        condition: Callable[[list[Any]], list[Any]],
        body: Callable[[list[Any]], list[Any]],
        values: list[Any],
        shapes: Sequence[tf.TensorShape],
    ) -> list[Any]:
        """Adds a loop.

        Args:
          condition: Of the values to a list with a Boolean: whether to go on.
          body: Of the values to the next ones.
          values: The first values, tensors and variables. A variable stays where it
            is.
          shapes: The shape of each value that is a tensor.

        Returns:
          The last values.

        Raises:
          UnsupportedGraphError: If the loop is not a function of tensors.
        """
        self.operations.update([NESTED_LOOP] if self._loops_around else [])
        given = distinct_variables(values)
        carried = [variable for variable in given if variable.value is not None]
        places = [k for k, value in enumerate(values) if tf.is_tensor(value)]
        before = [variable.read() for variable in carried]

        def unpack(tensors: Sequence[tf.Tensor]) -> list[Any]:
            for variable in given:
                variable.value = None
            all_values = list(values)
            for place, tensor in zip(places, without_values(list(tensors), carried)):
                all_values[place] = tensor
            return all_values

        def run_condition(*tensors: tf.Tensor) -> tf.Tensor:
            return tf.cast(condition(unpack(tensors))[0], tf.bool)

        def run_body(*tensors: tf.Tensor) -> list[tf.Tensor]:
            results = body(unpack(tensors))
            new = [results[place] for place in places]
            new += [variable.read() for variable in carried]
            for tensor, shape in zip(new, invariants):
                tensor.set_shape(shape)
            return [tf.identity(tensor) for tensor in new]

        invariants = [shapes[place] for place in places]
        invariants += [tensor.shape for tensor in before]
        self._loops_around += 1
        results = tf.while_loop(
            run_condition,
            run_body,
            [*(values[place] for place in places), *before],
            shape_invariants=invariants,
        )
        self._loops_around -= 1
        return unpack(results)

    def _branch(self, node: Any, inputs: list[Any]) -> list[Any]:
        predicate, *arguments = inputs
        variables = distinct_variables(arguments)

        def branch(name: str) -> Callable[[], list[tf.Tensor]]:
            def run() -> list[tf.Tensor]:
                before = [variable.read() for variable in variables]
                results = self.call_function(node.attr[name].func.name, arguments)
                results = [*results, *(variable.read() for variable in variables)]
                for variable, value in zip(variables, before):
                    variable.assign(value)
                return [tf.identity(result) for result in results]

            return run

        condition = tf.cast(predicate, tf.bool)
        branches = branch("then_branch"), branch("else_branch")
        results = None
        if all(self._is_cheap(node.attr[name].func.name) for name in _BRANCH_NAMES):
            # A choice is stacked at once, where a branch takes a second to build.
            results = _choices(condition, *(run() for run in branches))
        if results is None:
            results = tf.nest.flatten(tf.cond(condition, *branches))
        return without_values(results, variables)

    def _may_fail(self, node: Any) -> bool:
        """Whether a node is a check, or a branch or a call with one in it."""
        names = {value.func.name for value in node.attr.values()}
        functions = [self._functions[name] for name in names & self._functions.keys()]
        return patterns.has_check([node.op]) or any(
            self._may_fail(inner) for each in functions for inner in each.node_def
        )

    def _is_cheap(self, name: str) -> bool:
        """Whether a function may as well be evaluated in vain."""
        return all(node.op in _CHEAP for node in self._functions[name].node_def)


def _choices(
    condition: tf.Tensor, if_true: list[tf.Tensor], if_false: list[tf.Tensor]
) -> list[tf.Tensor] | None:
    """Returns one of two lists of tensors; None if their shapes may differ."""
    for one, other in zip(if_true, if_false):
        if one.shape != other.shape or not one.shape.is_fully_defined():
            return None
    return [tf.where(condition, *pair) for pair in zip(if_true, if_false)]


class _Frame:
    """The values of the nodes of one graph or one function's body."""

    def __init__(self, outputs: dict[str, list[Any]]) -> None:
        self.outputs = outputs
        self.layouts: dict[str, dict[str, int]] = {}
        self.checks: dict[str, list[tf.Operation]] = {}

    def checks_before(self, node: Any) -> list[tf.Operation]:
        """Returns the checks that have to be made before a node is run."""
        names = [name[1:] for name in node.input if name.startswith("^")]
        return [check for name in names for check in self.checks.get(name, ())]

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


def _after(checks: list[tf.Operation], values: list[Any]) -> list[Any]:
    """Returns values that are there after checks only."""
    if not checks:
        return values
    with tf.control_dependencies(checks):
        return [
            tf.identity(value) if tf.is_tensor(value) else value for value in values
        ]


def _shapes(node: Any) -> list[tf.TensorShape]:
    return [tf.TensorShape(shape) for shape in node.attr["output_shapes"].list.shape]


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
    attributes = {
        name: value
        for name, value in node.attr.items()
        if name not in _LEFT_OUT_ATTRIBUTES
    }
    # `tf.graph_util.import_graph_def` takes several times as long for one node.
    operation = tf.compat.v1.get_default_graph().create_op(
        node.op, inputs, name="operation", attrs=attributes
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
