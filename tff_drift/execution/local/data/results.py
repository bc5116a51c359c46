"""Results out: what turns tensors into the Python values that TFF returns."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local.data import client_data, sequences
from tff_drift.execution.local.plan.plan import Leaf

# From the values of leaves, a client and the number of clients to a Python value.
Assembler = Callable[[Mapping[Leaf, Any], int | None, int], Any]


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
        value = client_data.as_tensor(value)
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
        if hasattr(container, "__attrs_attrs__"):
            return lambda elements: container(**dict(zip(names, elements, strict=True)))
    if not any(names) and container in (None, list, tuple):
        return tuple if container is None else container

    # TFF's conversion takes longer.
    def pack(elements: list[Any]) -> Any:
        struct = compat.structure.Struct(zip(names, elements, strict=True))
        return compat.type_to_py_container(struct, type_signature)

    return pack
