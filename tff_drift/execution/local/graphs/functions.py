"""TensorFlow functions made from TFF's local computations, and called."""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tff_drift import compat
from tff_drift.execution.local import language, patterns
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.graphs.import_graph import GraphCache
from tff_drift.execution.local.language import Interpreter
from tff_drift.execution.local.planner import Leaf, Operation

# The functions below build graphs themselves: AutoGraph has nothing to do.
_DO_NOT_CONVERT = tf.autograph.experimental.do_not_convert
_NORMALIZATION = re.compile(r"FusedBatchNorm(Grad)?(V\d)?")


class TensorFunction:
    """A function of tensors, with the graph that it runs.

    In Python a call of TensorFlow's own functions converts arguments and prepares
    gradients, for a tenth of a millisecond and more: there is nothing of that here.

    Args:
      function: The same as TensorFlow's function.

    Attributes:
      graph: The graph.
      inputs: The tensors of the graph that arguments take the places of.
      outputs: Those that are returned.
    """

    def __init__(self, function: Any) -> None:
        self.graph: tf.Graph = function.graph
        # All are arguments: what is traced comes from graphs, and captures nothing.
        self.inputs: list[tf.Tensor] = function.inputs
        self.outputs: list[tf.Tensor] = function.outputs
        # It lives as long as its name can be called by.
        self._function = function

    def __call__(self, *tensors: tf.Tensor) -> Sequence[tf.Tensor]:
        """Runs the function, outside graphs and what records gradients."""
        results = eager_context.context().call_function(
            self._function.name, list(tensors), len(self.outputs)
        )
        return results or []


class GraphBuilder(Interpreter):
    """Evaluates local computations inside the graph that is being built.

    Leaves are tensors; a sequence is a scalar variant tensor.

    Args:
      graphs: Where the graphs of compiled computations come from.

    Attributes:
      one_at_a_time: Whether a graph imported so far wants its calls to follow
        each other, see `import_graph.PreparedGraph`.
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
        results = graph(list(language.leaves(argument)))
        return language.pack(block.type_signature.result, iter(results))

    def call_intrinsic(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        """Evaluates the intrinsics that make or use sequences."""
        if block.uri == "sequence_map":
            return self._map(*argument)
        if block.uri == "sequence_reduce":
            variant, zero, function = argument
            element_type = block.type_signature.parameter[0].element
            return self._reduce(variant, zero, function, element_type)
        if block.uri == "sequence_sum":
            return self._sum(argument, block.type_signature.result)
        if block.uri == "federated_select":
            return self._select(*argument)
        raise NotImplementedError(
            f"The local execution context does not support the intrinsic {block.uri!r} "
            "inside a local computation."
        )

    def _map(self, function: Any, variant: tf.Tensor) -> tf.Tensor:
        """Returns the sequence of what a function makes of the elements of another."""
        types = language.function_type(function)
        spreads = type(sequences.element_spec(types.parameter)) is tuple

        @_DO_NOT_CONVERT
        def on_element(*element: Any) -> Any:
            # `Dataset.map` spreads a tuple as arguments, one of a single element too.
            value = element if spreads else element[0]
            result = self.call(function, sequences.to_tree(value, types.parameter))
            return compat.type_to_py_container(result, types.result)

        mapped = sequences.to_dataset(variant, types.parameter).map(on_element)
        return tf.data.experimental.to_variant(mapped)

    def _reduce(
        self, variant: tf.Tensor, zero: Any, function: Any, element_type: compat.Type
    ) -> Any:
        """Returns the last accumulator of a sequence, a tree like the first, `zero`."""

        @_DO_NOT_CONVERT
        def on_element(state: Any, element: Any) -> Any:
            state = compat.structure.pack_sequence_as(zero, list(state))
            value = sequences.to_tree(element, element_type)
            result = self.call(function, language.Struct.unnamed(state, value))
            return tuple(language.leaves(result))

        flat = tuple(language.leaves(zero))
        reduced = sequences.to_dataset(variant, element_type).reduce(flat, on_element)
        if isinstance(zero, language.Struct):
            return compat.structure.pack_sequence_as(zero, list(reduced))
        return reduced[0]

    def _sum(self, variant: tf.Tensor, element_type: compat.Type) -> Any:
        """Returns the sum of a sequence's elements, leaf by leaf."""
        leaf_types = language.leaf_types(element_type)
        zeros = (tf.zeros(leaf.shape, leaf.dtype) for leaf in leaf_types)

        def add(argument: Any) -> Any:
            total, element = map(language.leaves, argument)
            return language.pack(element_type, map(tf.add, total, element))

        zero, function = language.pack(element_type, zeros), language.TreeFunction(add)
        return self._reduce(variant, zero, function, element_type)

    def _select(self, keys: tf.Tensor, server_value: Any, select: Any) -> tf.Tensor:
        """Returns the sequence of what a client selected, in the order of its keys."""
        result_type = language.function_type(select).result

        @_DO_NOT_CONVERT
        def on_key(key: tf.Tensor) -> Any:
            result = self.call(select, language.Struct.unnamed(server_value, key))
            return compat.type_to_py_container(result, result_type)

        selected = tf.data.Dataset.from_tensor_slices(keys).map(on_key)
        return tf.data.experimental.to_variant(selected)

    def literal(self, block: compat.framework.Literal) -> tf.Tensor:
        """Returns a constant."""
        return tf.constant(block.value, block.type_signature.dtype)


def trace(body: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> TensorFunction:
    """Traces a function, which leaves nothing behind when it goes.

    Args:
      body: What is traced, a function of tensors.
      specs: Those of its arguments.
    """
    # `wrap_function` and not `tf.function`: the graphs are TensorFlow 1 graphs,
    # in which nothing orders stateful operations but what the graph says.
    function = tf.compat.v1.wrap_function(body, specs)
    # It registers the functions that its graph calls, and TensorFlow keeps them, and
    # the kernels made for them, until each has been removed as often.
    library = function.graph.as_graph_def().library.function
    names = [each.signature.name for each in library]
    weakref.finalize(function, _remove_functions, names).atexit = False
    return TensorFunction(function)


def _remove_functions(names: Iterable[str]) -> None:
    for name in names:
        eager_context.context().remove_function(name)


def for_threads(
    function: TensorFunction, of_clients: bool = False
) -> Callable[..., Any]:
    """Returns a function that threads may call at once, of which some calls wait.

    The first call is made alone: each of several that find no kernels would optimize
    the function's graph, and make the kernels.

    With oneDNN, TensorFlow's fused normalization keeps the number of channels of a call
    in its kernel. Two calls at once whose numbers differ write beyond their memory, and
    may return wrong moments before the program crashes: such calls are all made alone.
    Vectorized clients have channels of their own; Keras' `LayerNormalization` has one
    for each row of a batch, in the second dimension.

    Args:
      function: The function.
      of_clients: Whether it is of vectorized clients, whose number varies.

    Returns:
      The function.
    """
    nodes = patterns.all_nodes(function.graph.as_graph_def())
    lock = threading.Lock()
    was_called = threading.Event()

    def alone(*inputs: Any) -> Any:
        with lock:
            return function(*inputs)

    def first_alone(*inputs: Any) -> Any:
        if not was_called.is_set():
            with lock:
                if not was_called.is_set():
                    results = function(*inputs)
                    was_called.set()
                    return results
        return function(*inputs)

    if any(_varies(node, of_clients) for node in nodes):
        return alone
    return first_alone


def _varies(node: Any, of_clients: bool) -> bool:
    """Whether a node is a normalization whose number of channels differs by call."""
    if not _NORMALIZATION.fullmatch(node.op):
        return False
    return of_clients or node.attr["data_format"].s == b"NCHW"


class PhaseFunction:
    """The operations of a phase at one place, as one TensorFlow function.

    It is built when it is first asked for.

    Args:
      steps: The operations, in an order in which they can run.
      wanted: The leaves that are wanted of what they compute, among others.
      graphs: Where the graphs of compiled computations come from.

    Attributes:
      steps: The operations.
      inputs: The leaves that it takes, a sequence once for each operation that takes
        it: datasets start over in every computation.
      outputs: The leaves that it returns.
    """

    def __init__(
        self, steps: Sequence[Operation], wanted: Iterable[Leaf], graphs: GraphCache
    ) -> None:
        made = dict.fromkeys(leaf for step in steps for leaf in step.outputs)
        wanted = set(wanted)
        self.outputs = tuple(leaf for leaf in made if leaf in wanted)
        # Each with the operation that it is for, None if it is for all.
        self._places = tuple(
            dict.fromkeys(
                (step if leaf.is_sequence else None, leaf)
                for step in steps
                for leaf in step.inputs
                if leaf not in made
            )
        )
        self.inputs = tuple(leaf for _, leaf in self._places)
        self.steps = steps
        self._builder = GraphBuilder(graphs)

    @functools.cached_property
    def function(self) -> TensorFunction:
        """The TensorFlow function."""

        def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
            given = dict(zip(self._places, tensors, strict=True))
            values = dict(zip(self.inputs, tensors, strict=True))
            last_pass: dict[Leaf, Sequence[tf.Tensor]] = {}
            for step in self.steps:
                for leaf in _sequences(step):
                    values[leaf] = given.get((step, leaf), values[leaf])
                _pass_after(step, values, last_pass)
                function = language.substitute(step.function, values)
                argument = language.substitute(step.argument, values)
                results = self._builder.call(function, argument)
                values.update(zip(step.outputs, language.leaves(results), strict=True))
                outputs = [values[leaf] for leaf in step.outputs]
                last_pass.update(dict.fromkeys(_sequences(step), outputs))
            return [values[leaf] for leaf in self.outputs]

        return trace(body, [leaf.spec for leaf in self.inputs])

    def build(self) -> None:
        """Builds the function, unless it has been done.

        Raises:
          NotImplementedError: If a graph holds something that is not supported.
        """
        _ = self.function

    @property
    def one_at_a_time(self) -> bool:
        """See `import_graph.PreparedGraph`."""
        # The graphs are looked at where they are imported.
        self.build()
        return self._builder.one_at_a_time


def _sequences(step: Operation) -> list[Leaf]:
    return [leaf for leaf in step.inputs if leaf.is_sequence]


def _pass_after(
    step: Operation,
    values: dict[Leaf, tf.Tensor],
    last_pass: Mapping[Leaf, Sequence[tf.Tensor]],
) -> None:
    """Has an operation use datasets after those before it have passed over them."""
    for leaf in _sequences(step):
        if leaf in last_pass:
            with tf.control_dependencies(last_pass[leaf]), tf.device("/CPU:0"):
                values[leaf] = tf.identity(values[leaf])
