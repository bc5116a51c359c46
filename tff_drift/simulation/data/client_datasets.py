"""Examples of many clients, read on demand and turned into a round's datasets.

A simulation asks for a cohort's training data in every round. `ClientDatasets` answers
from NumPy arrays kept in RAM within a limit, and shuffles them as a pure function of
the seed, the round and the client, so that a run that is resumed sees exactly the
batches that an uninterrupted run sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.simulation.data import batching
from tff_drift.simulation.data.client_data_reader import client_data_reader
from tff_drift.simulation.data.example_store import (
    Examples,
    ExampleStore,
    InRam,
    Transform,
    check_known,
    checked_clients,
    checked_ids,
    num_rows,
    take,
)

_DEFAULT_CACHE_BYTES = 2**30


class ClientDatasets:
    """Examples of many clients, read on demand and cached within a limit of RAM.

    One client's examples are a structure of NumPy arrays with equal first
    dimension, such as `(x, y)`; all clients share one structure, dtypes and
    shapes. A client's training data in one round is a `tf.data.Dataset` of batches
    that goes into any TFF computation of type `{<x=float32[?,...],y=...>*}@CLIENTS`.

    Every draw is a pure function of (`seed`, `round_number`, `client_id`): neither
    the order of the calls nor a restart of the program changes it.

    Instances are immutable from outside and may be used from several threads.

    Attributes:
      client_ids: The ids of all clients, in the order given.
      batch_size: And so on: the arguments of `__init__` but `load_client`.
    """

    batch_size: int
    epochs: int
    shuffle: bool
    seed: int
    last_batch: str
    local_steps: int | None

    def __init__(
        self,
        client_ids: Sequence[str],
        load_client: Callable[[str], Examples],
        *,
        batch_size: int,
        epochs: int = 1,
        max_examples: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        last_batch: str = "short",
        local_steps: int | None = None,
        cache_bytes: int = _DEFAULT_CACHE_BYTES,
        transform: Transform | None = None,
    ) -> None:
        """Initializes the datasets; no client is read yet.

        Args:
          client_ids: The ids of the clients, distinct strings.
          load_client: Returns a client's examples, given its id.
          batch_size: The number of examples in a training batch.
          epochs: The passes over a client's examples per round.
          max_examples: Keep the first `max_examples` of each client; `None`
            keeps all.
          shuffle: Whether to shuffle training data, in each epoch anew.
          seed: The seed of the shuffles, at least 0.
          last_batch: What becomes of the last batch of each epoch if it is short of
            `batch_size`: "short" leaves it so. "drop" leaves it out, unless it is
            the client's only one. "bootstrap" fills it up with examples of the
            client, drawn with replacement, as Varno et al., AdaBest (2022,
            https://arxiv.org/abs/2204.13170), appendix D.1, do; what is drawn
            counts in the client's weight, but not in `num_examples`.
          local_steps: Train every client on so many batches (the papers' K), of as
            many epochs as it takes, the last cut off; `None` leaves it to `epochs`.
          cache_bytes: The RAM that cached examples may hold, in bytes. The
            clients used last stay; 0 reads a client anew at every use.
          transform: A function of examples and a random generator that returns
            as many examples, at each use, so that what is cached can be small
            (bytes instead of floats) and training examples can be distorted
            anew in every epoch. The generator is that of the client's round, so
            the result stays a pure function of seed, round and client; it is
            `None` outside training, where nothing random may happen.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If `client_ids` is empty or holds an id twice, or a number
            is out of its range.
        """
        self._set_clients(client_ids)
        checks.check_callable("load_client", load_client, "a function of a client id")
        if max_examples is not None:
            checks.check_integer("max_examples", max_examples)
        checks.check_integer("cache_bytes", cache_bytes, at_least=0)
        if transform is not None:
            checks.check_callable(
                "transform", transform, "a function of examples and a generator"
            )
        self._store = ExampleStore(load_client, max_examples, cache_bytes, transform)
        settings = (batch_size, epochs, shuffle, seed, last_batch, local_steps)
        self._set_batching(batching.Batching(*settings))

    def _set_clients(self, client_ids: Iterable[str]) -> None:
        self.client_ids = checked_ids(client_ids)
        self._known = frozenset(self.client_ids)

    def _set_batching(self, options: batching.Batching) -> None:
        self._batching = options
        for name, value in dataclasses.asdict(options).items():
            setattr(self, name, value)

    @classmethod
    def from_arrays(
        cls, clients: Mapping[str, Examples], **options: Any
    ) -> ClientDatasets:
        """Makes client datasets of arrays that are in RAM already.

        Args:
          clients: Each client's examples by client id, for instance
            `{"ann": (x, y)}`.
          **options: `batch_size` and the other arguments of `ClientDatasets`.

        Returns:
          The client datasets, in the order of `clients`.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If an argument is out of its range, or a client has no
            examples or arrays of different lengths.
        """
        arrays = checked_clients(clients)
        options.setdefault("cache_bytes", 0)
        return cls(tuple(arrays), InRam(arrays), **options)

    @classmethod
    def from_client_data(
        cls,
        client_data: tff.simulation.datasets.ClientData,
        preprocess: Callable[[Examples], Examples] | None = None,
        **options: Any,
    ) -> ClientDatasets:
        """Reads clients from a `tff.simulation.datasets.ClientData`.

        Args:
          client_data: The clients and their datasets of single examples.
          preprocess: Turns the arrays of one client (the elements of its
            dataset, stacked) into its examples. It may change the number of
            examples. Default: the arrays as they are.
          **options: `batch_size` and the other arguments of `ClientDatasets`.

        Returns:
          The client datasets, in the order of `client_data.client_ids`.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If an argument is out of its range.
        """
        load_client = client_data_reader(client_data, preprocess)
        return cls(tuple(client_data.client_ids), load_client, **options)

    def subset(self, client_ids: Sequence[str]) -> ClientDatasets:
        """Returns the datasets of some of the clients, with the same cache.

        Args:
          client_ids: The ids of the clients to keep, in the order wanted.

        Returns:
          Client datasets like these, of the clients in `client_ids`.

        Raises:
          TypeError: If `client_ids` are no strings.
          ValueError: If `client_ids` is empty or holds an unknown id or an id
            twice.
        """
        other = self._copy()
        other._set_clients(client_ids)
        for client_id in other.client_ids:
            self._check_known(client_id)
        return other

    def replace(self, **options: Any) -> ClientDatasets:
        """Returns the same clients under other options.

        The cache is shared with the result unless `max_examples`, `cache_bytes`
        or `transform` change.

        Args:
          **options: `batch_size`, `epochs`, `max_examples`, `shuffle`, `seed`,
            `last_batch`, `local_steps`, `cache_bytes` or `transform`, as for
            `ClientDatasets`.

        Returns:
          Client datasets with these options changed.

        Raises:
          TypeError: If an option is unknown or has the wrong type.
          ValueError: If an option is out of its range.
        """
        own = {
            name: options.pop(name, value)
            for name, value in dataclasses.asdict(self._batching).items()
        }
        if options:
            options.setdefault("max_examples", self.max_examples)
            options.setdefault("cache_bytes", self.cache_bytes)
            options.setdefault("transform", self.transform)
            return ClientDatasets(
                self.client_ids, self._store.load_client, **options, **own
            )
        other = self._copy()
        other._set_batching(batching.Batching(**own))
        return other

    def _copy(self) -> ClientDatasets:
        other = ClientDatasets.__new__(ClientDatasets)
        other.__dict__.update(self.__dict__)
        return other

    @property
    def max_examples(self) -> int | None:
        """The number of examples kept of each client, or `None` for all."""
        return self._store.max_examples

    @property
    def transform(self) -> Transform | None:
        """What turns loaded examples into those that models take; see `__init__`."""
        return self._store.transform

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

    def _check_known(self, client_id: str) -> None:
        check_known(client_id, self._known, self.client_ids)

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

    def num_examples_per_round(self, client_id: str) -> int:
        """Returns the examples of a client's batches in a round; see `num_examples`."""
        return self._batching.num_examples(self.num_examples(client_id))

    def batch_sizes(self, client_id: str) -> list[int]:
        """Returns the sizes of a client's batches in a round; see `num_examples`."""
        return self._batching.batch_sizes(self.num_examples(client_id))

    def training_data(self, client_id: str, round_number: int) -> tf.data.Dataset:
        """Returns the batches that a client trains on in one round.

        Each epoch holds every example once, in an order of its own, in batches
        of `batch_size` of which the last may be short, or is filled up or left out
        as `last_batch` says. No batch crosses the border of two epochs.
        `local_steps` cuts the last epoch off.

        Args:
          client_id: The id of the client.
          round_number: The round, from 0. It changes the order, and what a
            transform draws.

        Returns:
          A dataset of batches with the structure of `element_spec`.

        Raises:
          TypeError: If `round_number` is not an integer.
          ValueError: If `client_id` is unknown, `round_number` is negative, or the
            client's examples are not as `examples` wants them.
        """
        # Slices of arrays shuffled here, not `Dataset.shuffle` and `map`: these
        # would trace functions at every call and leave them behind.
        first, *others = (
            # A batch larger than all examples may be too large for TensorFlow.
            tf.data.Dataset.from_tensor_slices(epoch).batch(
                min(self.batch_size, num_rows(epoch))
            )
            for epoch in starmap(take, self.training_rows(client_id, round_number))
        )
        for other in others:
            first = first.concatenate(other)
        return first

    def training_batches(self, client_id: str, round_number: int) -> list[Examples]:
        """Returns what `training_data` returns, as a list of the batches.

        TFF takes lists for sequences as well; the local execution context takes them
        quicker than datasets.

        Args:
          client_id: The id of the client.
          round_number: The round, see `training_data`.

        Returns:
          The batches, structures of arrays that may be cached: do not write to them.

        Raises:
          TypeError: As in `training_data`, like ValueError.
        """
        return [
            batch
            for rows in self.training_rows(client_id, round_number)
            for batch in batching.split(take(*rows), self.batch_size)
        ]

    def training_rows(
        self, client_id: str, round_number: int
    ) -> Iterator[tuple[Examples, np.ndarray | None]]:
        """Returns what `training_batches` are cut from; see `batching.of_round`."""
        checks.check_integer("round_number", round_number, at_least=0)
        self._check_known(client_id)
        return self._batching.of_round(self._store, client_id, int(round_number))

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
        return batching.split(self.examples(client_id), batch_size)
