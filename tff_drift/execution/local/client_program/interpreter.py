"""Graphs with variables, evaluated as functions of tensors.

A client's computation is a graph that assigns and reads variables. Running many
clients in one graph needs the same computation without them: a pure function from
the variables' values before to their values after. The interpreter here walks a graph
in the order of its dependencies and adds its operations, one by one, to the graph
being built; a variable is a Python object that holds its present value, and calls,
branches and loops are entered so that no variable hides in them. Operations are kept
in order by their data; of the others, only the checks that a graph makes are kept.

A `Dataset.reduce` is not entered, nor is a loop over gathered batches: what it stands
for is up to the caller, who gives `on_reduce`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program import convolutions, loops, plain_forms
from tff_drift.execution.local.client_program.loops import ListInGraph, Reduce
from tff_drift.execution.local.client_program.nodes import (
    Checks,
    Frame,
    UnsupportedGraphError,
    Variable,
    after,
    data_inputs,
    distinct_variables,
    emit,
    in_order,
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
NESTED_LOOP = "a loop in a loop"
UNKNOWN_SHAPES = "a branch with results of any shape"


class GraphInterpreter:
    """Evaluates one graph.

    Args:
      graph_def: The graph.
      on_reduce: Of a `Reduce` to the final state, a list of tensors.
      with_products: Whether to add products in place of small convolutions.

    Attributes:
      functions: The functions of the graph's library, by their names.
      variables: The variables, in the order in which the graph makes them.
      operations: The kinds of operations added so far; `NESTED_LOOP` for a loop in a
        loop, `UNKNOWN_SHAPES` for a branch whose results may be of another shape than
        the other one's.
    """

    def __init__(
        self,
        graph_def: Any,
        on_reduce: Callable[[Reduce], list[Any]],
        *,
        with_products: bool = False,
    ) -> None:
        self._graph_def = graph_def
        self.functions = {
            function.signature.name: function for function in graph_def.library.function
        }
        self._on_reduce = on_reduce
        self._with_products = with_products
        self._patches: dict[Any, tf.Tensor] = {}
        self._checks = Checks()
        self.variables: list[Variable] = []
        self.operations: set[str] = set()
        self._loops_around = 0
        # Of what loops save for later ones.
        self._numbers = itertools.count()

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
        frame = Frame({name: [value] for name, value in feeds.items()})
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
        function = self.functions.get(name)
        if function is None:
            raise UnsupportedGraphError(f"there is no function {name!r}")
        names = [argument.name for argument in function.signature.input_arg]
        if len(names) != len(arguments):
            raise UnsupportedGraphError(f"{name!r} takes lists of arguments")
        frame = Frame({n: [value] for n, value in zip(names, arguments, strict=True)})
        self._run(function.node_def, frame)
        results = [
            frame.value(function.ret[result.name])
            for result in function.signature.output_arg
        ]
        effects = [frame.outputs[name] for name in function.control_ret.values()]
        return results or self._checks.among(itertools.chain(*effects))

    def _run(self, nodes: Iterable[Any], frame: Frame) -> None:
        for node in in_order(nodes, set(frame.outputs)):
            inputs = [frame.value(name) for name in data_inputs(node)]
            checks = self._checks.among(frame.outputs_before(node))
            if node.op == "NoOp":
                frame.outputs[node.name] = checks
                continue
            outputs, layout = self.run_node(node, after(checks, inputs))
            if not inputs:
                outputs = after(checks, outputs)
            frame.outputs[node.name], frame.layouts[node.name] = outputs, layout
            if self._may_fail(node):
                self._checks.add(outputs)

    def run_node(self, node: Any, inputs: list[Any]) -> tuple[list[Any], Any]:
        """Evaluates a node.

        Args:
          node: The node.
          inputs: Its inputs: tensors, variables, and what stands for datasets.

        Returns:
          The outputs, and where each named output starts.

        Raises:
          UnsupportedGraphError: If it is not a function of tensors.
        """
        has_lists = any(isinstance(value, ListInGraph) for value in inputs)
        if has_lists and node.op in LOOPS:
            return self._loop_over_lists(node, inputs), {"output": 0}
        if node.op == "VarHandleOp":
            variable = Variable(shape=tf.TensorShape(node.attr["shape"].shape))
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
        if has_lists and node.op not in self.functions:
            return next(x for x in inputs if isinstance(x, ListInGraph)).use(
                node, inputs
            )
        if node.op == "Assert":
            self.operations.add(node.op)
            return [tf.debugging.Assert(inputs[0], inputs[1:])], {}
        if any(isinstance(value, Variable) for value in inputs):
            return use_variable(node, inputs)
        if node.op in self.functions:
            outputs = self.call_function(node.op, inputs)
            names = self.functions[node.op].signature.output_arg
            return outputs, {arg.name: index for index, arg in enumerate(names)}
        if node.op == "Identity" and not tf.is_tensor(inputs[0]):
            return inputs, {"output": 0}
        if not all(tf.is_tensor(value) for value in inputs):
            raise UnsupportedGraphError(
                f"it has the operation {node.op!r} on a dataset"
            )
        if any(part in node.op for part in _DATASET_OPERATIONS):
            raise UnsupportedGraphError(f"it has the dataset operation {node.op!r}")
        if patterns.functions_of(node):
            raise UnsupportedGraphError(
                f"it has the operation {node.op!r} on functions"
            )
        self.operations.add(node.op)
        outputs, layout = emit(node, inputs)
        if node.op in plain_forms.KINDS:
            return plain_forms.as_plain(outputs[0].op) or outputs, layout
        other = None
        if self._with_products and node.op in convolutions.KINDS:
            other = convolutions.as_product(outputs[0].op, self._patches)
        elif self._with_products and node.op == "MaxPool":
            pool = outputs[0].op
            other = plain_forms.pooled_by_one_thread(pool, pool.inputs[0])
        return outputs if other is None else [other], layout

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

    def _loop_over_lists(self, node: Any, inputs: list[Any]) -> list[Any]:
        reduce = loops.over_lists(node, inputs, _shapes(node), self._numbers)
        last = self._on_reduce(reduce)
        assert reduce.lists is not None
        return reduce.lists.last_values(inputs, last)

    def _while(self, node: Any, inputs: list[Any]) -> list[Any]:
        def call(attribute: str) -> Callable[[list[Any]], list[Any]]:
            name = node.attr[attribute].func.name
            return lambda values: self.call_function(name, values)

        self.operations.add(node.op)
        return self.loop(call("cond"), call("body"), inputs, _shapes(node))

    def loop(
        self,
        condition: Callable[[list[Any]], list[Any]],
        body: Callable[[list[Any]], list[Any]],
        values: list[Any],
        shapes: Sequence[tf.TensorShape],
        parallel_iterations: int = 10,
    ) -> list[Any]:
        """Adds a loop.

        Args:
          condition: Of the values to a list with a Boolean: whether to go on.
          body: Of the values to the next ones.
          values: The first values, tensors and variables. A variable stays where it
            is.
          shapes: The shape of each value that is a tensor.
          parallel_iterations: How many steps may be taken at a time.

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
            for place, tensor in zip(
                places, without_values(list(tensors), carried), strict=True
            ):
                all_values[place] = tensor
            return all_values

        def run_condition(*tensors: tf.Tensor) -> tf.Tensor:
            return tf.cast(condition(unpack(tensors))[0], tf.bool)

        def run_body(*tensors: tf.Tensor) -> list[tf.Tensor]:
            results = body(unpack(tensors))
            new = [results[place] for place in places]
            new += [variable.read() for variable in carried]
            for tensor, shape in zip(new, invariants, strict=True):
                tensor.set_shape(shape)
            return [tf.identity(tensor) for tensor in new]

        invariants = [shapes[place] for place in places]
        invariants += [variable.shape for variable in carried]
        self._loops_around += 1
        results = tf.while_loop(
            run_condition,
            run_body,
            [*(values[place] for place in places), *before],
            shape_invariants=invariants,
            parallel_iterations=parallel_iterations,
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
                for variable, value in zip(variables, before, strict=True):
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
            self.operations.add(node.op)
            results = tf.nest.flatten(tf.cond(condition, *branches))
            if not all(result.shape.is_fully_defined() for result in results):
                self.operations.add(UNKNOWN_SHAPES)
        return without_values(results, variables)

    def _may_fail(self, node: Any) -> bool:
        """Whether a node is a check, or a branch or a call with one in it."""
        names = patterns.functions_of(node) & self.functions.keys()
        functions = [self.functions[name] for name in names]
        return patterns.has_check([node.op]) or any(
            self._may_fail(inner) for each in functions for inner in each.node_def
        )

    def _is_cheap(self, name: str) -> bool:
        """Whether a function may as well be evaluated in vain."""
        return all(
            self._is_cheap(node.attr["f"].func.name)
            if node.op in _CALLS
            else node.op in _CHEAP
            for node in self.functions[name].node_def
        )


def _choices(
    condition: tf.Tensor, if_true: list[tf.Tensor], if_false: list[tf.Tensor]
) -> list[tf.Tensor] | None:
    """Returns one of two lists of tensors; None if their shapes may differ."""
    for one, other in zip(if_true, if_false, strict=True):
        if one.shape != other.shape or not one.shape.is_fully_defined():
            return None
    return [tf.where(condition, *pair) for pair in zip(if_true, if_false, strict=True)]


def _shapes(node: Any) -> list[tf.TensorShape]:
    """Returns the shapes of a loop's values, which a node may leave out."""
    types = node.attr["output_types" if "output_types" in node.attr else "T"]
    shapes = node.attr["output_shapes"].list.shape
    unknown = [None] * len(types.list.type)
    return [tf.TensorShape(shape) for shape in shapes or unknown]
