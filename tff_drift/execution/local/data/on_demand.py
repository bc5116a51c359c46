"""Sequences whose batches are made when a client trains, and freed when it has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.batches_on_demand import BatchesOnDemand, Rows
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.batches import Batches, as_array
from tff_drift.execution.local.data.client_data import BatchCache, ClientSequence
from tff_drift.execution.local.data.variants import to_variant


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
            dtype = spec.dtype.as_numpy_dtype
            return np.broadcast_to(np.zeros((), dtype), (size, *spec.shape[1:]))

        batch = tf.nest.map_structure(without_memory, self.element_spec)
        (row,) = sequences.element_rows([batch], self.element_type)
        leaves = [row[k] for k in sequences.component_order(self.element_type)]
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        of_items = [tf.as_dtype(leaf.dtype).size for leaf in leaves]
        self[size] = found = (
            shapes,
            sum(math.prod(shape) * of_item for shape, of_item in zip(shapes, of_items)),
        )
        return found


class OnDemandSequence(ClientSequence, Batches):
    """A sequence given as `BatchesOnDemand`, which is its own batches.

    They are made at their first use after each `release`.

    Args:
      value: What makes them.
      known: The shapes of its batches.
    """

    def __init__(self, value: BatchesOnDemand, known: BatchShapes) -> None:
        ClientSequence.__init__(self, [], known.element_type)
        of_sizes = [known[size] for size in value.sizes]
        Batches.__init__(
            self,
            [shapes for shapes, _ in of_sizes],
            [num_bytes for _, num_bytes in of_sizes],
        )
        self._source = value
        # Of each batch, the arrays that hold its examples, and its rows.
        self._made: list[tuple[list[np.ndarray], Rows]] | None = None

    def copy(self, number: int, component: int, target: np.ndarray) -> None:
        """See `Batches.copy`."""
        if self._made is None:
            self._made = self._make()
        arrays, rows = self._made[number]
        array = arrays[component]
        if isinstance(rows, slice) or array.dtype != target.dtype:
            target[...] = array[rows]
        else:
            # Into the target at once, for which NumPy has to be told what to do with
            # rows that there are not: `ChosenRows` has none.
            array.take(rows, axis=0, out=target, mode="clip")

    def variant(self) -> tf.Tensor:
        """See `ClientSequence.variant`; it is not kept."""
        rows = sequences.element_rows(list(self._source), self._element_type)
        return to_variant(sequences.from_rows(rows, self._element_type))

    def known_batches(self, cache: BatchCache) -> Batches:
        """See `ClientSequence.known_batches`."""
        del cache
        return self

    def release(self) -> None:
        """See `ClientSequence.release`."""
        self._made = None

    def _make(self) -> list[tuple[list[np.ndarray], Rows]]:
        order = sequences.component_order(self._element_type)
        made: list[tuple[list[np.ndarray], Rows]] = []
        of_one = self.shapes[0] if self.shapes else ()
        last, arrays, fit = None, [], True
        for examples, rows in self._source.unread():
            if examples is not last:
                leaves = sequences.example_leaves(examples, self._element_type)
                # To take rows of others, NumPy would copy all of them each time.
                arrays = [np.ascontiguousarray(as_array(leaves[k])) for k in order]
                last = examples
                # All batches were announced with the same shapes but for their sizes.
                fit &= all(x.shape[1:] == y[1:] for x, y in zip(arrays, of_one))
            made.append((arrays, rows))
        if not fit or [_count(rows) for _, rows in made] != list(self._source.sizes):
            shapes = [
                tuple((_count(rows), *array.shape[1:]) for array in arrays)
                for arrays, rows in made
            ]
            raise ValueError(
                f"Batches were announced with the shapes {self.shapes}, and made with "
                f"{shapes}. Let BatchesOnDemand.make return batches of its sizes."
            )
        return made


def _count(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
