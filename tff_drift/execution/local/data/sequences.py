"""Sequences: TFF's `T*`, TensorFlow's datasets, and the variants between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import casts, compat
from tff_drift.execution import containers
from tff_drift.execution.local import language, patterns, tensors

# The leaves of an element.
Row = list[np.ndarray | tf.Tensor]
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


def element_spec(element_type: compat.Type) -> Any:
    """Returns the `tf.TensorSpec` structure of a sequence's elements.

    Args:
      element_type: The elements' type.

    Returns:
      A structure with the Python containers of the type; where it has none, an
      `OrderedDict` for named elements and a tuple for unnamed ones.
    """
    if isinstance(element_type, compat.TensorType):
        return tf.TensorSpec(element_type.shape, element_type.dtype)
    specs = language.Struct(
        (name, element_spec(element))
        for name, element in compat.structure.iter_elements(element_type)
    )
    return compat.type_to_py_container(specs, element_type)


def to_tree(value: Any, type_signature: compat.Type) -> Any:
    """Turns a Python structure into a tree of `Struct`s.

    Args:
      value: A structure of leaves.
      type_signature: Its type, of tensors and structures.

    Returns:
      The tree.

    Raises:
      TypeError: If the structure has another form than the type.
    """
    if not isinstance(type_signature, compat.StructType):
        return value
    elements = containers.struct_elements(value, type_signature)
    return language.Struct(
        (name, to_tree(element, element_type))
        for element, (name, element_type) in zip(
            elements, compat.structure.iter_elements(type_signature), strict=True
        )
    )


def to_dataset(variant: tf.Tensor, element_type: compat.Type) -> tf.data.Dataset:
    """Returns the dataset that a variant tensor holds."""
    return tf.data.experimental.from_variant(variant, element_spec(element_type))


def element_rows(elements: Sequence[Any], element_type: compat.Type) -> list[Row]:
    """Returns elements that are given one by one, each as the list of its leaves.

    Args:
      elements: The elements.
      element_type: Their type.

    Returns:
      A row for each element: of arrays where they are of the type's dtype, which need
      not be tensors before they are put together, else of tensors.

    Raises:
      TypeError: If an element is not of that type.
      ValueError: If an element has another shape than the type says.
    """
    if not elements:
        return []
    specs, flatten = _leaf_types(element_type), _flattener(element_type)
    return [
        [
            _element_leaf(leaf, spec)
            for leaf, spec in zip(flatten(element), specs, strict=True)
        ]
        for element in elements
    ]


def example_leaves(examples: Any, element_type: compat.Type) -> Row:
    """Returns the leaves of a structure of the examples of several elements.

    Args:
      examples: Like an element, of another first dimension.
      element_type: The type of an element.

    Returns:
      The leaves, and raises, as `element_rows`.
    """
    leaves, specs = _flattener(element_type)(examples), _of_any_size(element_type)
    return [_element_leaf(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)]


@functools.lru_cache(maxsize=256)
def _leaf_types(element_type: compat.Type) -> list[compat.Type]:
    return list(language.leaf_types(element_type))


@functools.lru_cache(maxsize=256)
def _of_any_size(element_type: compat.Type) -> list[compat.TensorType]:
    """Returns the types of the leaves, their first dimension left open."""
    return [
        compat.TensorType(leaf.dtype, leaf.shape and [None, *list(leaf.shape)[1:]])
        for leaf in _leaf_types(element_type)
    ]


# Made once for a type, as below: a cohort has hundreds of elements.
@functools.lru_cache(maxsize=256)
def _flattener(type_signature: compat.Type) -> Callable[[Any], list[Any]]:
    """Returns what lists the leaves of values of a type of tensors and structures."""
    if not isinstance(type_signature, compat.StructType):
        return lambda value: [value]
    types = [each for _, each in compat.structure.iter_elements(type_signature)]
    if not any(isinstance(each, compat.StructType) for each in types):
        return lambda value: containers.struct_elements(value, type_signature)
    flatteners = list(map(_flattener, types))
    return lambda value: [
        leaf
        for element, flatten in zip(
            containers.struct_elements(value, type_signature), flatteners, strict=True
        )
        for leaf in flatten(element)
    ]


@functools.lru_cache(maxsize=256)
def component_order(element_type: compat.Type) -> tuple[int, ...]:
    """Returns where the components of a dataset are among the leaves of its type.

    A dataset sorts the keys of a mapping, a type does not.
    """
    leaves = range(len(_leaf_types(element_type)))
    tree = language.pack(element_type, iter(leaves))
    return tuple(tf.nest.flatten(compat.type_to_py_container(tree, element_type)))


def from_rows(rows: Sequence[Row], element_type: compat.Type) -> tf.data.Dataset:
    """Returns a dataset of what `element_rows` returned.

    Args:
      rows: The elements.
      element_type: Their type.

    Returns:
      A `tf.data.Dataset`.
    """
    specs = _leaf_types(element_type)
    if not rows:
        return _slices([_no_rows(spec) for spec in specs], element_type)
    pieces = [
        _slices(
            [
                _stacked(*column)
                for column in zip(zip(*run, strict=True), specs, strict=True)
            ],
            element_type,
        )
        for run in _runs_of_equal_shape(rows)
    ]
    return functools.reduce(lambda left, right: left.concatenate(right), pieces)


def _stacked(column: Sequence[Any], tensor_type: compat.TensorType) -> tf.Tensor:
    if tensor_type.dtype != tf.string and all(
        isinstance(leaf, np.ndarray) for leaf in column
    ):
        return tensors.from_array(np.stack(column))
    # Of arrays of int64 `tf.stack` would make a tensor of int32.
    return tf.stack([tf.convert_to_tensor(leaf, tensor_type.dtype) for leaf in column])


def _slices(columns: list[tf.Tensor], element_type: compat.Type) -> tf.data.Dataset:
    tree = language.pack(element_type, iter(columns))
    return tf.data.Dataset.from_tensor_slices(
        compat.type_to_py_container(tree, element_type)
    )


def _element_leaf(value: Any, tensor_type: compat.TensorType) -> np.ndarray | tf.Tensor:
    if not isinstance(value, np.ndarray) or value.dtype != tensor_type.dtype:
        if isinstance(value, (np.ndarray, np.generic)):
            _check_cast(value, tensor_type)
        value = tf.convert_to_tensor(value, tensor_type.dtype)
    if not fits(value.shape, tensor_type.shape):
        raise ValueError(
            f"Expected elements of type {tensor_type}, found the shape "
            f"{tuple(value.shape)}."
        )
    return value


def _check_cast(value: Any, tensor_type: compat.TensorType) -> None:
    """Raises if TensorFlow would cast a number to another one, without a word."""
    array, wanted = np.asarray(value), tf.as_dtype(tensor_type.dtype)
    if array.dtype.kind not in "biufc" or wanted == tf.string:
        return
    if array.dtype.kind == "f" and wanted.is_floating:
        # The quick answer, for the inputs of a model.
        with np.errstate(over="ignore"):
            if np.isfinite(array.astype(wanted.as_numpy_dtype)).all():
                return
    changed = casts.changed_values(array, wanted)
    if changed is not None and changed.any():
        raise ValueError(
            f"Expected elements of type {tensor_type}, found {array[changed][0]!s} of "
            f"{array.dtype}, which would be another value there. Correct it, or build "
            "the model for what it is."
        )


def fits(shape: Sequence[int], expected: Sequence[int | None] | None) -> bool:
    """Whether a shape is one of those that a type allows, which may be any (None)."""
    # `TensorShape` takes long to say so.
    if expected is None:
        return True
    for size, want in zip(shape, expected, strict=False):
        if want is not None and size != want:
            return False
    return len(shape) == len(expected)


def _runs_of_equal_shape(rows: Sequence[Row]) -> list[list[Row]]:
    runs: list[list[Row]] = []
    previous = None
    for row in rows:
        shapes = [tuple(leaf.shape) for leaf in row]
        if previous is None or shapes != previous:
            runs.append([])
        runs[-1].append(row)
        previous = shapes
    return runs


def _no_rows(tensor_type: compat.TensorType) -> tf.Tensor:
    shape = [size or 0 for size in tensor_type.shape or ()]
    return tf.zeros([0, *shape], tensor_type.dtype)


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
    specs = tf.nest.flatten(element_spec(element_type))
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
