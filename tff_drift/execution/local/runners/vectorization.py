"""Functions of stacks of tensors, made from functions of one client's tensors.

`tf.vectorized_map` does that, and calls the function within the graph of the stacks,
where its operations stay, of no use. Here it is called once, in a graph of its own,
whatever its operations are then added to, and however often.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Private: `tf.vectorized_map` takes no graph.
from tensorflow.python.framework import func_graph
from tensorflow.python.ops.parallel_for.pfor import PFor, wrap

from tff_drift.execution.local import patterns
from tff_drift.execution.local.graphs import functions, import_graph
from tff_drift.execution.local.graphs.saved_functions import SavedFunctions
from tff_drift.execution.local.tensors import TensorList


def concrete(
    function: Callable[..., TensorList],
    signature: Any,
    saved: SavedFunctions | None = None,
    content: Sequence[Any] = (),
) -> Any:
    """Returns a TensorFlow function, traced, or loaded if it has been saved.

    Args:
      function: What is traced.
      signature: The specs of its arguments, in their structure.
      saved: Where traced functions are kept, None for nowhere.
      content: All that the function is made of, see `SavedFunctions.get`.
    """
    specs = tf.nest.flatten(signature)

    def trace() -> Any:
        # A function of a flat list of tensors is called with little ado in Python.
        return functions.trace(
            lambda *flat: function(*tf.nest.pack_sequence_as(signature, flat)), specs
        )

    flat = trace() if saved is None else saved.get(content, specs, trace)
    run = functions.for_threads(flat, of_clients=True)
    return lambda *parts: run(*tf.nest.flatten(parts))


class OfOneClient:
    """A function of one client's tensors, called once.

    Args:
      function: The function.
      specs: Those of its arguments, in their structure.
    """

    def __init__(
        self, function: Callable[..., TensorList], specs: Sequence[Any]
    ) -> None:
        self._graph = func_graph.FuncGraph("of_one_client")
        with self._graph.as_default():
            flat = tf.nest.flatten(specs)
            self._inputs = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in flat]
            results = function(*tf.nest.pack_sequence_as(specs, self._inputs))
            self._results = [self._graph.capture(result) for result in results]
            self._client = tf.compat.v1.placeholder_with_default(0, [])
        operations = self._graph.get_operations()
        self._checks = [
            operation
            for operation in operations
            if patterns.has_check([operation.type]) and not operation.outputs
        ]

    def of_many(self, stacks: Sequence[tf.Tensor]) -> TensorList:
        """Adds the function of many clients to the current graph.

        Args:
          stacks: The arguments of all clients, stacked, without their structure.

        Returns:
          The results, stacked.
        """
        number = stacks[0].shape[0]
        # What TensorFlow would do in a loop may have results of another shape for each
        # client; of what may not, `vectorizable` knows.
        converter = PFor(
            self._client,
            tf.shape(stacks[0])[0] if number is None else tf.constant(number),
            self._graph.get_operations(),
            fallback_to_while_loop=False,
        )
        for tensor, stack in zip(self._inputs, stacks, strict=True):
            # A single client has the operations of one.
            given = wrap(stack[0], False) if number == 1 else wrap(stack, True)
            converter._add_conversion(tensor, given)
        for outer, tensor in self._graph.captures:
            converter._add_conversion(tensor, wrap(outer, False))
        for check in self._checks:
            converter.convert(check)
        return [_stacked(converter, result, number) for result in self._results]

    def of_one(self, arguments: Sequence[tf.Tensor]) -> TensorList:
        """Adds the function of one client to the current graph.

        Args:
          arguments: The arguments, of that graph, without their structure.

        Returns:
          The results.
        """
        return self._prepared(
            [*arguments, *(outer for outer, _ in self._graph.captures)]
        )

    @functools.cached_property
    def _prepared(self) -> import_graph.PreparedGraph:
        """The graph, of what is needed alone."""
        graph_def = self._graph.as_graph_def()
        wanted = [*(each.op for each in self._results), *self._checks]
        import_graph.prune(graph_def, [each.name for each in wanted], set())
        given = [*self._inputs, *(each for _, each in self._graph.captures)]
        names, results = (
            tuple(each.name for each in tensors) for tensors in (given, self._results)
        )
        return import_graph.PreparedGraph(graph_def, names, results, False)


def _stacked(converter: PFor, result: tf.Tensor, number: int | None) -> tf.Tensor:
    """Returns a result of many clients, which may be the same for all."""
    converted = converter._convert_helper(result)
    shape = converted.t.shape
    if converted.is_stacked or number is None or not shape.is_fully_defined():
        return converter._unwrap_or_tile(converted)
    # TensorFlow would have the shape computed.
    return tf.broadcast_to(converted.t, [number, *shape])


def vectorized_map(function: Callable[[Any], TensorList], elements: Any) -> TensorList:
    """Returns a function's stacked results for stacked elements, in the current graph.

    Args:
      function: Of one element.
      elements: Tensors in the structure of an element.
    """
    specs = tf.nest.map_structure(
        lambda stack: tf.TensorSpec(stack.shape[1:], stack.dtype), elements
    )
    return OfOneClient(function, [specs]).of_many(tf.nest.flatten(elements))


def vectorized_results(
    function: Callable[[Any], TensorList], elements: Any
) -> TensorList:
    """Applies `vectorized_map`, copying less where all clients choose the same result.

    Where a result is one of two tensors, such as the state of a client whose training
    may have broken down, and all clients have the second, it is taken as it is.
    """
    choices: list[patterns.Choice | None] = []

    def parts(element: Any) -> TensorList:
        results = function(element)
        choices[:] = map(patterns.choice, results)
        return tf.nest.flatten(
            [choice or result for result, choice in zip(results, choices, strict=True)]
        )

    stacks = iter(vectorized_map(parts, elements))
    return [
        next(stacks)
        if choice is None
        else _chosen(*itertools.islice(stacks, len(choice)))
        for choice in choices
    ]


def _chosen(condition: tf.Tensor, if_true: tf.Tensor, if_false: tf.Tensor) -> tf.Tensor:
    """Returns rows of one stack where the condition holds, and else of the other."""
    column = tf.reshape(condition, [-1] + [1] * (if_true.shape.rank - 1))
    return tf.cond(
        tf.reduce_any(condition),
        lambda: tf.where(column, if_true, if_false),
        lambda: tf.identity(if_false),
    )
