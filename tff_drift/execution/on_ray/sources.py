"""Clients' data that stays at the actors: it is sent once, and then named by key.

Where a source's clients are in RAM, each part of them is an object of its own in Ray's
object store, which all processes of a node read in place. Where they are loaded, by a
function or from a file, the function is sent, and an actor loads the clients that it
trains.
"""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tff_drift.execution.on_ray import partition, wire

# Training and test clients, under some options each.
_KEPT_SOURCES = 16


class ClientSource(Protocol):
    """Clients' data that can be sent to actors, such as `ClientDatasets`."""

    @property
    def client_ids(self) -> Sequence[str]:
        """The clients that it has."""

    def in_parts(self, parts: Sequence[Sequence[str]]) -> Sequence[ClientSource]:
        """Returns a source for each part of the clients, or one for all of them."""

    def load_ahead(self, client_ids: Sequence[str]) -> None:
        """Loads clients that train next, as many as there is RAM for."""

    def num_examples_per_round(self, client_id: str) -> int:
        """Returns how many examples a client trains on in a round."""

    def training_batches(self, client_id: str, round_number: int) -> Any:
        """Returns a client's batches of a round, the same in every process."""


class Sources:
    """The sources that an actor knows."""

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        """Makes an actor that knows none.

        Args:
          fetch: Returns the object of a reference.
        """
        self._fetch = fetch
        # Of each source the references to its parts, and the parts used here.
        self._kept = wire.Kept(
            fetch, lambda references: (references, {}), _KEPT_SOURCES
        )
        self._loader = concurrent.futures.ThreadPoolExecutor(1)

    def batches(self, sent: wire.SentRound) -> Any:
        """Returns a client's batches of a round."""
        part = self.part_of(sent.source, sent.client_id)
        return part.training_batches(sent.client_id, sent.round_number)

    def count(self, source: wire.Sent, client_ids: Sequence[str]) -> list[int]:
        """Returns how many examples clients train on in a round."""
        return [
            self.part_of(source, client_id).num_examples_per_round(client_id)
            for client_id in client_ids
        ]

    def load_ahead(self, source: wire.Sent, client_ids: Sequence[str]) -> None:
        """Begins to load clients that train next, and does not wait for it."""
        part = self.part_of(source, client_ids[0])
        # What cannot be loaded raises its error when it is needed.
        self._loader.submit(part.load_ahead, client_ids)

    def part_of(self, source: wire.Sent, client_id: str) -> ClientSource:
        """Returns the part of a source that has a client."""
        references, parts = self._kept.find(source)
        number = partition.home(client_id, len(references))
        if number not in parts:
            parts[number] = self._fetch(references[number])
        return parts[number]

    def forget(self, key: str) -> None:
        """Keeps the source of a key no longer, so that Ray's store may drop it."""
        self._kept.forget(key)


class SentSources:
    """The sources that were sent to actors, and their clients' numbers of examples."""

    def __init__(
        self,
        num_parts: int,
        put: Callable[[Any], Any],
        forget_after: Callable[[Any, str], None],
    ) -> None:
        """Creates an empty one.

        Args:
          num_parts: How many parts to make of a source.
          put: Stores an object and returns a reference.
          forget_after: Has actors forget what they were sent under a key, once an
            object is gone.
        """
        self._num_parts = num_parts
        self._put = put
        self._forget_after = forget_after
        self._sent: weakref.WeakKeyDictionary[Any, SentSource]
        self._sent = weakref.WeakKeyDictionary()

    def find(self, source: ClientSource) -> SentSource:
        """Returns what is known of a source; stores it if it is new.

        Raises:
          TypeError: If it holds what cannot be sent.
        """
        found = self._sent.get(source)
        if found is None:
            found = self._sent[source] = self._store(source)
            self._forget_after(source, found.sent.key)
        return found

    def _store(self, source: ClientSource) -> SentSource:
        ids: list[list[str]] = [[] for _ in range(self._num_parts)]
        for client_id in source.client_ids:
            ids[partition.home(client_id, self._num_parts)].append(client_id)
        parts = source.in_parts(ids)
        # Copies: what is kept of a source must not keep it.
        try:
            references = [self._put(copy.copy(part)) for part in parts]
        except wire.UNSENDABLE as error:
            raise TypeError(
                "The clients' data cannot be sent to the actors on Ray: "
                f"{wire.why_unsendable(error)}. Open files, sessions and datasets, and "
                "make locks, inside the function that loads clients (or transforms "
                "their examples), so that the function holds none."
            ) from (error.__cause__ or error)
        sent = wire.Sent(uuid.uuid4().hex, [self._put(references)])
        return SentSource(sent, is_loaded=parts[0] is source)


@dataclasses.dataclass(frozen=True)
class SentSource:
    """A source that was sent to the actors.

    Attributes:
      sent: The message to actors: it refers to the list of references to its parts.
      is_loaded: Whether actors load clients, which are in RAM otherwise.
      examples: Of clients that have been trained, the examples of a round.
    """

    sent: wire.Sent
    is_loaded: bool
    examples: dict[str, int] = dataclasses.field(default_factory=dict)
