"""Arguments in, results out: Python values to tensors and sequences, and back."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import checks, compat
from tff_drift.execution import containers
from tff_drift.execution.batches_on_demand import BatchesOnDemand
from tff_drift.execution.local import language
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.client_data import (
    BatchShapes,
    ClientData,
    as_tensor,
)
from tff_drift.execution.local.planner import Leaf

# From the values of leaves, a client and the number of clients to a Python value.
Assembler = Callable[[Mapping[Leaf, Any], int | None, int], Any]
_NO_TENSORS = (np.ndarray, np.generic, int, float, str, bytes)
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


class ArgumentReader:
    """Turns arguments into tensors."""

    def __init__(self) -> None:
        # The element type, itself, and the spec of the elements that were found to be
        # of it last: the datasets of a cohort have one spec, and looking into it takes
        # long.
        self._last_fit: tuple[Any, Any] = (None, None)
        # The same of batches that are made on demand.
        self._last_shapes = BatchShapes(None, None)

    def read(
        self, value: Any, type_signature: compat.Type, of_client: bool = False
    ) -> Iterator[Any]:
        """Turns an argument into tensors.

        Args:
          value: The argument.
          type_signature: Its type.
          of_client: Whether it is that of one client.

        Yields:
          For each leaf of the type: a tensor, or for a leaf at clients, a list with
          a tensor for each client, or with an array, which is put together with those
          of others before it becomes a tensor. Sequences become `ClientData`s.

        Raises:
          NotImplementedError: If the value is a `tff.framework.Ingestable`.
          TypeError: If the value is not of that type.
          ValueError: If an element of a list given for a sequence has another shape
            than its type says.
        """
        if _loads_itself(value.__class__):
            raise NotImplementedError(
                "The local execution context does not support arguments that load "
                "themselves, such as tff.framework.DataDescriptor, found "
                f"{checks.shown(value)}. Pass the data."
            )
        kind = _kind(type_signature.__class__)
        if kind is compat.FederatedType:
            member = type_signature.member
            if type_signature.all_equal:
                yield from self.read(value, member, of_client)
                return
            columns = [list(self.read(each, member, True)) for each in value]
            if columns:
                yield from (list(column) for column in zip(*columns, strict=True))
            else:
                yield from ([] for _ in language.leaf_types(member))
        elif kind is compat.StructType:
            elements = containers.struct_elements(value, type_signature)
            for element, (_, element_type) in zip(
                elements, compat.structure.iter_elements(type_signature), strict=True
            ):
                yield from self.read(element, element_type, of_client)
        elif kind is compat.SequenceType:
            yield self._sequence(value, type_signature)
        else:
            leaf = _tensor_or_array(value, type_signature)
            yield leaf if of_client else as_tensor(leaf)

    def _sequence(self, value: Any, type_signature: compat.SequenceType) -> ClientData:
        if isinstance(value, list):
            return ClientData(value, type_signature.element)
        if isinstance(value, BatchesOnDemand):
            known = self._shapes_of(value, type_signature)
            return ClientData(value, type_signature.element, known)
        if not isinstance(value, tf.data.Dataset):
            raise TypeError(
                "Expected a tf.data.Dataset or a list for type "
                f"{checks.shortened(type_signature)}, found a {type(value).__name__}."
            )
        self._check_elements(value, type_signature)
        return ClientData(value, type_signature.element)

    def _shapes_of(
        self, value: BatchesOnDemand, type_signature: compat.SequenceType
    ) -> BatchShapes:
        last, element_type = self._last_shapes, type_signature.element
        if (
            last.element_spec is not value.element_spec
            or last.element_type is not element_type
        ):
            self._last_shapes = last = BatchShapes(value.element_spec, element_type)
        return last

    def _check_elements(
        self, dataset: tf.data.Dataset, type_signature: compat.SequenceType
    ) -> None:
        last_type, last_spec = self._last_fit
        expected, spec = type_signature.element, dataset.element_spec
        if last_type is expected and _is_like(last_spec, spec):
            return
        found = compat.tensorflow_to_type(spec)
        if not expected.is_assignable_from(found):
            raise TypeError(
                f"Expected a dataset of type {checks.shortened(type_signature)}, found "
                f"elements of type {checks.shortened(found)}."
            )
        orders = {sequences.component_order(each) for each in (expected, found)}
        if len(orders) > 1 and any(compat.structure_names(found)):
            # Of a named tuple `tf.data` keeps the order, of a dict it does not.
            raise TypeError(
                f"Expected a dataset of type {checks.shortened(type_signature)}, found "
                f"elements in a {found.python_container.__name__}, whose components "
                "come in another order than those of the type. Map them to the type's "
                "container, such as collections.OrderedDict."
            )
        self._last_fit = (expected, spec)


def _is_like(left: Any, right: Any) -> bool:
    """Whether specs are equal and of the same containers, which `==` does not ask."""
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(_is_like, left, right))
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(
            _is_like(left[name], right[name]) for name in left
        )
    return left == right


@functools.lru_cache(maxsize=256)
def _loads_itself(kind: type) -> bool:
    # Python takes long to say so of a protocol like this one.
    return issubclass(kind, compat.framework.Ingestable)


@functools.lru_cache(maxsize=256)
def _kind(type_class: type) -> type:
    # To ask an abstract class takes long, and this is asked for each of all clients.
    kinds = (compat.FederatedType, compat.StructType, compat.SequenceType)
    return next((kind for kind in kinds if issubclass(type_class, kind)), type_class)


def _tensor_or_array(
    value: Any, tensor_type: compat.TensorType
) -> tf.Tensor | np.ndarray:
    """Returns a value as a tensor if it is one or holds strings, else as an array."""
    # Of these, `tf.is_tensor` takes long to say that they are not tensors.
    if not isinstance(value, _NO_TENSORS):
        if isinstance(value, tf.Variable):
            value = value.read_value()
        if isinstance(value, tf.__internal__.CompositeTensor):
            raise TypeError(
                f"Expected a value of type {tensor_type}, found a "
                f"{type(value).__name__}. Turn it into a tensor."
            )
        if tf.is_tensor(value):
            if value.dtype == tf.as_dtype(tensor_type.dtype):
                return _of_shape(value, tensor_type)
            value = value.numpy()
    array = _of_shape(_array(value, tensor_type), tensor_type)
    if tensor_type.dtype.type is np.str_:
        return tf.constant(array, tf.string)
    return array


def _of_shape(value: Any, tensor_type: compat.TensorType) -> Any:
    if not sequences.fits(value.shape, tensor_type.shape):
        raise TypeError(
            f"Expected a value of type {tensor_type}, found one of shape {value.shape}."
        )
    return value


def _array(value: Any, tensor_type: compat.TensorType) -> np.ndarray:
    """Returns a NumPy array, under TFF's rules of what may be cast to what."""
    dtype = tensor_type.dtype.type
    array = np.asarray(value)
    if dtype is np.str_:
        if array.size and array.dtype.kind not in "SUO":
            raise _wrong_dtype(array, tensor_type)
        # As they are or as objects: NumPy's `bytes` drop null bytes at the end.
        return array if array.dtype.kind == "U" else np.asarray(value, np.object_)
    if not array.size or array.dtype.type is dtype:
        return np.asarray(value, dtype)
    known = [kind for kind in _KINDS if issubclass(array.dtype.type, kind)]
    # A kind of its own, such as bfloat16's, has nothing but itself to come from.
    fits = bool(known) and issubclass(dtype, known[0])
    if fits and isinstance(value, (np.ndarray, np.generic)):
        fits = np.can_cast(array.dtype, dtype)
    elif fits:
        fits = all(_fits(number, dtype) for number in array.ravel().tolist())
    if not fits:
        raise _wrong_dtype(array, tensor_type)
    return np.asarray(value, dtype)


def _fits(number: Any, dtype: type[np.generic]) -> bool:
    """Whether a Python number is in a dtype's range; NumPy 2 casts dtypes alone."""
    if issubclass(dtype, np.integer):
        return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)
    return np.can_cast(np.min_scalar_type(number), dtype)


def _wrong_dtype(array: np.ndarray, tensor_type: compat.TensorType) -> TypeError:
    return TypeError(
        f"Expected a value of type {tensor_type}, found one of dtype {array.dtype}. "
        "Cast it, for example with np.asarray(value, dtype)."
    )


def build_assembler(result: Any, type_signature: compat.Type) -> Assembler:
    """Builds what turns a result into what TFF's native execution context returns.

    Args:
      result: A tree of leaves.
      type_signature: The type of the result, with its Python containers.

    Returns:
      A function from the values of the leaves, None and the number of clients to
      Python containers of NumPy arrays and scalars, `bytes` for scalar strings,
      datasets for sequences, and lists for values at clients.
    """
    if isinstance(type_signature, compat.FederatedType):
        member = build_assembler(result, type_signature.member)
        if type_signature.all_equal:
            return lambda values, _, num_clients: member(values, 0, num_clients)
        return lambda values, _, num_clients: [
            member(values, client, num_clients) for client in range(num_clients)
        ]
    if isinstance(type_signature, compat.StructType):
        pack = _packer(type_signature)
        parts = [
            build_assembler(element, element_type)
            for element, (_, element_type) in zip(
                result, compat.structure.iter_elements(type_signature), strict=True
            )
        ]
        return lambda values, client, num_clients: pack(
            [part(values, client, num_clients) for part in parts]
        )

    def assemble_leaf(
        values: Mapping[Leaf, Any], client: int | None, num_clients: int
    ) -> Any:
        del num_clients
        value = values[result][client] if result.at_clients else values[result]
        value = as_tensor(value)
        if isinstance(type_signature, compat.SequenceType):
            return sequences.to_dataset(value, type_signature.element)
        if not value.shape.rank or value.dtype == tf.string:
            return value.numpy()
        # As from TFF, arrays are read-only, and share the memory of the tensor.
        return np.asarray(value)

    return assemble_leaf


def _packer(type_signature: compat.StructType) -> Callable[[list[Any]], Any]:
    """Returns what puts elements into the container of a type."""
    names = compat.structure_names(type_signature)
    container = type_signature.python_container
    if names and None not in names:
        if container in (None, collections.OrderedDict):
            return lambda elements: collections.OrderedDict(
                zip(names, elements, strict=True)
            )
        if hasattr(container, "__attrs_attrs__") or hasattr(container, "_fields"):
            return lambda elements: container(**dict(zip(names, elements, strict=True)))
    if not any(names) and container in (None, list, tuple):
        return tuple if container is None else container

    # TFF's conversion takes longer.
    def pack(elements: list[Any]) -> Any:
        struct = compat.structure.Struct(zip(names, elements, strict=True))
        return compat.type_to_py_container(struct, type_signature)

    return pack
