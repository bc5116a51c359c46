"""The resources of a graph, made those of one call.

A session keeps a variable or a table by its name for as long as it lives; so does this
process for a function. Here every call makes its own, under no name, so that clients do
not share them, and a later call does not find what an earlier one left.

Queues have no form without a name. Calls follow each other then, and what one leaves in
a queue the next one finds; those of TFF's own computations are empty at the end.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterable, Mapping, MutableSequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.execution.local import patterns

# The name with which a variable's operation makes a new resource at every
# execution (`ResourceHandle::ANONYMOUS_NAME` in TensorFlow's source).
_ANONYMOUS_NAME = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_VARIABLE = "VarHandleOp"
_ANONYMOUS_TABLES = {
    "HashTableV2": "AnonymousHashTable",
    "MutableHashTableV2": "AnonymousMutableHashTable",
    "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
    "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
}
# Operations that give a variable or a table what is first in it.
_GIVES_A_VALUE = re.compile(r"AssignVariableOp|InitializeTable|LookupTableImport")
_NAMING_ATTRIBUTES = ("container", "shared_name", "use_node_name_sharing")
_REFERENCE_VARIABLES = frozenset({"Variable", "VariableV2", "TemporaryVariable"})
# Operations that run a function once, whenever they run themselves.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_CALLS |= {"If", "StatelessIf", "Case", "StatelessCase"}


def node_name(name: str) -> str:
    """Returns the node of a tensor name or of a node's input."""
    return name.lstrip("^").split(":")[0]


def ancestors(
    nodes: Mapping[str, Any], targets: Iterable[str], stop: Collection[str] = ()
) -> set[str]:
    """Returns the nodes that some nodes need, themselves included.

    Args:
      nodes: Those of the graph, by their names.
      targets: The names of the nodes.
      stop: Those of nodes whose inputs do not count.
    """
    found: set[str] = set()
    pending = list(targets)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        if name not in stop:
            pending.extend(map(node_name, nodes[name].input))
    return found


def make_anonymous(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Gives every call its own resources.

    Args:
      graph_def: The graph; it is changed in place.

    Returns:
      Whether some stay shared.

    Raises:
      NotImplementedError: If a table or a variable can be no call's own: one that a
        loop makes in its steps, one of TensorFlow 1.
    """
    for node in patterns.all_nodes(graph_def):
        _check(node)
    in_loops = _functions_in_loops(graph_def)
    of_several = _names_of_several(graph_def)
    shared = _make_anonymous(graph_def.node, [], of_several)
    for function in graph_def.library.function:
        if function.signature.name in in_loops:
            _check_step(function)
            shared |= any(map(_names_a_resource, function.node_def))
        else:
            results = [function.ret, function.control_ret]
            shared |= _make_anonymous(function.node_def, results, of_several)
    return shared


def initialize_first(graph_def: tf.compat.v1.GraphDef, initializer: str) -> None:
    """Makes everything that uses a resource wait for the initialization.

    What the initialization itself reads of a resource, such as the first value of a
    variable that is computed from another one, waits for that resource's first value.

    Args:
      graph_def: The graph; it is changed in place.
      initializer: The name of the node that initializes.
    """
    handles = {
        node.name
        for node in graph_def.node
        if node.op == _VARIABLE or node.op in _ANONYMOUS_TABLES.values()
    }
    nodes = {node.name: node for node in graph_def.node}
    initializing = ancestors(nodes, [initializer])
    first_values = _first_values(nodes, initializer)
    giving = set(first_values.values())
    for node in graph_def.node:
        used = handles.intersection(map(node_name, node.input))
        if used and node.name not in initializing:
            node.input.append(f"^{initializer}")
        elif used and node.name not in giving:
            for handle in used & first_values.keys():
                first = first_values[handle]
                if node.name not in ancestors(nodes, [first]):
                    node.input.append(f"^{first}")


def _first_values(nodes: Mapping[str, Any], initializer: str) -> dict[str, str]:
    """Returns the nodes that give resources their first values, by the resource's."""
    found: dict[str, str] = {}
    pending, seen = [initializer], set[str]()
    while pending:
        node = nodes[pending.pop()]
        if node.op == "NoOp":  # A group, perhaps of groups.
            inputs = set(map(node_name, node.input)) - seen
            seen |= inputs
            pending += inputs
        elif _GIVES_A_VALUE.match(node.op):
            found[node_name(node.input[0])] = node.name
    return found


def _check(node: Any) -> None:
    if node.op in _REFERENCE_VARIABLES:
        raise NotImplementedError(
            "The local execution context does not run the reference variable "
            f"{checks.shown(node.name)}. Create it with use_resource=True."
        )


def _check_step(function: Any) -> None:
    for node in function.node_def:
        if node.op in _ANONYMOUS_TABLES:
            raise NotImplementedError(
                "The local execution context does not run a loop, or a function of a "
                f"dataset, that makes the lookup table {checks.shown(node.name)}. "
                "Make it before."
            )


def _functions_in_loops(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    """Returns the functions that loops and datasets run, any number of times."""
    nodes = {each.signature.name: each.node_def for each in graph_def.library.function}
    pending = [
        name
        for node in patterns.all_nodes(graph_def)
        if node.op not in _CALLS and node.op not in nodes
        for name in patterns.functions_of(node)
    ]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in found:
            found.add(name)
            for node in nodes[name]:
                pending += [node.op, *patterns.functions_of(node)]
    return found


def _names_of_several(graph_def: tf.compat.v1.GraphDef) -> set[tuple[str, bytes]]:
    """Returns what more than one function, or the graph besides, calls by one name."""
    bodies = [graph_def.node, *(each.node_def for each in graph_def.library.function)]
    counts = collections.Counter(
        key
        for body in bodies
        for key in {_key(node) for node in body if _is_named(node)}
    )
    return {key for key, count in counts.items() if count > 1}


def _is_named(node: Any) -> bool:
    # To look for an attribute that a node has not gives it one.
    name = node.attr["shared_name"].s if _names_a_resource(node) else b""
    return name not in (b"", _ANONYMOUS_NAME)


def _key(node: Any) -> tuple[str, bytes]:
    container, name = node.attr["container"].s, node.attr["shared_name"].s
    return node.op, container + b"/" + (name or node.name.encode())


def _make_anonymous(
    nodes: Iterable[Any], results: Iterable[Any], of_several: Collection[Any]
) -> bool:
    """Gives every call its own resources; returns whether some stay shared.

    Args:
      nodes: Of the graph or of a function.
      results: The mappings that name a function's results.
      of_several: Which resources are others' as well.
    """
    first_of_name: dict[tuple[str, bytes], str] = {}
    replaced: dict[str, str] = {}
    shared = False
    for node in nodes:
        if node.op != _VARIABLE and node.op not in _ANONYMOUS_TABLES:
            shared |= _names_a_resource(node)
            continue
        if node.attr["shared_name"].s == _ANONYMOUS_NAME:
            continue
        # Operations of one name stand for one resource.
        key = _key(node)
        if key in of_several:
            shared = True
            continue
        if key in first_of_name:
            replaced[node.name] = first_of_name[key]
            continue
        first_of_name[key] = node.name
        if node.op == _VARIABLE:
            node.attr["shared_name"].s = _ANONYMOUS_NAME
        else:
            node.op = _ANONYMOUS_TABLES[node.op]
            for attribute in _NAMING_ATTRIBUTES:
                node.attr.pop(attribute, None)
    if replaced:
        for node in nodes:
            _redirect(node.input, range(len(node.input)), replaced)
        for named in results:
            _redirect(named, list(named), replaced)
    return shared


def _names_a_resource(node: Any) -> bool:
    return "shared_name" in node.attr and not node.op.endswith("Dataset")


def _redirect(
    names: MutableSequence[str] | Any, keys: Iterable[Any], replaced: dict[str, str]
) -> None:
    for key in keys:
        source = node_name(names[key])
        if source in replaced:
            names[key] = names[key].replace(source, replaced[source], 1)
