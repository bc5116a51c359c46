"""One client's data: the batches of a sequence, in whatever form they came in.

A client that is trained alone takes its data as a variant tensor, TensorFlow's form of
a dataset. Clients that are trained many at a time are read batch by batch instead: the
shapes of the batches are known before, which is all that a schedule needs, and each
batch is copied once, to where it is trained on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.batches_on_demand import BatchesOnDemand, Rows
from tff_drift.execution.local import patterns, tensors
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.batch_cache import BatchCache, MemoryBudget

# The arrays of a batch's components, or of a whole epoch's, and which of their rows.
_Batch = tuple[list[np.ndarray], Rows | None]


class BatchShapes(dict[int, tuple[tuple[tuple[int, ...], ...], int]]):
    """For numbers of examples, the shapes of a batch of so many, and its bytes.

    Args:
      element_spec: Of a `BatchesOnDemand`.
      element_type: The type of a batch. Asking raises a TypeError if batches are not of
        that type, a ValueError if they have another shape than the type says.
    """

    def __init__(self, element_spec: Any, element_type: compat.Type) -> None:
        super().__init__()
        self.element_spec = element_spec
        self.element_type = element_type

    def __missing__(self, size: int) -> tuple[tuple[tuple[int, ...], ...], int]:
        def without_memory(spec: tf.TensorSpec) -> np.ndarray:
            # Nothing but a shape and a dtype, to be checked as a batch would be.
            zero = np.zeros((), spec.dtype.as_numpy_dtype)
            if spec.dtype == tf.string:
                zero = np.array(b"", object)
            return np.broadcast_to(zero, (size, *spec.shape[1:]))

        batch = tf.nest.map_structure(without_memory, self.element_spec)
        (row,) = sequences.element_rows([batch], self.element_type)
        leaves = [row[k] for k in sequences.component_order(self.element_type)]
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        of_items = [tf.as_dtype(leaf.dtype).size for leaf in leaves]
        self[size] = found = (
            shapes,
            sum(
                math.prod(shape) * of_item
                for shape, of_item in zip(shapes, of_items, strict=True)
            ),
        )
        return found


class ClientData:
    """One client's data, given as an argument.

    Args:
      value: A dataset, a list of batches, or batches that are made on demand.
      element_type: The type of a batch.
      known: The shapes of batches that are made on demand.

    Attributes:
      is_kept: Whether a `BatchCache` holds it.

    Raises:
      TypeError: If a batch is not of that type.
      ValueError: If a batch has another shape than the type says.
    """

    def __init__(
        self,
        value: tf.data.Dataset | list[Any] | BatchesOnDemand,
        element_type: compat.Type,
        known: BatchShapes | None = None,
    ) -> None:
        self._element_type = element_type
        self._dataset: tf.data.Dataset | None = None
        self._source: BatchesOnDemand | None = None
        # The leaves of each batch: of a list, or of a dataset once it has been read.
        self._rows: list[sequences.Row] = []
        self._variant: tf.Tensor | None = None
        self._made: list[_Batch] | None = None
        self._picked_from: tuple[ClientData, Sequence[int]] | None = None
        self.is_kept = False
        if isinstance(value, BatchesOnDemand):
            self._source = value
            if known is None:
                known = BatchShapes(value.element_spec, element_type)
            of_sizes = [known[size] for size in value.sizes]
            self.shapes = [shapes for shapes, _ in of_sizes]
            self.num_bytes = [num_bytes for _, num_bytes in of_sizes]
        elif isinstance(value, list):
            self._rows = sequences.element_rows(value, element_type)
        else:
            self._dataset = value

    @classmethod
    def of_arrays(
        cls, batches: Iterable[Sequence[Any]], element_type: compat.Type
    ) -> ClientData:
        """Returns data that has been read.

        Args:
          batches: The arrays or tensors of each batch, in the order of a dataset's
            components.
          element_type: The type of a batch.
        """
        order = np.argsort(sequences.component_order(element_type)).tolist()
        data = cls([], element_type)
        data._rows = [[as_array(batch[k]) for k in order] for batch in batches]
        return data

    def variant(self) -> tf.Tensor:
        """Returns the data as a variant tensor.

        It is kept but if it is made on demand, or draws random numbers: of such a
        dataset each is as if it were new, for one computation alone.
        """
        if self._source is not None:
            rows = sequences.element_rows(list(self._source), self._element_type)
            return sequences.to_variant(sequences.from_rows(rows, self._element_type))
        if self._variant is not None:
            return self._variant
        dataset = self._dataset
        if dataset is None:
            dataset = sequences.from_rows(self._rows, self._element_type)
        variant = sequences.to_variant(dataset)
        if not self.draws_random_numbers():
            self._variant = variant
        return variant

    def release(self) -> None:
        """Says that the client is through: what can be made again need not be kept."""
        if self._source is not None:
            self._made = None

    def draws_random_numbers(self) -> bool:
        """Whether it is a dataset that draws random numbers."""
        return self._dataset is not None and patterns.draws_random_numbers(
            self._dataset
        )

    def is_repeatable(self) -> bool:
        """Whether every pass over the data gives the same."""
        return self._dataset is None or patterns.is_repeatable(self._dataset)

    def known(self, cache: BatchCache) -> ClientData | None:
        """Returns the data with its batches, None if they have to be read first.

        Args:
          cache: Holds what was read of some datasets.
        """
        return self if self._dataset is None else cache.get(self._dataset)

    def read(self, cache: BatchCache, budget: MemoryBudget) -> ClientData:
        """Returns the data with its batches, perhaps those that `cache` holds.

        Args:
          cache: Keeps those of datasets that give the same every time. Others are
            read once: from then on this is a list of what was read.
          budget: For what is read.

        Raises:
          TooManyBytesError: If it takes more; nothing has changed then.
        """
        known = self.known(cache)
        if known is not None:
            return known
        variant = self.variant()
        # Whoever reads it again is to have it as if it were new.
        self._variant = None
        data = read_variant(variant, self._element_type, budget)
        cache.put(self._dataset, data)
        if not self.is_repeatable():
            self._rows, self._dataset = data._rows, None
            return self
        return data

    def __len__(self) -> int:
        return len(self.shapes)

    @functools.cached_property
    def shapes(self) -> list[Any]:
        """The shapes of each batch, one for each component of the dataset."""
        return [tuple(x.shape for x in arrays) for arrays, _ in self._batches()]

    @functools.cached_property
    def num_bytes(self) -> list[int]:
        """The size of each batch, in bytes."""
        return [sum(x.nbytes for x in arrays) for arrays, _ in self._batches()]

    @functools.cached_property
    def run_lengths(self) -> list[int]:
        """For each batch how many of its shapes follow, itself included."""
        lengths = [1] * len(self)
        for number in range(len(self) - 2, -1, -1):
            if self.shapes[number] == self.shapes[number + 1]:
                lengths[number] += lengths[number + 1]
        return lengths

    def copy(self, number: int, component: int, target: np.ndarray) -> None:
        """Copies a component of a batch.

        Args:
          number: Which batch.
          component: Which component.
          target: Where to: an array of its shape and of the component's dtype.
        """
        if self._picked_from is not None:
            whole, numbers = self._picked_from
            whole.copy(numbers[number], component, target)
            return
        arrays, rows = self._batches()[number]
        array = arrays[component]
        if rows is None:
            target[...] = array
        elif isinstance(rows, slice) or array.dtype != target.dtype:
            target[...] = array[rows]
        else:
            # Into the target at once, for which NumPy has to be told what to do with
            # rows that there are not: `BatchesOnDemand` has none.
            array.take(rows, axis=0, out=target, mode="clip")

    def values(self, component: int) -> Iterator[np.ndarray]:
        """Yields a component of each batch.

        Args:
          component: Which component.
        """
        for arrays, rows in self._batches():
            yield arrays[component] if rows is None else arrays[component][rows]

    def picked(self, numbers: Sequence[int]) -> ClientData:
        """Returns some of the batches, which are still those of this one.

        Args:
          numbers: Which ones, in their order.
        """
        data = ClientData([], self._element_type)
        data._picked_from = self, numbers
        data.shapes = [self.shapes[number] for number in numbers]
        data.num_bytes = [self.num_bytes[number] for number in numbers]
        return data

    def _batches(self) -> list[_Batch]:
        if self._made is None:
            order = sequences.component_order(self._element_type)
            if self._source is not None:
                self._made = self._make(self._source, order)
            else:
                self._made = [
                    ([as_array(row[k]) for k in order], None) for row in self._rows
                ]
        return self._made

    def _make(self, source: BatchesOnDemand, order: Sequence[int]) -> list[_Batch]:
        made: list[_Batch] = []
        of_one = self.shapes[0] if self.shapes else ()
        last, arrays, fit = None, [], True
        for examples, rows in source.unread():
            if examples is not last:
                leaves = sequences.example_leaves(examples, self._element_type)
                # To take rows of others, NumPy would copy all of them each time.
                arrays = [np.ascontiguousarray(as_array(leaves[k])) for k in order]
                last = examples
                # All batches were announced with the same shapes except their sizes.
                fit &= all(
                    x.shape[1:] == y[1:] for x, y in zip(arrays, of_one, strict=True)
                )
            made.append((arrays, rows))
        sizes = [_count(rows) for _, rows in made]
        if not fit or sizes != list(source.sizes):
            shapes = [
                tuple((size, *array.shape[1:]) for array in arrays)
                for size, (arrays, _) in zip(sizes, made, strict=True)
            ]
            raise ValueError(
                f"Batches were announced with the shapes {self.shapes}, and made with "
                f"{shapes}. Let BatchesOnDemand.make return batches of its sizes."
            )
        return made


def _count(rows: Rows | None) -> int:
    assert rows is not None
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def as_array(value: np.ndarray | tf.Tensor) -> np.ndarray:
    """Returns an array, which shares the memory of a tensor."""
    if isinstance(value, np.ndarray):
        return value
    if value.dtype == tf.string and not value.shape.rank:
        # It is `bytes`, which NumPy would make an array of another dtype of.
        return np.array(value.numpy(), object)
    return np.asarray(value)


def as_tensor(value: tf.Tensor | np.ndarray | ClientData) -> tf.Tensor:
    """Returns a value as computations take it: a sequence as a variant tensor."""
    if isinstance(value, ClientData):
        return value.variant()
    return tensors.from_array(value) if isinstance(value, np.ndarray) else value


def read_variant(
    variant: tf.Tensor, element_type: compat.Type, budget: MemoryBudget
) -> ClientData:
    """Reads the dataset that a variant tensor holds.

    Args:
      variant: The dataset.
      element_type: The type of its elements.
      budget: For what is read.

    Returns:
      What was read.

    Raises:
      TooManyBytesError: If it takes more.
    """

    def batches() -> Iterator[list[np.ndarray]]:
        for element in sequences.read(variant, element_type):
            arrays = list(map(as_array, element))
            budget.take(sum(array.nbytes for array in arrays))
            yield arrays

    # In RAM, where batches of several clients are put together.
    with tf.device("/CPU:0"):
        return ClientData.of_arrays(batches(), element_type)


def read_all(
    datasets: Sequence[Any],
    element_type: compat.Type,
    cache: BatchCache,
    budget: MemoryBudget,
    in_order: Callable[[Callable[[int], ClientData], int], Iterator[ClientData]],
) -> list[ClientData]:
    """Returns the data of some clients with its batches.

    Args:
      datasets: Their data, or the variant tensors of their datasets.
      element_type: The type of a batch.
      cache: See `ClientData.read`.
      budget: For what is read.
      in_order: Yields a function's results for numbers, as `Placement.in_order`.

    Raises:
      TooManyBytesError: If it takes more.
    """

    def read(dataset: Any) -> ClientData:
        if isinstance(dataset, ClientData):
            return dataset.read(cache, budget)
        return read_variant(dataset, element_type, budget)

    known = [
        dataset.known(cache) if isinstance(dataset, ClientData) else None
        for dataset in datasets
    ]
    # Handing them to threads takes longer than returning those that are there.
    unknown = [each for each, own in zip(datasets, known, strict=True) if own is None]
    were_read = in_order(lambda number: read(unknown[number]), len(unknown))
    return [next(were_read) if own is None else own for own in known]
