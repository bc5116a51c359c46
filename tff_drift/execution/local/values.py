"""Python values in and out: arguments into tensors, tensors into results."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.execution.local import batches, evaluation, sequences
from tff_drift.execution.local.planning import Leaf

_LARGE_BYTES = 2**16
_BOUNDARY = 64
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def cardinalities(value: Any, type_signature: compat.Type) -> dict[Any, int]:
    """Returns how many members a value implies for each placement.

    Args:
      value: An argument.
      type_signature: Its type.

    Returns:
      The number of clients under `tff.CLIENTS`, if `value` says how many.

    Raises:
      TypeError: If the values of clients are not in a list or a tuple.
      ValueError: If there are different numbers of values of clients.
    """
    if isinstance(value, tff.framework.CardinalityCarrying):
        return dict(value.cardinality)
    if isinstance(type_signature, compat.FederatedType):
        if type_signature.all_equal:
            return {}
        if not isinstance(value, (list, tuple)):
            raise TypeError(
                f"Expected a list with a value for each client, of type "
                f"{type_signature}, found a {type(value).__name__}."
            )
        return {type_signature.placement: len(value)}
    found: dict[Any, int] = {}
    if isinstance(type_signature, compat.StructType):
        elements = sequences.struct_elements(value, type_signature)
        for element, (_, element_type) in zip(
            elements, tff.structure.iter_elements(type_signature)
        ):
            found = tff.framework.merge_cardinalities(
                found, cardinalities(element, element_type)
            )
    return found


def flatten_argument(value: Any, type_signature: compat.Type) -> Iterator[Any]:
    """Turns an argument into tensors.

    Args:
      value: The argument.
      type_signature: Its type.

    Yields:
      For each leaf of the type: a tensor, or for a leaf at clients, a list with
      a tensor for each client. Sequences become `batches.ClientSequence`s.

    Raises:
      NotImplementedError: If the value is a `tff.framework.Ingestable`.
      TypeError: If the value is not of that type.
      ValueError: If an element of a list given for a sequence has another shape
        than its type says.
    """
    if _loads_itself(value.__class__):
        raise NotImplementedError(
            "The local execution context does not support arguments that load "
            f"themselves, such as tff.framework.DataDescriptor, found {value!r}. Pass "
            "the data."
        )
    if isinstance(type_signature, compat.FederatedType):
        member = type_signature.member
        if type_signature.all_equal:
            yield from flatten_argument(value, member)
            return
        columns = [list(flatten_argument(each, member)) for each in value]
        if columns:
            yield from (list(column) for column in zip(*columns))
        else:
            yield from ([] for _ in evaluation.leaf_types(member))
    elif isinstance(type_signature, compat.StructType):
        elements = sequences.struct_elements(value, type_signature)
        for element, (_, element_type) in zip(
            elements, tff.structure.iter_elements(type_signature)
        ):
            yield from flatten_argument(element, element_type)
    elif isinstance(type_signature, compat.SequenceType):
        yield _sequence(value, type_signature)
    else:
        yield _tensor(value, type_signature)


@functools.lru_cache(maxsize=256)
def _loads_itself(kind: type) -> bool:
    # Python takes long to say so of a protocol like this one.
    return issubclass(kind, tff.framework.Ingestable)


def _sequence(
    value: Any, type_signature: compat.SequenceType
) -> batches.ClientSequence:
    if isinstance(value, list):
        return batches.ClientSequence(value, type_signature.element)
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(
            f"Expected a tf.data.Dataset or a list for type {type_signature}, found a "
            f"{type(value).__name__}."
        )
    _check_elements(value, type_signature)
    return batches.ClientSequence(value, type_signature.element)


# The element type, itself, and the spec of the elements that were found to be of it
# last: the datasets of a cohort have one spec, which takes long to look into.
_last_fit: tuple[Any, Any] = (None, None)


def _check_elements(
    dataset: tf.data.Dataset, type_signature: compat.SequenceType
) -> None:
    global _last_fit
    expected, spec = type_signature.element, dataset.element_spec
    if _last_fit[0] is expected and _last_fit[1] == spec:
        return
    found = compat.tensorflow_to_type(spec)
    if not expected.is_assignable_from(found):
        raise TypeError(
            f"Expected a dataset of type {type_signature}, found elements of type "
            f"{found}."
        )
    _last_fit = (expected, spec)


def _tensor(value: Any, tensor_type: compat.TensorType) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        value = value.read_value()
    dtype = tf.as_dtype(tensor_type.dtype)
    if tf.is_tensor(value) and value.dtype == dtype:
        shape, tensor = value.shape, value
    else:
        if tf.is_tensor(value):
            value = value.numpy()
        array = _array(value, tensor_type)
        shape, tensor = array.shape, _to_tensor(array, dtype)
    if not tf.TensorShape(tensor_type.shape).is_compatible_with(shape):
        raise TypeError(
            f"Expected a value of type {tensor_type}, found one of shape {shape}."
        )
    return tensor


def _to_tensor(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    if array.nbytes < _LARGE_BYTES or array.dtype != dtype:
        return tf.constant(array, dtype)
    # `tf.constant` copies twice. An operation copies once, and not at all where the
    # memory starts at a boundary of TensorFlow's; then no one else may change it.
    if array.flags.writeable:
        memory = np.empty(array.nbytes + _BOUNDARY, np.uint8)
        start = -memory.ctypes.data % _BOUNDARY
        aligned = memory[start : start + array.nbytes].view(array.dtype)
        aligned = aligned.reshape(array.shape)
        aligned[...] = array
        array = aligned
    return tf.raw_ops.Identity(input=array)


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
        fits = all(np.can_cast(item, dtype) for item in array.ravel().tolist())
    if not fits:
        raise _wrong_dtype(array, tensor_type)
    return np.asarray(value, dtype)


def _wrong_dtype(array: np.ndarray, tensor_type: compat.TensorType) -> TypeError:
    return TypeError(
        f"Expected a value of type {tensor_type}, found one of dtype {array.dtype}. "
        "Cast it, for example with np.asarray(value, dtype)."
    )


# From the values of leaves, a client and the number of clients to a Python value.
Assembler = Callable[[Mapping[Leaf, Any], Optional[int], int], Any]


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
                result, tff.structure.iter_elements(type_signature)
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
        if isinstance(type_signature, compat.SequenceType):
            if isinstance(value, batches.ClientSequence):
                value = value.variant()
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
            return lambda elements: collections.OrderedDict(zip(names, elements))
        if hasattr(container, "__attrs_attrs__"):
            return lambda elements: container(**dict(zip(names, elements)))
    if not any(names) and container in (None, list, tuple):
        return tuple if container is None else container

    # TFF's conversion takes longer.
    def pack(elements: list[Any]) -> Any:
        struct = tff.structure.Struct(zip(names, elements))
        return compat.type_to_py_container(struct, type_signature)

    return pack
