"""The runner of one client at a time: its steps follow each other in a loop.

TFF's `Dataset.reduce`, in which clients train, is one operation, which makes the step's
function anew at every call: for a small model that takes far longer than the step. So
the client's graph is evaluated by the interpreter, and each loop over a dataset becomes
one of the graph:

    element = the iterator's first, or none
    while there is an element:
        state = step(state, element, arguments)
        element = the iterator's next, or none

What is not concerned, neither by variables nor by a loop over a dataset, is taken over
as it is. A graph that is not a function of tensors runs as TFF made it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

# Private: nothing public says which operations are stateful.
from tensorflow.python.framework import op_def_registry

from tff_drift.execution.local import patterns, tensors
from tff_drift.execution.local.client_program import nodes
from tff_drift.execution.local.client_program.interpreter import GraphInterpreter
from tff_drift.execution.local.client_program.loops import Reduce
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.graphs import functions
from tff_drift.execution.local.graphs.functions import PhaseFunction, TensorFunction
from tff_drift.execution.local.tensors import TensorList

_CPU = "/device:CPU:0"
_LOOP = "ReduceDataset"
# What the interpreter knows how to evaluate, though it has only tensors for inputs.
_EVALUATED = frozenset({_LOOP, "Assert", "NoOp", "VarHandleOp"})
# Stateful operations, besides those that draw numbers, that may run in any order: they
# have no effects, are followed by what waits for them, or are looked into.
_IN_ANY_ORDER = re.compile(
    r"(Assert|Case|CheckNumerics(V2)?|If|RestoreV2|StatefulPartitionedCall|While"
    r"|.*Dataset(V\d)?|.*SeedGenerator)$"
)


class SequentialRunner:
    """Runs the operations of a phase at one place, for one client or the server.

    The function is built at its first run.

    Args:
      function: The operations.
      functionalize: Whether loops over datasets become loops of the graph.

    Attributes:
      function: The same.
    """

    def __init__(self, function: PhaseFunction, functionalize: bool) -> None:
        self.function = function
        self._functionalize = functionalize

    @functools.cached_property
    def _program(self) -> tuple[Callable[..., Any], str | None]:
        """The function that runs, and why TFF's own graph runs if it has a loop."""
        function, why = self._as_loops_of_the_graph()
        return functions.for_threads(function), why

    def _as_loops_of_the_graph(self) -> tuple[TensorFunction, str | None]:
        function = self.function.function
        if not any(map(_is_loop, patterns.all_nodes(function.graph.as_graph_def()))):
            return function, None
        if not self._functionalize:
            return function, "functionalize_clients is False"
        try:
            return _functionalized(function), None
        except UnsupportedGraphError as error:
            return function, str(error)
        except Exception as error:  # TensorFlow's own, of any class.
            return function, f"{type(error).__name__}: {str(error).strip()}"

    def build(self) -> None:
        """Builds what is run, unless it has been done."""
        _ = self._program

    @property
    def why_as_imported(self) -> str | None:
        """Why it runs as TFF's graph though it loops over data; None if it does not."""
        return self._program[1]

    def __call__(
        self, inputs: Iterable[tf.Tensor], device: str | None
    ) -> Sequence[tf.Tensor]:
        """Runs the operations on a device; returns the function's outputs."""
        run = self._program[0]
        if device is None:
            results = run(*inputs)
        else:
            with tf.device(device):
                results = run(*inputs)
        tensors.give_back_attributes(results)
        return results


def _functionalized(function: TensorFunction) -> TensorFunction:
    graph_def = function.graph.as_graph_def()
    names = [tensor.op.name for tensor in function.inputs]
    fetches = [tensor.name for tensor in function.outputs]

    def run(*inputs: tf.Tensor) -> TensorList:
        return _Interpreter(graph_def).evaluate(
            dict(zip(names, inputs, strict=True)), fetches
        )

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in function.inputs]
    # Not where the client that comes first happens to run.
    with tf.device(None):
        return functions.trace(run, specs)


class _Interpreter(GraphInterpreter):
    """Evaluates a client's graph with loops over its datasets."""

    def __init__(self, graph_def: Any) -> None:
        super().__init__(graph_def, self._take_steps)
        self._last_pass: TensorList = []
        # The functions that operations taken over call.
        library = tf.compat.v1.GraphDef(library=graph_def.library)
        tf.graph_util.import_graph_def(library, name="")

    def run_node(self, node: Any, inputs: list[Any]) -> tuple[list[Any], Any]:
        """See `GraphInterpreter.run_node`."""
        if node.op in _EVALUATED or node.op in self.functions:
            return super().run_node(node, inputs)
        if not all(map(tf.is_tensor, inputs)):
            return super().run_node(node, inputs)
        called = list(self._called_by(node))
        if any(map(_is_loop, called)):
            return super().run_node(node, inputs)
        for name in (node.op, *(each.op for each in called)):
            if _wants_order(name):
                raise UnsupportedGraphError(f"it has the operation {name!r}")
        if not node.device:  # As nearly all: a scope takes as long as the node.
            return nodes.emit(node, inputs)
        with tf.device(node.device):
            return nodes.emit(node, inputs)

    def _called_by(self, node: Any) -> Iterable[Any]:
        """Yields the nodes of the functions that a node calls."""
        names = {node.op, *patterns.functions_of(node)}
        for name in names & self.functions.keys():
            yield from self._nodes_of(name)

    def _nodes_of(self, function: str) -> Iterable[Any]:
        """Yields the nodes of a function and of those that it calls."""
        for node in self.functions[function].node_def:
            yield node
            yield from self._called_by(node)

    def _of_elements(self, reduce: Reduce) -> dict[str, Any]:
        """Returns the attributes that operations on the dataset have."""
        function = self.functions[reduce.function]
        arguments = function.signature.input_arg
        shapes = []
        positions = range(len(reduce.state), len(arguments) - len(reduce.arguments))
        for position in positions:
            known = function.arg_attr[position].attr["_output_shapes"].list.shape
            shapes.append(tf.TensorShape(known[0] if len(known) == 1 else None))
        return {
            "output_types": [tf.as_dtype(arguments[k].type) for k in positions],
            "output_shapes": shapes,
        }

    def _take_steps(self, reduce: Reduce) -> list[Any]:
        # Where TFF's graph runs, every client's pass starts their streams over.
        if any(map(patterns.draws_from_a_seed, self._nodes_of(reduce.function))):
            raise UnsupportedGraphError("its steps draw seeded random numbers")
        of_elements = self._of_elements(reduce)
        here = tf.compat.v1.get_default_graph()
        # Passes follow each other: one shuffled dataset has an order for each.
        before = [tensor for tensor in self._last_pass if tensor.graph is here]
        with tf.device(_CPU):
            dataset = tf.raw_ops.OptionsDataset(
                input_dataset=reduce.dataset,
                serialized_options=sequences.unoptimized(),
                **of_elements,
            )
            iterator = tf.raw_ops.AnonymousIteratorV3(**of_elements)
            with tf.control_dependencies(before):
                start = tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)

        def next_after(done: Sequence[Any]) -> tf.Tensor:
            with tf.control_dependencies(done), tf.device(_CPU):
                return tf.raw_ops.IteratorGetNextAsOptional(
                    iterator=iterator, **of_elements
                )

        num_state = len(reduce.state)
        variables = [each for each in reduce.arguments if not tf.is_tensor(each)]

        def condition(values: list[Any]) -> list[Any]:
            with tf.device(_CPU):
                return [tf.raw_ops.OptionalHasValue(optional=values[num_state])]

        def body(values: list[Any]) -> list[Any]:
            with tf.device(_CPU):
                element = tf.raw_ops.OptionalGetValue(
                    optional=values[num_state], **of_elements
                )
            given = [*values[:num_state], *element, *reduce.arguments]
            state = self.call_function(reduce.function, given)
            # The step first: it may be what the dataset reads from.
            return [*state, next_after(state), *variables]

        values = [*reduce.state, next_after([start]), *variables]
        unknown = [tf.TensorShape(None)] * (1 + len(variables))
        last = self.loop(
            condition,
            body,
            values,
            [*reduce.shapes, *unknown],
            parallel_iterations=1,
        )
        self._last_pass = last[:num_state]
        return self._last_pass


def _is_loop(node: Any) -> bool:
    return node.op == _LOOP


def _wants_order(name: str) -> bool:
    """Whether an operation has effects, in an order that would not be kept here."""
    definition = op_def_registry.get(name)
    if definition is None or not definition.is_stateful:
        return False
    draws = any(attribute.name == "seed" for attribute in definition.attr)
    return not draws and not _IN_ANY_ORDER.match(name)
