"""Clients' sequences as they come in: for loops in a graph, and batch by batch.

A computation of one client takes a sequence as a variant tensor, TensorFlow's form
of a dataset. Clients that are trained many at a time are read batch by batch instead.
Reading a dataset takes longer than training a small model on it, so that what was
read is kept, within a limit of RAM, for datasets that give the same batches every
time.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local import patterns, policy, tensors
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.batches import (
    ArrayBatches,
    Batches,
    as_array,
    in_main_memory,
    uninitialized,
)
from tff_drift.execution.local.data.variants import read, to_variant


class TooManyBytesError(Exception):
    """Batches were to be read that take more RAM than there is for them."""


class MemoryBudget:
    """RAM for batches that are read, perhaps by several threads, in bytes."""

    def __init__(self, num_bytes: float) -> None:
        self._left = num_bytes
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> None:
        """Takes some of it; raises `TooManyBytesError` if there is less."""
        with self._lock:
            self._left -= num_bytes
            if self._left < 0:
                raise TooManyBytesError


class ClientSequence:
    """A sequence given as an argument.

    Args:
      value: A dataset, or a list of elements.
      element_type: The type of the elements.

    Raises:
      TypeError: If an element of a list is not of that type.
      ValueError: If an element of a list has another shape than the type says.
    """

    def __init__(
        self, value: tf.data.Dataset | list[Any], element_type: compat.Type
    ) -> None:
        self._element_type = element_type
        self._dataset = None if isinstance(value, list) else value
        self._rows: list[sequences.Row] = []
        if isinstance(value, list):
            self._rows = sequences.element_rows(value, element_type)
        self._variant: tf.Tensor | None = None
        # Of a list, or of a dataset that would give others when read again.
        self._batches: Batches | None = None

    def variant(self) -> tf.Tensor:
        """Returns the sequence as a variant tensor."""
        if self._variant is None:
            dataset = self._dataset
            if dataset is None:
                dataset = sequences.from_rows(self._rows, self._element_type)
            self._variant = to_variant(dataset)
        return self._variant

    def release(self) -> None:
        """Says that its client is through: what can be made again need not be kept."""

    def is_repeatable(self) -> bool:
        """Whether every pass over the elements gives the same."""
        return self._dataset is None or patterns.is_repeatable(self._dataset)

    def known_batches(self, cache: BatchCache) -> Batches | None:
        """Returns the elements, None if they have to be read first.

        Args:
          cache: Holds those of some datasets.
        """
        if self._dataset is not None:
            return cache.get(self._dataset)
        if self._batches is None:
            order = sequences.component_order(self._element_type)
            self._batches = ArrayBatches([row[k] for k in order] for row in self._rows)
        return self._batches

    def batches(self, cache: BatchCache, budget: MemoryBudget) -> Batches:
        """Returns the elements, perhaps those that `cache` holds.

        Args:
          cache: Keeps those of datasets that give the same every time. Others are
            read once: from then on the sequence is a list of what was read.
          budget: For what is read.

        Raises:
          TooManyBytesError: If it takes more; the sequence is as it was.
        """
        known = self.known_batches(cache)
        if known is not None:
            return known
        variant = self.variant()
        # Whoever reads it again is to have it as if it were new.
        self._variant = None
        batches = read_batches(variant, self._element_type, budget)
        cache.put(self._dataset, batches)
        if not self.is_repeatable():
            order = np.argsort(sequences.component_order(self._element_type)).tolist()
            self._rows = [[row[k] for k in order] for row in batches.arrays]
            self._dataset = None
            self._batches = batches
        return batches


def as_tensor(value: tf.Tensor | np.ndarray | ClientSequence) -> tf.Tensor:
    """Returns a value as computations take it: a sequence as a variant tensor."""
    if isinstance(value, ClientSequence):
        return value.variant()
    return tensors.from_array(value) if isinstance(value, np.ndarray) else value


def stack_values(values: Sequence[np.ndarray | tf.Tensor]) -> tf.Tensor:
    """Returns values of clients, stacked; arrays are copied once."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return tf.stack(list(map(as_tensor, values)))
    shape = [len(values), *values[0].shape]
    stack = uninitialized(shape, tf.as_dtype(values[0].dtype))
    np.stack(values, out=stack)
    return in_main_memory(stack)


def read_batches(
    variant: tf.Tensor, element_type: compat.Type, budget: MemoryBudget
) -> ArrayBatches:
    """Reads a sequence.

    Args:
      variant: The sequence.
      element_type: The type of its elements.
      budget: For what is read.

    Returns:
      Its elements.

    Raises:
      TooManyBytesError: If it takes more.
    """
    # In RAM, where batches of several clients are put together.
    with tf.device("/CPU:0"):
        return ArrayBatches(_within(budget, read(variant, element_type)))


def _within(
    budget: MemoryBudget, elements: Iterable[list[tf.Tensor]]
) -> Iterable[list[np.ndarray]]:
    for element in elements:
        arrays = list(map(as_array, element))
        budget.take(sum(array.nbytes for array in arrays))
        yield arrays


class BatchCache:
    """The batches of datasets, those used last, for as long as the datasets live.

    Args:
      limit_bytes: The RAM that the batches may take.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        # The cohorts stacked last, by their keys.
        self._cohorts: collections.OrderedDict[Any, None] = collections.OrderedDict()
        self._used_bytes = 0
        # By their keys: what has to live, what is kept, and its size.
        self._entries: collections.OrderedDict[Any, tuple[Any, Any, int]] = (
            collections.OrderedDict()
        )
        # Reentrant: forgetting a dataset may be due to what happens in here.
        self._lock = threading.RLock()

    @property
    def used_bytes(self) -> int:
        """The RAM that the batches take."""
        return self._used_bytes

    def get(self, dataset: tf.data.Dataset) -> Batches | None:
        """Returns the batches of a dataset, None if they are not there."""
        with self._lock:
            entry = self._entries.get(id(dataset))
            # Another dataset may have got the number of one that is gone.
            if entry is None or entry[0]() is not dataset:
                return None
            self._entries.move_to_end(id(dataset))
            return entry[1]

    def put(self, dataset: tf.data.Dataset, batches: Batches) -> None:
        """Keeps the batches of a dataset, if it gives the same every time."""
        if not patterns.is_repeatable(dataset):
            return
        key = id(dataset)
        reference = weakref.ref(dataset, lambda _: self._forget(key))
        batches.is_kept = self._keep(key, reference, batches, sum(batches.num_bytes))

    def put_together(
        self, batches: Sequence[Batches], way: Any, build: Callable[[], Any]
    ) -> Any:
        """Returns what `build` does; keeps it for cohorts that come again.

        It is kept at the second time, if all the batches are.

        Args:
          batches: The batches of every client.
          way: Names the way in which they are put together.
          build: Puts them together in tensors, always the same for these batches put
            together in this way.
        """
        key = (way, *map(id, batches))
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and all(
                reference() is own for reference, own in zip(entry[0], batches)
            ):
                self._entries.move_to_end(key)
                return entry[1]
        tensors = build()
        if all(own.is_kept for own in batches) and self._came_before(key):
            references = [
                weakref.ref(own, lambda _: self._forget(key)) for own in batches
            ]
            size = sum(map(_num_bytes, tf.nest.flatten(tensors)))
            self._keep(key, references, tensors, size)
        return tensors

    def _came_before(self, key: Any) -> bool:
        with self._lock:
            came_before = key in self._cohorts
            self._cohorts[key] = None
            self._cohorts.move_to_end(key)
            if len(self._cohorts) > policy.COHORTS_REMEMBERED:
                self._cohorts.popitem(last=False)
        return came_before

    def _keep(self, key: Any, references: Any, value: Any, size: int) -> bool:
        """Keeps a value if it fits; returns whether it does."""
        if size > self._limit_bytes:
            return False
        with self._lock:
            self._forget(key)
            self._entries[key] = (references, value, size)
            self._used_bytes += size
            while self._used_bytes > self._limit_bytes:
                self._forget(next(iter(self._entries)))
        return True

    def _forget(self, key: Any) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._used_bytes -= entry[2]


def _num_bytes(tensor: tf.Tensor) -> int:
    return tensor.shape.num_elements() * tensor.dtype.size
