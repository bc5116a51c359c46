"""Batches of a client that are made when they are needed, and not kept."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import checks

Rows = np.ndarray | slice


@dataclasses.dataclass(frozen=True)
class BatchesOnDemand(Sequence[Any]):
    """A sequence of batches, which the local context takes in place of a list.

    Lists have to be there before a round begins: the batches of the whole cohort.
    These are made on the threads that train, and freed when their client is done,
    so that a cohort takes the RAM of the clients that are trained at a time. Each
    example is copied once, from the arrays in which it is kept to where it is trained
    on. Others read them as a sequence of batches.

    Attributes:
      sizes: The number of examples in each batch, which is what is known of them
        before.
      element_spec: The `tf.TensorSpec`s of a batch, its first dimension left open.
      make: Returns what the batches are cut from, in their order: pairs of examples,
        which are structures of arrays like `element_spec`, and the numbers of those
        that make one or several batches, None for all as they are. The same at every
        call, on any thread.
    """

    sizes: Sequence[int]
    element_spec: Any
    make: Callable[[], Iterable[tuple[Any, np.ndarray | None]]]

    __repr__ = checks.shown_fields

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        for examples, rows in self.unread():
            yield tf.nest.map_structure(operator.itemgetter(rows), examples)

    def unread(self) -> Iterator[tuple[Any, Rows]]:
        """Yields of each batch the arrays that hold its examples, and its rows.

        Raises:
          IndexError: If there is no example of one of the numbers that `make` returns.
        """
        sizes = iter(self.sizes)
        for examples, numbers in self.make():
            count = len(tf.nest.flatten(examples)[0])
            if numbers is not None:
                _check_numbers(numbers, count)
                count = len(numbers)
            start, end = 0, count
            while True:
                size = next(sizes, None)
                if size is None and start == end:
                    break  # Examples of no batch: none is announced.
                stop = end if size is None else min(start + size, end)
                part = slice(start, stop)
                yield examples, part if numbers is None else numbers[part]
                if stop == end:
                    break
                start = stop


def _check_numbers(numbers: np.ndarray, count: int) -> None:
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
        raise IndexError(
            f"BatchesOnDemand.make must return numbers of examples from 0 to "
            f"{count - 1}, found {numbers.min()} to {numbers.max()}."
        )
