"""Datasets whose elements are batches, as TFF's tutorials make them, taken apart."""

from __future__ import annotations

from collections.abc import Sequence

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


def unbatched(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, int]:
    """Returns a dataset of single examples.

    Args:
      dataset: A dataset of examples, or of batches of them, or of batches of these.
        Within a graph it records how it was made.

    Returns:
      The dataset, and how often it was batched.
    """
    times = _times_batched(_changes(dataset), dataset.element_spec)
    for _ in range(times):
        dataset = dataset.unbatch()
    return dataset, times


def _changes(dataset: tf.data.Dataset) -> list[int]:
    """Returns 1 for what put elements together and -1 for the contrary, from the end.

    0 stands for a function that returns a dataset: nobody knows what it did.
    """
    changes = []
    tensor = dataset._variant_tensor
    while tensor is not None:
        name = tensor.op.type.partition("V")[0]
        if name in _TOGETHER or name in _APART:
            changes.append(1 if name in _TOGETHER else -1)
        if "Dataset" not in name:
            changes.append(0)
            break
        inputs = [each for each in tensor.op.inputs if each.dtype == tf.variant]
        tensor = inputs[0] if inputs else None
    return changes


def _times_batched(changes: Sequence[int], spec: object) -> int:
    """Returns how often examples were batched in the end.

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
        if not may_be_short and sum(changes[times:]) <= 0:
            break
        times += 1
    return times
