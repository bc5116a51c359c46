"""The RAM for batches read from datasets, and for tensors built from them.

Reading a dataset takes longer than training a small model on it, so that what was read
is kept for datasets that give the same batches every time.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.tensors import num_bytes

# How long a cohort waits for the one that is being put together, in seconds.
_LONGEST_WAIT = 0.01


class TooManyBytesError(Exception):
    """Batches were to be read that take more RAM than there is for them."""


class MemoryBudget:
    """RAM for batches that are read, perhaps by several threads, in bytes."""

    def __init__(self, num_bytes: float) -> None:
        self._left = num_bytes
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> None:
        """Uses a part of the budget; raises `TooManyBytesError` if less is left."""
        with self._lock:
            self._left -= num_bytes
            if self._left < 0:
                raise TooManyBytesError


class BatchCache:
    """The batches of datasets, those used last, for as long as the datasets live.

    Args:
      limit_bytes: The RAM that the batches may take.
      cohorts: How many cohorts are remembered, to know those that come again.
    """

    def __init__(self, limit_bytes: int, cohorts: int) -> None:
        self._limit_bytes = limit_bytes
        self._cohorts_remembered = cohorts
        # The cohorts stacked last, by their keys.
        self._cohorts: collections.OrderedDict[Any, None] = collections.OrderedDict()
        self._used_bytes = 0
        # By their keys: what has to live, what is kept, and its size.
        self._entries: collections.OrderedDict[Any, tuple[Any, Any, int]] = (
            collections.OrderedDict()
        )
        # Reentrant: forgetting a dataset may be due to what happens in here.
        self._lock = threading.RLock()
        self._turn = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """The RAM that the batches take."""
        return self._used_bytes

    def get(self, dataset: tf.data.Dataset) -> Any | None:
        """Returns what was read of a dataset, None if it is not there."""
        with self._lock:
            entry = self._entries.get(id(dataset))
            # Another dataset may have got the number of one that is gone.
            if entry is None or entry[0]() is not dataset:
                return None
            self._entries.move_to_end(id(dataset))
            return entry[1]

    def put(self, dataset: tf.data.Dataset, data: Any) -> None:
        """Keeps what was read of a dataset, if it gives the same every time.

        Args:
          dataset: The dataset.
          data: A `ClientData`. It learns whether it is kept.
        """
        if not patterns.is_repeatable(dataset):
            return
        key = id(dataset)
        reference = weakref.ref(dataset, lambda _: self._forget(key))
        data.is_kept = self._keep(key, reference, data, sum(data.num_bytes))

    def put_together(
        self, cohort: Sequence[Any], way: Any, build: Callable[[], Any]
    ) -> Any:
        """Returns what `build` does; keeps it for cohorts that come again.

        It is kept at the second time, if all the data is. Threads take turns.

        Args:
          cohort: The `ClientData` of every client.
          way: Names the way in which they are put together.
          build: Puts them together in tensors, always the same for this data put
            together in this way.
        """
        key = (way, *map(id, cohort))
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and all(
                reference() is own
                for reference, own in zip(entry[0], cohort, strict=True)
            ):
                self._entries.move_to_end(key)
                return entry[1]
        with self._in_turn():
            tensors = build()
        if all(own.is_kept for own in cohort) and self._came_before(key):
            references = [
                weakref.ref(own, lambda _: self._forget(key)) for own in cohort
            ]
            size = num_bytes(tf.nest.flatten(tensors))
            self._keep(key, references, tensors, size)
        return tensors

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Has one cohort put together at a time, unless that takes long.

        Copying small arrays holds the interpreter: threads that do it side by side
        stop each other at every one, and none of their groups begins to train.
        Reading a disk or copying large arrays does not hold it.
        """
        has_turn = self._turn.acquire(timeout=_LONGEST_WAIT)
        try:
            yield
        finally:
            if has_turn:
                self._turn.release()

    def _came_before(self, key: Any) -> bool:
        with self._lock:
            came_before = key in self._cohorts
            self._cohorts[key] = None
            self._cohorts.move_to_end(key)
            if len(self._cohorts) > self._cohorts_remembered:
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
