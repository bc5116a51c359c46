"""Datasets whose elements are batches, as TFF's tutorials make them, taken apart."""

from __future__ import annotations

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
_APART = (
    "UnbatchDataset",
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDataset",
    "LegacyParallelInterleaveDataset",
)
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


def _ways(dataset: tf.data.Dataset) -> set[tuple[int, ...]]:
    """Returns the ways in which a dataset may have been made, each from the end.

    A way has 1 for what put elements together, -1 for the contrary, and ends with 0
    where nobody knows what came before. Conditions make several.
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
        before, change = _before(reference.deref(), calls)
        if change is not None:
            way = (*way, change)
        if not before:
            found.add(way)
        waiting += [(tensor.ref(), callers, way) for tensor, callers in before]
    return found


def _before(
    tensor: tf.Tensor, calls: tuple[Any, ...]
) -> tuple[list[tuple[tf.Tensor, tuple[Any, ...]]], int | None]:
    """Returns what a dataset was made of, by its calls, and the change, if any."""
    name = tensor.op.type.partition("V")[0]
    if name in _FUNCTIONS:
        attributes, first = _FUNCTIONS[name]
        named = tf.nest.flatten([tensor.op.get_attr(each) for each in attributes])
        functions = [_function(tensor.graph, each.name) for each in named]
        if None in functions:
            return [], 0
        inner = (*calls, (tensor.op, first))
        ends = [each.graph.outputs[tensor.value_index] for each in functions]
        return [(end, inner) for end in ends], None
    if name == "Placeholder" and calls:
        *outer, (caller, first) = calls
        names = [each.name for each in tensor.graph.inputs]
        given = caller.inputs[first + names.index(tensor.name)]
        return [(given, tuple(outer))], None
    if name != "Identity" and "Dataset" not in name:
        return [], 0
    inputs = [each for each in tensor.op.inputs if each.dtype == tf.variant]
    change = 1 if name in _TOGETHER else -1 if name in _APART else None
    return [(each, calls) for each in inputs[:1]], change


def _function(graph: tf.Graph, name: str) -> Any:
    """Returns a function that operations of a graph call, `None` if it is not known."""
    # Private: nothing public shows the graph of a function, with its tensors.
    return graph._get_function(name)


def _times_batched(changes: Sequence[int], spec: object) -> int | None:
    """Returns how often examples were batched in the end; `None` if nobody knows.

    Sequences are made as batches are, with `drop_remainder`, of what was taken apart
    before: only what was put together once more counts there. Without it the last batch
    may be short, which no sequence is.
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
