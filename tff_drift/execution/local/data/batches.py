"""Clients' batches as arrays, and how they are put together for a stack."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import aligned_memory
from tff_drift.execution.local import tensors
from tff_drift.execution.local.data import sequences


class Batches(abc.ABC):
    """A client's batches.

    Args:
      shapes: See below.
      num_bytes: See below.

    Attributes:
      shapes: The shapes of each batch, one for each component of the dataset.
      num_bytes: The size of each batch, in bytes.
      run_lengths: See `sequences.run_lengths`.
      is_kept: Whether a `BatchCache` holds them.
    """

    def __init__(self, shapes: list[Any], num_bytes: list[int]) -> None:
        self.shapes = shapes
        self.num_bytes = num_bytes
        self.run_lengths = sequences.run_lengths(shapes)
        self.is_kept = False

    def __len__(self) -> int:
        return len(self.shapes)

    @abc.abstractmethod
    def copy(self, number: int, component: int, target: np.ndarray) -> None:
        """Copies a component of a batch.

        Args:
          number: Which batch.
          component: Which component.
          target: Where to: an array of its shape and of the component's dtype.
        """


class ArrayBatches(Batches):
    """Batches that are there as arrays.

    Args:
      batches: The arrays or tensors of each batch, in the order of the dataset's
        components.

    Attributes:
      arrays: The arrays of each batch; those of tensors share their memory.
    """

    def __init__(self, batches: Iterable[Sequence[np.ndarray | tf.Tensor]]) -> None:
        self.arrays = own = [list(map(as_array, batch)) for batch in batches]
        super().__init__(
            [tuple(array.shape for array in batch) for batch in own],
            [sum(array.nbytes for array in batch) for batch in own],
        )

    def copy(self, number: int, component: int, target: np.ndarray) -> None:
        """See `Batches.copy`."""
        target[...] = self.arrays[number][component]


class PickedBatches(Batches):
    """Some of a client's batches.

    Args:
      batches: All of them.
      numbers: Which ones, in their order.
    """

    def __init__(self, batches: Batches, numbers: Sequence[int]) -> None:
        self._batches = batches
        self._numbers = numbers
        super().__init__(
            [batches.shapes[number] for number in numbers],
            [batches.num_bytes[number] for number in numbers],
        )

    def copy(self, number: int, component: int, target: np.ndarray) -> None:
        """See `Batches.copy`."""
        self._batches.copy(self._numbers[number], component, target)


def as_array(value: np.ndarray | tf.Tensor) -> np.ndarray:
    """Returns an array, which shares the memory of a tensor."""
    if isinstance(value, np.ndarray):
        return value
    if value.dtype == tf.string and not value.shape.rank:
        # It is `bytes`, which NumPy would make an array of another dtype of.
        return np.array(value.numpy(), object)
    return np.asarray(value)


def stack_batches(
    batches: Sequence[Batches], number: int, specs: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Returns a batch of each of several clients, stacked.

    Args:
      batches: The batches of every client.
      number: Which of them, of one shape in all clients.
      specs: The specs of the components of a batch.
    """
    owners = np.arange(len(batches))[np.newaxis]
    stacks = put_side_by_side(
        batches, owners, np.full_like(owners, number), specs, batches[0].shapes[number]
    )
    return [tf.squeeze(stack, axis=0) for stack in stacks]


def put_side_by_side(
    batches: Sequence[Batches],
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
        stack = uninitialized([*owners.shape, *shape], spec.dtype)
        for step, (of_step, which) in enumerate(zip(owners.tolist(), numbers.tolist())):
            for place, (client, number) in enumerate(zip(of_step, which)):
                batches[client].copy(number, component, stack[step, place, ...])
        stacks.append(in_main_memory(stack))
    return stacks


def put_end_to_end(
    batches: Sequence[Batches],
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
        vector = uninitialized([ends[-1]], spec.dtype)
        for (client, number), shape, start, end in zip(positions, own, ends, ends[1:]):
            batches[client].copy(number, component, vector[start:end].reshape(shape))
        vectors.append(in_main_memory(vector))
        shapes = np.reshape(own, [len(own), spec.shape.rank or 0])
        columns += [ends[:-1, np.newaxis], ends[1:, np.newaxis], shapes]
    return vectors, np.concatenate(columns, axis=1).astype(np.int32)


def uninitialized(shape: Sequence[int], dtype: tf.DType) -> np.ndarray:
    """Returns an array whose memory TensorFlow can use as it is."""
    if dtype == tf.string:
        return np.empty(shape, object)
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    memory = aligned_memory.aligned_bytes(math.prod(shape) * numpy_dtype.itemsize)
    return memory.view(numpy_dtype).reshape(shape)


def in_main_memory(array: np.ndarray) -> tf.Tensor:
    """Returns an array as a tensor, which uses its memory if it can."""
    with tf.device("/CPU:0"):
        tensor = tf.raw_ops.Identity(input=array)
    tensors.give_back_attributes([tensor])
    return tensor
