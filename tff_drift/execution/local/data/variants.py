"""Datasets as computations get them: as if they were new, and quick to iterate over."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local import patterns, tensors
from tff_drift.execution.local.data import sequences

# With this attribute TensorFlow makes a function ready for one device as it is. Without
# it, every iterator sends each function of its dataset through the graph optimizer,
# which takes milliseconds, and trains a small model for several clients meanwhile.
_FOR_ONE_DEVICE = "experimental_ints_on_device"
# With this one, what rewrites a dataset looks into a function, too. It knows a function
# by the kind of its results, which that of integers is another of for one device, and
# would take it for a dataset.
_REWRITTEN = "_tf_data_function"

# A dataset that holds more is copied, through a graph, more slowly than its functions
# are optimized: one millisecond and 3.5 for each MiB, where that takes three.
_COPIED_DATASET_BYTES = 2**19


def to_variant(dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns a dataset as a computation gets it: as if it were new.

    A seeded `Dataset.shuffle` draws a new order at every iteration. TFF's worker
    gets a copy of the dataset for every computation, which starts over: a round
    does not depend on what was read before it.

    Args:
      dataset: The dataset.

    Returns:
      A scalar variant tensor.
    """
    variant = tf.data.experimental.to_variant(dataset)
    starts_over = patterns.draws_random_numbers(dataset)
    if not starts_over and not _is_better_copied(dataset):
        return variant
    try:
        serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
        graph_def = tf.compat.v1.GraphDef.FromString(serialized)
        if starts_over:
            _forget_positions(graph_def)
        _leave_unoptimized(graph_def)
        return tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())
    except tf.errors.OpError:
        # What reads from Python, or has more than 2 GB, cannot be copied.
        return variant


def _is_better_copied(dataset: tf.data.Dataset) -> bool:
    """Whether a copy takes less time than optimizing the functions."""
    return (
        patterns.has_moving_functions_only(dataset)
        and patterns.held_bytes(dataset) <= _COPIED_DATASET_BYTES
    )


def _forget_positions(graph_def: tf.compat.v1.GraphDef) -> None:
    """Breaks the links from shuffles to where their streams of seeds have got to.

    TensorFlow starts a stream over if it does not find it, as in TFF's worker,
    which is another process.
    """
    nodes = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        if patterns.is_random(node.op):
            for name in node.input:
                source = nodes[name.lstrip("^").split(":")[0]]
                for handle in source.attr["value"].tensor.resource_handle_val:
                    handle.name = "a seed generator that does not exist"


def _leave_unoptimized(graph_def: tf.compat.v1.GraphDef) -> None:
    """Marks the functions in which there is no arithmetic that could be optimized.

    The optimizer may change the last bits of arithmetic, which are to be TFF's.
    """
    for function in graph_def.library.function:
        if patterns.moves_values_only(node.op for node in function.node_def):
            function.attr[_FOR_ONE_DEVICE].b = True
            function.attr.pop(_REWRITTEN, None)


def read(variant: tf.Tensor, element_type: compat.Type) -> Iterator[list[tf.Tensor]]:
    """Yields the flattened elements of the dataset that a variant tensor holds."""
    # By operations: Python's iterators take three times as long for a small batch.
    specs = tf.nest.flatten(sequences.element_spec(element_type))
    of_elements = {
        "output_types": [spec.dtype for spec in specs],
        "output_shapes": [spec.shape for spec in specs],
    }
    dataset = tf.raw_ops.OptionsDataset(
        input_dataset=variant, serialized_options=unoptimized(), **of_elements
    )
    iterator = tf.raw_ops.AnonymousIteratorV3(**of_elements)
    tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
    tensors.give_back_attributes([dataset, iterator])
    for _ in range(int(tf.raw_ops.DatasetCardinality(input_dataset=dataset))):
        element = tf.raw_ops.IteratorGetNext(iterator=iterator, **of_elements)
        tensors.give_back_attributes(element)
        yield element
    # Whether there is more is asked for at the end only, since it takes longer: of a
    # number that is not known, and to see an error that comes after the last element.
    while True:
        optional = tf.raw_ops.IteratorGetNextAsOptional(
            iterator=iterator, **of_elements
        )
        if not tf.raw_ops.OptionalHasValue(optional=optional):
            return
        yield tf.raw_ops.OptionalGetValue(optional=optional, **of_elements)


@functools.lru_cache(maxsize=1)
def unoptimized() -> bytes:
    """Returns options that rewrite and tune little, as an operation takes them.

    That takes longer than a client's few batches can gain by it. Which elements come,
    and in which order, depends on one rewriting alone: a shuffle and its repetition,
    made one, draw other numbers of seeds, and a second pass goes on after them.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.shuffle_and_repeat_fusion = True
    options.autotune.enabled = False
    # TensorFlow has no public way to write them.
    return options._to_proto().SerializeToString()
