"""Clients and their examples."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tff_drift import checks
from tff_drift.simulation.data.batching import split
from tff_drift.simulation.data.client_weights import WeightedTransform
from tff_drift.simulation.data.example_store import ExampleStore
from tff_drift.simulation.data.examples import (
    Examples,
    Transform,
    checked_ids,
)
from tff_drift.simulation.data.examples_digest import examples_digests
from tff_drift.simulation.data.model_fit import ValueCheck, check_fit

_Clients = TypeVar("_Clients", bound="ClientExamples")


class ClientExamples:
    """Clients and their examples, which a store reads and keeps.

    Attributes:
      client_ids: The ids of all clients, in the order given.
    """

    def __init__(self, client_ids: Iterable[str], store: ExampleStore) -> None:
        """Initializes the clients.

        Args:
          client_ids: The ids of the clients, distinct strings.
          store: Their examples.

        Raises:
          TypeError: If `client_ids` are not strings.
          ValueError: If `client_ids` is empty or holds an id twice.
        """
        self._set_clients(client_ids)
        self._store = store
        self._check: ValueCheck | None = None

    def _set_clients(self, client_ids: Iterable[str]) -> None:
        self.client_ids = checked_ids(client_ids)
        self._known = frozenset(self.client_ids)

    def subset(self: _Clients, client_ids: Sequence[str]) -> _Clients:
        """Returns the datasets of some of the clients, with the same cache.

        Args:
          client_ids: The ids of the clients to keep, in the order wanted.

        Returns:
          Client datasets like these, of the clients in `client_ids`.

        Raises:
          TypeError: If `client_ids` are not strings.
          ValueError: If `client_ids` is empty or holds an unknown id or an id
            twice.
        """
        other = copy.copy(self)
        other._set_clients(client_ids)
        for client_id in other.client_ids:
            self._check_known(client_id)
        return other

    @property
    def max_examples(self) -> int | None:
        """The number of examples kept of each client, or `None` for all."""
        return self._store.max_examples

    @property
    def transform(self) -> Transform | None:
        """The function from loaded examples to a model's, see `__init__`."""
        transform = self._store.transform
        if isinstance(transform, WeightedTransform):
            return transform.transform
        return transform

    @property
    def cache_bytes(self) -> int:
        """The RAM that cached examples may hold, in bytes."""
        return self._store.cache_bytes

    @property
    def cached_bytes(self) -> int:
        """The RAM that cached examples hold now, in bytes."""
        return self._store.used_bytes

    @property
    def element_spec(self) -> Any:
        """The `tf.TensorSpec` structure of a batch; its first dimension is `None`.

        Reads the first client if none has been read yet.
        """
        return self._store.spec(self.client_ids[0])

    def __len__(self) -> int:
        """Returns the number of clients."""
        return len(self.client_ids)

    def fitting(self: _Clients, name: str, wanted: Any) -> _Clients:
        """Returns the same clients, of whose values none is changed by a cast.

        Structure, shapes and kinds are compared at once, and the first client's values;
        those of the others when their batches are first made.

        Args:
          name: The argument that they are, for messages.
          wanted: What a model takes: the `tf.TensorSpec`s or the TFF type of a batch.

        Returns:
          The clients, which raise a `ValueError` that names client and example where a
          value would be another one in the model's dtype.

        Raises:
          TypeError: If the examples have another structure, shape or kind.
          ValueError: If a value of the first client would be changed.
        """
        check = check_fit(name, self.element_spec, wanted)
        other = copy.copy(self)
        other._check = check
        other._check_values(self.client_ids[0])
        return other

    def digest(self) -> dict[str, Any]:
        """Returns a fingerprint of these clients and their examples.

        Reads all examples that are in RAM, else those of sixteen of the clients; a
        source that was hashed when it was opened counts as a whole.

        Returns:
          The number of clients, and hashes of their ids and of those examples, by name.
        """
        ids = hashlib.sha256("\n".join(self.client_ids).encode()).hexdigest()
        return {
            "clients": len(self.client_ids),
            "client_ids_sha256": ids,
            **examples_digests(self.client_ids, self._store),
        }

    def _check_values(self, client_id: str) -> None:
        if self._check is not None:
            self._check(client_id, lambda: self.examples(client_id))

    def _check_known(self, client_id: str) -> None:
        checks.check_instance("client_id", client_id, str, "a string")
        if client_id not in self._known:
            first, last = map(checks.shown, (self.client_ids[0], self.client_ids[-1]))
            raise ValueError(
                f"Unknown client_id {checks.shown(client_id)}. There are {len(self)} "
                f"clients, {first} to {last}: see client_ids."
            )

    def examples(self, client_id: str) -> Examples:
        """Returns a client's examples, in the order in which they were loaded.

        Args:
          client_id: The id of the client.

        Returns:
          The structure of arrays, as models take them. It may be cached: do not
          write to it.

        Raises:
          ValueError: If `client_id` is unknown, or the client has no examples,
            arrays of different lengths, or examples of another type than the
            other clients'.
        """
        self._check_known(client_id)
        return self._store.transformed(client_id, self._store.examples(client_id), None)

    def num_examples(self, client_id: str) -> int:
        """Returns a client's number of examples, after `max_examples`.

        Args:
          client_id: The id of the client. It is read if it has never been.

        Returns:
          The number of examples of one epoch.

        Raises:
          ValueError: If `client_id` is unknown, or the client's examples are not
            as `examples` wants them.
        """
        self._check_known(client_id)
        return self._store.num_examples(client_id)

    def evaluation_batches(
        self, client_id: str, batch_size: int = 256
    ) -> list[Examples]:
        """Returns a client's examples once, unshuffled, in batches.

        Args:
          client_id: The id of the client.
          batch_size: The number of examples in a batch; the last may be short.

        Returns:
          The batches, each a structure of arrays like `examples`. They may be
          views of cached arrays: do not write to them.

        Raises:
          TypeError: If `batch_size` is not an integer.
          ValueError: If `client_id` is unknown, `batch_size` is below 1, or the
            client's examples are not as `examples` wants them.
        """
        checks.check_integer("batch_size", batch_size)
        self._check_values(client_id)
        return split(self.examples(client_id), batch_size)
