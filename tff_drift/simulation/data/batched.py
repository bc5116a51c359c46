"""Datasets whose elements are batches, as TFF's tutorials make them, taken apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# What put elements together, and what took them apart, by the names of TensorFlow's
# operations for datasets, of which there are several versions.
_TOGETHER = (
    "BatchDataset",
    "ParallelBatchDataset",
    "PaddedBatchDataset",
    "DenseToSparseBatchDataset",
    "GroupByWindowDataset",
    "WindowDataset",
)
_APART = ("UnbatchDataset",)
# What joins the datasets that a function makes of each element.
_FLATTENED = (
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDataset",
    "LegacyParallelInterleaveDataset",
)
# What a function makes anew of its element, such as of a file's name.
_READ = (
    "TFRecordDataset",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "CSVDataset",
    "GeneratorDataset",
)
# What counts the elements of others in a zip: ranges, rewritten by `enumerate`.
_COUNTS = ("RangeDataset", "RewriteDataset")
# What runs functions that may return a dataset: the attributes that name these, and
# the first input that they are given.
_FUNCTIONS = {
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "Case": (("branches",), 1),
    "StatelessCase": (("branches",), 1),
}


def unbatched(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, int | None]:
    """Returns a dataset of single examples.

    Args:
      dataset: A dataset of examples, or of batches of them, or of batches of these.
        Within a graph it records how it was made.

    Returns:
      The dataset, and how often it was batched; as it is, and `None`, if its elements
      may be batches as well as sequences.
    """
    found = {_times_batched(way, dataset.element_spec) for way in _ways(dataset)}
    times = found.pop()
    if times is None or found:
        return dataset, None
    for _ in range(times):
        dataset = dataset.unbatch()
    return dataset, times


# A dataset's tensor, the calls whose functions it is in, each with the first input
# that it is given, and the change that was made to it, if any.
_Step = tuple[tf.Tensor, tuple[Any, ...], int | None]


def _ways(dataset: tf.data.Dataset) -> set[tuple[int, ...]]:
    """Returns the ways in which a dataset may have been made, each from the end.

    A way has 1 for what put elements together, -1 for the contrary, and ends with 0
    where nobody knows what came before. Conditions make several, and so do functions
    that may take an element apart or make examples of it.
    """
    found: set[tuple[int, ...]] = set()
    seen: set[Any] = set()
    # Tensors to look at, the calls whose functions they are in, and what came after.
    last = tf.data.experimental.to_variant(dataset)
    waiting: list[Any] = [(last.ref(), (), ())]
    while waiting:
        step = waiting.pop()
        if step in seen:
            continue
        seen.add(step)
        reference, calls, way = step
        before, ends = _before(reference.deref(), calls)
        found |= {way if end is None else (*way, end) for end in ends}
        waiting += [
            (tensor.ref(), callers, way if change is None else (*way, change))
            for tensor, callers, change in before
        ]
    return found


def _before(
    tensor: tf.Tensor, calls: tuple[Any, ...]
) -> tuple[list[_Step], list[int | None]]:
    """Returns what a dataset was made of, and the changes with which ways end here."""
    name = _name(tensor.op)
    if name in _FUNCTIONS:
        attributes, first = _FUNCTIONS[name]
        named = tf.nest.flatten([tensor.op.get_attr(each) for each in attributes])
        functions = [_function(tensor.graph, each.name) for each in named]
        if None in functions:
            return [], [0]
        inner = (*calls, (tensor.op, first))
        return [
            (each.graph.outputs[tensor.value_index], inner, None) for each in functions
        ], []
    if name == "Placeholder" and calls:
        *outer, (caller, first) = calls
        names = [each.name for each in tensor.graph.inputs]
        # The elements of a dataset are given by the dataset.
        given = caller.inputs[max(first + names.index(tensor.name), 0)]
        return [(given, tuple(outer), None)], []
    if name != "Identity" and "Dataset" not in name:
        return [], [0]
    if name in _FLATTENED:
        return _flattened(tensor, calls)
    inputs = _inputs(tensor, name)
    if not inputs:
        return _source(name, calls)
    change = 1 if name in _TOGETHER else -1 if name in _APART else None
    return [(each, calls, change) for each in inputs], []


def _name(operation: tf.Operation) -> str:
    """Returns the name of an operation, without its version."""
    return re.sub(r"V\d+$", "", operation.type)


def _inputs(tensor: tf.Tensor, name: str) -> list[tf.Tensor]:
    """Returns the datasets whose elements a dataset may have."""
    inputs = [each for each in tensor.op.inputs if each.dtype == tf.variant]
    if name == "DirectedInterleaveDataset":
        return inputs[1:]  # The first says which of the others is next.
    if name == "ZipDataset":
        return [each for each in inputs if _name(each.op) not in _COUNTS] or inputs
    return inputs if name == "ConcatenateDataset" else inputs[:1]


def _flattened(
    tensor: tf.Tensor, calls: tuple[Any, ...]
) -> tuple[list[_Step], list[int | None]]:
    """Returns the datasets that a function makes of elements, as `_before` does."""
    function = _function(tensor.graph, tensor.op.get_attr("f").name)
    if function is None:
        return [(tensor.op.inputs[0], calls, -1)], [0]
    given = function.graph.inputs
    num_elements = len(given) - len(tensor.op.get_attr("Targuments"))
    of_windows = any(each.dtype == tf.variant for each in given[:num_elements])
    inner = (*calls, (tensor.op, 1 - num_elements))
    return [(function.graph.outputs[0], inner, -1 if of_windows else None)], []


def _source(name: str, calls: tuple[Any, ...]) -> tuple[list[_Step], list[int | None]]:
    """Returns what a dataset without inputs was made of, as `_before` does."""
    while calls and _name(calls[-1][0]) not in _FLATTENED:
        calls = calls[:-1]
    if not calls or name in _READ:
        return [], [None]
    *outer, (caller, _) = calls
    if name == "TensorDataset":
        return [(caller.inputs[0], tuple(outer), None)], []
    shapes = caller.get_attr("output_shapes")
    are_numbers = len(shapes) == 1 and tf.TensorShape(shapes[0]).rank == 0
    # Of anything else the function may make several examples.
    return [(caller.inputs[0], tuple(outer), -1)], [] if are_numbers else [0]


def _function(graph: tf.Graph, name: str) -> Any:
    """Returns a function that operations of a graph call, `None` if it is not known."""
    # Private: nothing public shows the graph of a function, with its tensors.
    return graph._get_function(name)


def _times_batched(changes: Sequence[int], spec: object) -> int | None:
    """Returns how often examples were batched in the end; `None` if nobody knows.

    Sequences are made as batches are, with `drop_remainder`, of what was taken apart
    before, windows among it: only what was put together once more counts there. Without
    it the last batch may be short, which no sequence is.
    """
    shapes = [leaf.shape for leaf in tf.nest.flatten(spec)]
    times = 0
    while times < len(changes) and changes[times] >= 0:
        if any(shape.rank is None or shape.rank <= times for shape in shapes):
            break
        may_be_short = all(shape[times] is None for shape in shapes)
        if may_be_short and changes[times] == 0:
            return None
        if not may_be_short and sum(changes[times:]) <= 0:
            break
        times += 1
    return times
