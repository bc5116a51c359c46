"""Batches of a client that are made when they are needed, and not kept."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Union

import numpy as np
import tensorflow as tf

Rows = Union[np.ndarray, slice]


@dataclasses.dataclass(frozen=True)
class ChosenRows:
    """Examples that make batches, not copied yet.

    Who puts the batches of clients together copies each example once so, from the
    arrays in which it is kept to where it is trained on.

    Attributes:
      examples: The examples, a structure of arrays of equal first dimension.
      rows: The numbers of those that make the batches, in their order; None for all of
        them as they are.

    Raises:
      IndexError: If there is no example of one of these numbers.
    """

    examples: Any
    rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.rows is None or not len(self.rows):
            return
        count = len(tf.nest.flatten(self.examples)[0])
        if self.rows.min() < 0 or self.rows.max() >= count:
            raise IndexError(
                f"rows must be from 0 to {count - 1}, the numbers of the examples, "
                f"found {self.rows.min()} to {self.rows.max()}."
            )

    def __len__(self) -> int:
        first = tf.nest.flatten(self.examples)[0] if self.rows is None else self.rows
        return len(first)

    def part(self, start: int, stop: int) -> Rows:
        """Returns the rows of the examples from one number to another."""
        return slice(start, stop) if self.rows is None else self.rows[start:stop]


@dataclasses.dataclass(frozen=True)
class BatchesOnDemand(Sequence[Any]):
    """What the local context takes for a sequence in the place of a list of batches.

    Lists have to be there before a round begins: the batches of the whole cohort.
    These are made on the threads that train, and freed when their client is through,
    so that a cohort takes the RAM of the clients that are trained at a time. To whom
    reads them otherwise they are a sequence of batches.

    Attributes:
      sizes: The number of examples in each batch, which is what is known of them
        before.
      element_spec: The `tf.TensorSpec`s of a batch, its first dimension left open.
      make: Returns the examples of the batches, in their order, those of one or of
        several batches at a time: as structures of arrays like `element_spec`, or as
        `ChosenRows`, which are copied only once. The same at every call, on any thread.
    """

    sizes: Sequence[int]
    element_spec: Any
    make: Callable[[], list[Any]]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        for examples, rows in self.unread():
            yield tf.nest.map_structure(operator.itemgetter(rows), examples)

    def unread(self) -> Iterator[tuple[Any, Rows]]:
        """Yields of each batch the arrays that hold its examples, and its rows."""
        sizes = iter(self.sizes)
        for made in self.make():
            chosen = made if isinstance(made, ChosenRows) else ChosenRows(made)
            start, end = 0, len(chosen)
            while True:
                stop = min(start + next(sizes, end), end)
                yield chosen.examples, chosen.part(start, stop)
                if stop == end:
                    break
                start = stop


class ClientSource(Protocol):
    """Where the batches of clients come from: it can be pickled.

    Attributes:
      client_ids: The clients that it has.
    """

    @property
    def client_ids(self) -> Sequence[str]:
        """The clients that it has."""

    def in_parts(self, parts: Sequence[Sequence[str]]) -> Sequence[ClientSource]:
        """Returns a source for each part of the clients, or one for all of them."""

    def num_examples_per_round(self, client_id: str) -> int:
        """Returns how many examples a client trains on in a round."""

    def batches_on_demand(self, client_id: str, round_number: int) -> BatchesOnDemand:
        """Returns a client's batches of a round, the same in every process."""


@dataclasses.dataclass(frozen=True)
class RoundOfClient:
    """A client's batches of a round, by name alone.

    What the context on Ray takes for a sequence: the batches are made where the client
    is trained, and nothing of it is read before.

    Attributes:
      source: Where the batches come from.
      client_id: The client.
      round_number: The round, from 0.
    """

    source: ClientSource
    client_id: str
    round_number: int


class RoundOfStates(Protocol):
    """The states of a round's clients, where the clients are trained."""

    def state_of(self, client_id: str) -> StateOfClient:
        """Returns what stands for a client's state in the argument of a round."""

    def keep(self) -> None:
        """Puts the new states in the place of the old ones, all or none."""


@dataclasses.dataclass(frozen=True, eq=False)
class StateOfClient:
    """A client's state, by name alone.

    What the context on Ray takes for it: the state is read, and its successor is kept,
    where the client is trained.

    Attributes:
      round_of_states: The states that it is one of.
      client_id: The client.
    """

    round_of_states: RoundOfStates
    client_id: str
