"""Clients' batches and values, put together in memory that TensorFlow uses as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import aligned_memory
from tff_drift.execution.local import tensors
from tff_drift.execution.local.data.client_data import ClientData, as_tensor


def put_side_by_side(
    batches: Sequence[ClientData],
    owners: np.ndarray,
    numbers: np.ndarray,
    specs: Sequence[tf.TensorSpec],
    shapes: Any,
) -> list[tf.Tensor]:
    """Returns the batches of the steps that clients take together.

    Args:
      batches: The batches of every client.
      owners: Whose batch it is, `[steps, clients]`.
      numbers: Which one, `[steps, clients]`.
      specs: The specs of the components of a batch.
      shapes: Their shapes in these batches; None if there are no steps.

    Returns:
      For each component a tensor `[steps, clients, ...]`.
    """
    stacks = []
    for component, spec in enumerate(specs):
        shape = [size or 0 for size in spec.shape or ()]
        if shapes is not None:
            shape = list(shapes[component])
        stack = _uninitialized([*owners.shape, *shape], spec.dtype)
        for step, (of_step, which) in enumerate(
            zip(owners.tolist(), numbers.tolist(), strict=True)
        ):
            for place, (client, number) in enumerate(zip(of_step, which, strict=True)):
                batches[client].copy(number, component, stack[step, place, ...])
        stacks.append(_in_main_memory(stack))
    return stacks


def put_end_to_end(
    batches: Sequence[ClientData],
    positions: Sequence[tuple[int, int]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[list[tf.Tensor], np.ndarray]:
    """Returns batches of any shapes, one after the other.

    Args:
      batches: The batches of every client.
      positions: Client and number of each batch, in their order.
      specs: The specs of the components of a batch.

    Returns:
      For each component the elements of all of them, a vector; and a row of numbers
      for each batch: for each component where its elements begin and end, and its
      shape.
    """
    vectors, columns = [], [np.zeros([len(positions), 0], int)]
    for component, spec in enumerate(specs):
        own = [
            batches[client].shapes[number][component] for client, number in positions
        ]
        ends = np.cumsum([0, *map(math.prod, own)])
        vector = _uninitialized([ends[-1]], spec.dtype)
        for (client, number), shape, start, end in zip(
            positions, own, ends[:-1], ends[1:], strict=True
        ):
            batches[client].copy(number, component, vector[start:end].reshape(shape))
        vectors.append(_in_main_memory(vector))
        shapes = np.reshape(own, [len(own), spec.shape.rank or 0])
        columns += [ends[:-1, np.newaxis], ends[1:, np.newaxis], shapes]
    return vectors, np.concatenate(columns, axis=1).astype(np.int32)


def rows_named(
    batches: Sequence[ClientData], component: int, num_rows: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns which rows of a table the batches of clients name.

    Args:
      batches: The batches of every client.
      component: The component that names rows.
      num_rows: The number of rows of the table.

    Returns:
      For each client the numbers of these rows, and of others so that all clients have
      as many; and for every row of the table at which place of them it is, if it is.
    """
    named = []
    for own in batches:
        is_named = np.zeros(num_rows, bool)
        for numbers in own.values(component):
            numbers = numbers.astype(np.int64, copy=False)
            # A number of no row is for TensorFlow to refuse.
            np.put(is_named, numbers, True, mode="clip")
        named.append(is_named)
    most = max(map(np.count_nonzero, named))
    rows, places = [], []
    for is_named in named:
        first = np.flatnonzero(is_named)
        others = np.flatnonzero(~is_named)[: most - len(first)]
        rows.append(np.concatenate([first, others]).astype(np.int32))
        places.append(np.zeros(num_rows, np.int32))
        places[-1][rows[-1]] = np.arange(most)
    return rows, places


class StackedValues(Sequence[tf.Tensor]):
    """A tensor of each client of a cohort, in the stacks of the groups that made them.

    Args:
      num_clients: The number of clients.
    """

    def __init__(self, num_clients: int) -> None:
        self._stacks: dict[tuple[int, ...], tf.Tensor] = {}
        self._places: list[Any] = [None] * num_clients

    def add(self, clients: Sequence[int], stack: tf.Tensor) -> None:
        """Adds the stack of a group.

        Args:
          clients: The numbers of the clients.
          stack: Their tensors, in this order.
        """
        self._stacks[tuple(clients)] = stack
        for row, client in enumerate(clients):
            self._places[client] = stack, row

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The clients of each group, in the order in which they were added."""
        return list(self._stacks)

    def of_group(self, clients: Sequence[int]) -> tf.Tensor | None:
        """Returns the stack of some clients, None if they are not a group."""
        return self._stacks.get(tuple(clients))

    def __getitem__(self, client: Any) -> Any:
        """Returns the tensor of a client."""
        stack, row = self._places[client]
        tensor = stack[row]
        tensors.give_back_attributes([tensor])
        return tensor

    def __len__(self) -> int:
        """Returns the number of clients."""
        return len(self._places)


def stack_values(values: Sequence[np.ndarray | tf.Tensor]) -> tf.Tensor:
    """Returns values of clients, stacked; arrays are copied once."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return tf.stack(list(map(as_tensor, values)))
    shape = [len(values), *values[0].shape]
    stack = _uninitialized(shape, tf.as_dtype(values[0].dtype))
    np.stack(values, out=stack)
    return _in_main_memory(stack)


def _uninitialized(shape: Sequence[int], dtype: tf.DType) -> np.ndarray:
    """Returns an array whose memory TensorFlow can use as it is."""
    if dtype == tf.string:
        return np.empty(shape, object)
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    memory = aligned_memory.aligned_bytes(math.prod(shape) * numpy_dtype.itemsize)
    return memory.view(numpy_dtype).reshape(shape)


def _in_main_memory(array: np.ndarray) -> tf.Tensor:
    """Returns an array as a tensor, which uses its memory if it can."""
    with tf.device("/CPU:0"):
        tensor = tf.raw_ops.Identity(input=array)
    tensors.give_back_attributes([tensor])
    return tensor
