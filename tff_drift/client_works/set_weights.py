"""Whether operations set the weights of a model, as some layers do when called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

_SETS = re.compile(r"Assign\w*VariableOp|Resource(?!Gather)\w*")
# Private: nothing public says which variables the functions of an operation only read.
_ONLY_READ = "_read_only_resource_inputs"


def may_be_set(
    variables: Sequence[tf.Variable], operations: Iterable[tf.Operation]
) -> bool:
    """Returns whether some operations may set a variable.

    Args:
      variables: The variables.
      operations: Operations of the present graph.
    """
    graph: Any = tf.compat.v1.get_default_graph()
    # What a function has of variables outside of it.
    inner = {outer.ref(): own.ref() for outer, own in getattr(graph, "captures", ())}
    handles = {inner.get(x.handle.ref(), x.handle.ref()) for x in variables}
    return any(
        tensor.dtype == tf.resource and tensor.ref() in handles and _sets(each, index)
        for each in operations
        for index, tensor in enumerate(each.inputs)
    )


def _sets(operation: tf.Operation, index: int) -> bool:
    """Whether an operation may set the variable that is one of its inputs."""
    try:
        return index not in operation.get_attr(_ONLY_READ)
    except ValueError:  # It runs no function.
        return _SETS.fullmatch(operation.type) is not None
