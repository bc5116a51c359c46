"""TensorFlow functions made from TFF's local computations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Protocol

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local.graphs.prepare import GraphCache
from tff_drift.execution.local.plans import trees
from tff_drift.execution.local.plans.interpreter import Interpreter
from tff_drift.execution.local.values import sequences


class TensorFunction(Protocol):
    """A function of tensors, with the graph that it runs."""

    graph: tf.Graph
    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]

    def __call__(self, *tensors: tf.Tensor) -> Sequence[tf.Tensor]:
        """Runs the function."""


class GraphBuilder(Interpreter):
    """Evaluates local computations inside the graph that is being built.

    Leaves are tensors; a sequence is a scalar variant tensor.

    Args:
      graphs: Where the graphs of compiled computations come from.

    Attributes:
      one_at_a_time: Whether a graph imported so far wants its calls to follow
        each other, see `prepare.PreparedGraph`.
    """

    def __init__(self, graphs: GraphCache) -> None:
        self._graphs = graphs
        self.one_at_a_time = False

    def call_graph(
        self, block: compat.framework.CompiledComputation, argument: Any
    ) -> Any:
        """Imports the graph of `block`."""
        graph = self._graphs.prepare(block)
        self.one_at_a_time = self.one_at_a_time or graph.one_at_a_time
        results = graph(list(trees.leaves(argument)))
        return trees.pack(block.type_signature.result, iter(results))

    def call_intrinsic(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        """Evaluates the intrinsics that make or use sequences."""
        types = block.type_signature
        if block.uri == "sequence_map":
            function, variant = argument
            return sequences.map_sequence(
                lambda element: self.call(function, element),
                variant,
                trees.function_type(function),
            )
        if block.uri == "sequence_reduce":
            variant, zero, function = argument
            return sequences.reduce_sequence(
                lambda *two: self.call(function, trees.pair(*two)),
                variant,
                zero,
                types.parameter[0].element,
            )
        if block.uri in ("federated_select", "federated_secure_select"):
            keys, server_value, select = argument
            return sequences.select_sequence(
                lambda *two: self.call(select, trees.pair(*two)),
                keys,
                server_value,
                trees.function_type(select),
            )
        raise NotImplementedError(
            f"The local execution context does not support the intrinsic {block.uri!r} "
            "inside a local computation."
        )

    def literal(self, block: compat.framework.Literal) -> tf.Tensor:
        """Returns a constant."""
        return tf.constant(block.value, block.type_signature.dtype)


def leaf_spec(leaf_type: compat.Type) -> tf.TensorSpec:
    """Returns the `tf.TensorSpec` of a leaf, a scalar variant for a sequence."""
    if isinstance(leaf_type, compat.SequenceType):
        return tf.TensorSpec((), tf.variant)
    return tf.TensorSpec(leaf_type.shape, leaf_type.dtype)


def build_function(
    body: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]],
    leaf_types: Sequence[compat.Type],
) -> TensorFunction:
    """Builds a TensorFlow function.

    Args:
      body: Builds the graph: from the inputs' tensors to the outputs' tensors.
      leaf_types: The types of the inputs.

    Returns:
      A function of one tensor for each input to a sequence of tensors.
    """
    # `wrap_function` and not `tf.function`: the graphs are TensorFlow 1 graphs,
    # in which nothing orders stateful operations but what the graph says.
    return tf.compat.v1.wrap_function(
        lambda *tensors: list(body(tensors)),
        [leaf_spec(leaf_type) for leaf_type in leaf_types],
    )
