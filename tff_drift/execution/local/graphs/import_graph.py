"""TensorFlow graphs of TFF computations, made fit to be called as functions.

TFF runs a `tff.tensorflow.computation` as a session runs a graph: resources
belong to the session, an initialization runs first, then the results are
fetched. Inside a function of this process the same graph needs care:

*   Resources (variables, lookup tables) become those of a call, see `resources`.
*   Functions of a graph's library are known by name in the whole process, so
    their names get a suffix made from the content of the library.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local import patterns
from tff_drift.execution.local.graphs import resources
from tff_drift.execution.local.graphs.resources import node_name

_CPU = "/device:CPU:0"
_VARIANT = tf.variant.as_datatype_enum
# Parts of the names of operations on datasets, iterators and their elements.
_DATASET_OPERATIONS = ("Dataset", "Iterator", "Optional", "SeedGenerator")
# What passes on a dataset without looking at it, and the attribute of its type.
_PASSING_ON = {"Identity": "T", "Placeholder": "dtype"}
# Operations that make a dataset, maybe of others, and do not pass over any.
_MAKING_DATASETS = tuple(
    f"Dataset{version}" for version in ("", "V2", "V3", "V4", "V5")
)
# Attributes that hold the name of a function as plain text.
_FUNCTION_NAME_TEXTS = ("forward_function_name", "backward_function_name")


@dataclasses.dataclass(frozen=True)
class PreparedGraph:
    """A graph that can be imported into a function.

    Attributes:
      graph_def: The rewritten graph.
      inputs: Names of the tensors to feed, in the order of the flat argument.
      outputs: Names of the tensors to fetch, in the order of the flat result.
      one_at_a_time: Whether calls have to follow each other, in a fixed order,
        because they share something: a stream of seeded random numbers, or a
        resource that cannot be made anonymous.
    """

    graph_def: tf.compat.v1.GraphDef
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    one_at_a_time: bool

    def __call__(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds the graph to the graph being built.

        Args:
          arguments: A tensor for each of `inputs`.

        Returns:
          A tensor for each of `outputs`.
        """
        # Tensors of an outer graph have to be captured before they are mapped.
        here = tf.compat.v1.get_default_graph()
        captured = [t if t.graph is here else tf.identity(t) for t in arguments]
        fed = dict(zip(self.inputs, captured, strict=True))
        present = {node.name for node in self.graph_def.node}
        fetched = [name for name in dict.fromkeys(self.outputs) if name not in fed]
        tensors = tf.graph_util.import_graph_def(
            self.graph_def,
            {name: fed[name] for name in fed if node_name(name) in present},
            fetched,
            name="",
        )
        fed.update(zip(fetched, tensors or (), strict=True))
        return [fed[name] for name in self.outputs]


class GraphCache:
    """Prepares every graph once."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, PreparedGraph] = {}
        self._lock = threading.Lock()

    def prepare(self, block: compat.framework.CompiledComputation) -> PreparedGraph:
        """Returns the graph of a compiled computation, ready to be imported.

        Args:
          block: A compiled computation.

        Returns:
          The prepared graph, the same one for equal computations.

        Raises:
          NotImplementedError: If the computation is not a TensorFlow graph, or
            holds a resource that calls cannot have of their own.
        """
        kind = block.proto.WhichOneof("computation")
        if kind != "tensorflow":
            raise NotImplementedError(
                f"The local execution context runs TensorFlow; it does not run a "
                f"compiled computation of kind {kind!r}, such as tff.jax makes."
            )
        proto = block.proto.tensorflow
        key = _key(proto)
        with self._lock:
            if key not in self._prepared:
                self._prepared[key] = _prepare(proto)
            return self._prepared[key]


def _key(proto: Any) -> bytes:
    digest = hashlib.sha256()
    for part in (
        proto.graph_def.value,
        proto.parameter.SerializeToString(deterministic=True),
        proto.result.SerializeToString(deterministic=True),
        proto.initialize_op.encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return digest.digest()


def _prepare(proto: Any) -> PreparedGraph:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.ParseFromString(proto.graph_def.value)
    inputs = tuple(_binding_names(proto.parameter))
    outputs = tuple(_binding_names(proto.result))
    fed = {node_name(name) for name in inputs}
    _drop_control_inputs(graph_def, fed)
    _fix_session_token(graph_def, proto.session_token_tensor_name)
    initializer = proto.initialize_op
    targets = [node_name(name) for name in outputs]
    prune(graph_def, [*targets, initializer] if initializer else targets, fed)
    shared = resources.make_anonymous(graph_def)
    if initializer:
        resources.initialize_first(graph_def, initializer)
    _drop_colocation(graph_def)
    _pass_in_order(graph_def)
    pin_datasets_to_cpu(graph_def)
    draws = map(patterns.draws_from_a_seed, patterns.all_nodes(graph_def))
    one_at_a_time = shared or any(draws)
    name_functions_by_content(graph_def)
    return PreparedGraph(graph_def, inputs, outputs, one_at_a_time)


def _binding_names(binding: Any) -> Iterable[str]:
    kind = binding.WhichOneof("binding")
    if kind == "tensor":
        yield binding.tensor.tensor_name
    elif kind == "sequence":
        yield binding.sequence.variant_tensor_name
    elif kind == "struct":
        for element in binding.struct.element:
            yield from _binding_names(element)


def _drop_control_inputs(graph_def: tf.compat.v1.GraphDef, fed: set[str]) -> None:
    """Drops control dependencies on fed placeholders: a fed value is there."""
    for node in graph_def.node:
        kept = [
            name
            for name in node.input
            if not (name.startswith("^") and node_name(name) in fed)
        ]
        if len(kept) != len(node.input):
            node.input[:] = kept


def _fix_session_token(graph_def: tf.compat.v1.GraphDef, name: str) -> None:
    """Replaces the placeholder of the session's name by an empty string."""
    token = node_name(name)
    for node in graph_def.node:
        if node.name == token:
            node.op = "Const"
            node.ClearField("input")
            node.ClearField("attr")
            node.attr["dtype"].type = tf.string.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(""))


def prune(
    graph_def: tf.compat.v1.GraphDef, targets: Iterable[str], fed: set[str]
) -> None:
    """Keeps of a graph what a session would run.

    A function runs all its stateful operations, whether needed or not.

    Args:
      graph_def: The graph; it is changed in place.
      targets: The names of the nodes that are wanted.
      fed: Those of nodes whose inputs are not.
    """
    nodes = {node.name: node for node in graph_def.node}
    needed = resources.ancestors(nodes, targets, fed)
    kept = [node for node in graph_def.node if node.name in needed]
    if len(kept) != len(graph_def.node):
        kept = copy.deepcopy(kept)
        graph_def.ClearField("node")
        graph_def.node.extend(kept)


def _drop_colocation(graph_def: tf.compat.v1.GraphDef) -> None:
    """Drops wishes to be near nodes that may be gone or renamed."""
    for node in patterns.all_nodes(graph_def):
        node.attr.pop("_class", None)


def _pass_in_order(graph_def: tf.compat.v1.GraphDef) -> None:
    """Has passes over one dataset follow each other.

    A shuffle gives each pass another order, of one seeded stream: without this, which
    pass has which order would differ from run to run.
    """
    # What a graph passes on of datasets, by the name of the node that they come from.
    sources: dict[str, set[str]] = {}
    last_pass: dict[str, str] = {}
    for node in _in_order(graph_def):
        used = set[str]().union(
            *(sources.get(node_name(name), set()) for name in node.input)
        )
        if node.op == "Placeholder" and node.attr["dtype"].type == _VARIANT:
            sources[node.name] = {node.name}
        elif _passes_on(node):
            sources[node.name] = used
        elif used:
            waits_for = {last_pass[source] for source in used & last_pass.keys()}
            given = set(map(node_name, node.input))
            node.input.extend(f"^{name}" for name in sorted(waits_for - given))
            last_pass.update(dict.fromkeys(used, node.name))


def _passes_on(node: Any) -> bool:
    """Whether a node gives on a dataset, or makes another one of it."""
    makes = node.op.endswith(_MAKING_DATASETS) and node.op != "ReduceDataset"
    return makes or node.op == "Identity"


def _in_order(graph_def: tf.compat.v1.GraphDef) -> Iterable[Any]:
    """Yields nodes after their inputs, and else in their order."""
    nodes = {node.name: node for node in graph_def.node}
    pending = list(reversed(nodes))
    entered: set[str] = set()
    done: set[str] = set()
    while pending:
        name = pending[-1]
        # What is entered again is in the circle of a loop of TensorFlow 1.
        inputs = [] if name in entered else map(node_name, nodes[name].input)
        missing = [source for source in inputs if source not in done]
        entered.add(name)
        if missing:
            pending.extend(reversed(missing))
            continue
        pending.pop()
        if name not in done:
            done.add(name)
            yield nodes[name]


def pin_datasets_to_cpu(graph_def: tf.compat.v1.GraphDef) -> None:
    """Places what concerns datasets on the CPU, in a graph and its library.

    A device around the call of a function moves everything in it that has no
    device of its own, iterators included, for which a GPU has no kernels.

    Args:
      graph_def: The graph; it is changed in place.
    """
    for node in patterns.all_nodes(graph_def):
        passes_on = (
            node.op in _PASSING_ON and node.attr[_PASSING_ON[node.op]].type == _VARIANT
        )
        if passes_on or any(part in node.op for part in _DATASET_OPERATIONS):
            node.device = _CPU


def name_functions_by_content(graph_def: tf.compat.v1.GraphDef) -> None:
    """Gives the functions of a graph's library names that no others have.

    Args:
      graph_def: The graph; it is changed in place.
    """
    library = graph_def.library
    if not library.function:
        return
    digest = hashlib.sha256(library.SerializeToString(deterministic=True))
    suffix = f"_{digest.hexdigest()[:16]}"
    names = {
        function.signature.name: function.signature.name + suffix
        for function in library.function
    }
    for function in library.function:
        function.signature.name = names[function.signature.name]
        _rename_in_attributes(function.attr, names)
    for gradient in library.gradient:
        gradient.function_name = names.get(
            gradient.function_name, gradient.function_name
        )
        gradient.gradient_func = names.get(
            gradient.gradient_func, gradient.gradient_func
        )
    for node in patterns.all_nodes(graph_def):
        node.op = names.get(node.op, node.op)
        _rename_in_attributes(node.attr, names)


def _rename_in_attributes(attributes: Any, names: dict[str, str]) -> None:
    for key in list(attributes):
        value = attributes[key]
        called = [value.func] if value.HasField("func") else value.list.func
        for function in called:
            function.name = names.get(function.name, function.name)
            _rename_in_attributes(function.attr, names)
        if key in _FUNCTION_NAME_TEXTS:
            text = value.s.decode()
            value.s = names.get(text, text).encode()
