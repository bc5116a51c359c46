"""Sequences: TFF's `T*`, TensorFlow's datasets, and the variants between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import casts, compat
from tff_drift.execution import containers
from tff_drift.execution.local import tensors
from tff_drift.execution.local.plan import trees

Struct = compat.structure.Struct
# The leaves of an element.
Row = list[np.ndarray | tf.Tensor]
# The functions below build graphs themselves: AutoGraph has nothing to do.
_DO_NOT_CONVERT = tf.autograph.experimental.do_not_convert


def is_sequence(type_signature: compat.Type) -> bool:
    """Whether a type is that of sequences."""
    return isinstance(type_signature, compat.SequenceType)


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
    specs = Struct(
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
    return Struct(
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
    return list(trees.leaf_types(element_type))


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
    tree = trees.pack(element_type, iter(leaves))
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
    tree = trees.pack(element_type, iter(columns))
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


def map_sequence(function: Any, variant: tf.Tensor, types: Any) -> tf.Tensor:
    """Maps the elements of a sequence.

    Args:
      function: Of a tree, the element, to a tree.
      variant: The sequence.
      types: The function's type.

    Returns:
      The sequence of the results.
    """
    spreads = type(element_spec(types.parameter)) is tuple

    @_DO_NOT_CONVERT
    def on_element(*element: Any) -> Any:
        # `Dataset.map` spreads a tuple as arguments, one of a single element too.
        value = element if spreads else element[0]
        result = function(to_tree(value, types.parameter))
        return compat.type_to_py_container(result, types.result)

    mapped = to_dataset(variant, types.parameter).map(on_element)
    return tf.data.experimental.to_variant(mapped)


def reduce_sequence(
    function: Any, variant: tf.Tensor, zero: Any, element_type: compat.Type
) -> Any:
    """Reduces the elements of a sequence.

    Args:
      function: Of the accumulator's tree and the element's tree to the next
        accumulator.
      variant: The sequence.
      zero: The first accumulator.
      element_type: The type of the elements.

    Returns:
      The last accumulator, a tree like `zero`.
    """
    flat = tuple(trees.leaves(zero))

    @_DO_NOT_CONVERT
    def on_element(state: Any, element: Any) -> Any:
        value = to_tree(element, element_type)
        result = function(compat.structure.pack_sequence_as(zero, list(state)), value)
        return tuple(trees.leaves(result))

    reduced = to_dataset(variant, element_type).reduce(flat, on_element)
    if isinstance(zero, Struct):
        return compat.structure.pack_sequence_as(zero, list(reduced))
    return reduced[0]


def select_sequence(
    select: Any, keys: tf.Tensor, server_value: Any, types: compat.FunctionType
) -> tf.Tensor:
    """Returns the sequence of what a client selected by its keys.

    Args:
      select: Of the server's value and a key to an element.
      keys: The client's keys, a vector.
      server_value: The server's value, a tree.
      types: The type of `select`.

    Returns:
      The sequence, in the order of the keys.
    """

    @_DO_NOT_CONVERT
    def on_key(key: tf.Tensor) -> Any:
        return compat.type_to_py_container(select(server_value, key), types.result)

    selected = tf.data.Dataset.from_tensor_slices(keys).map(on_key)
    return tf.data.experimental.to_variant(selected)
