"""Examples of many clients, read on demand and turned into a round's datasets.

A simulation asks for a cohort's training data in every round. `ClientDatasets`
answers from NumPy arrays kept in memory within a limit, and shuffles them as a
pure function of the seed, the round and the client, so that a run that is
resumed sees exactly the batches that an uninterrupted run sees.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.simulation.client_data_reader import client_data_reader
from tff_drift.simulation.example_store import (
    Examples,
    ExampleStore,
    batch_spec,
    checked,
    num_rows,
    take,
)

_DEFAULT_CACHE_BYTES = 2**30

# `examples, generator -> examples`: see `ClientDatasets.transform`.
Transform = Callable[[Examples, "np.random.Generator | None"], Examples]


def _shuffling_generator(
    seed: int, round_number: int, client_id: str
) -> np.random.Generator:
    # Python's `hash` of a string changes from one process to the next.
    digest = hashlib.sha256(client_id.encode()).digest()[:16]
    words = np.frombuffer(digest, dtype="<u4").tolist()
    sequence = np.random.SeedSequence((int(seed), int(round_number), *words))
    return np.random.Generator(np.random.PCG64(sequence))


class ClientDatasets:
    """Examples of many clients, read on demand and cached within a memory limit.

    One client's examples are a structure of NumPy arrays with equal first
    dimension, such as `(x, y)`; all clients share one structure, dtypes and
    shapes. A client's training data in one round is a `tf.data.Dataset` of
    batches that goes into any TFF computation of type
    `{<x=float32[?,...],y=...>*}@CLIENTS`.

    Every shuffle is a pure function of (`seed`, `round_number`, `client_id`):
    neither the order of the calls nor a restart of the program changes it.

    Instances are immutable from outside and may be used from several threads.

    Attributes:
      client_ids: The ids of all clients, in the order given.
      batch_size: The number of examples in a training batch (the papers' B).
      epochs: The passes over a client's examples per round (the papers' E).
      max_examples: A client's examples beyond this number are left out; `None`
        keeps all of them.
      shuffle: Whether training data is shuffled.
      seed: The seed of the shuffles.
      cache_bytes: The memory that cached examples may hold, in bytes.
      transform: Turns loaded examples into those that models take; `None` if they
        take them as they are. See `__init__`.
    """

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
          cache_bytes: The memory that cached examples may hold, in bytes. The
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
        if not callable(load_client):
            raise TypeError(
                f"load_client must be a function of a client id, found {load_client!r}."
            )
        if max_examples is not None:
            checks.check_integer("max_examples", max_examples)
        checks.check_integer("cache_bytes", cache_bytes, at_least=0)
        if transform is not None and not callable(transform):
            raise TypeError(
                "transform must be a function of examples and a generator, found "
                f"{transform!r}."
            )
        self.transform = transform
        self._store = ExampleStore(load_client, max_examples, cache_bytes)
        self._set_batching(batch_size, epochs, shuffle, seed)

    def _set_clients(self, client_ids: Sequence[str]) -> None:
        if isinstance(client_ids, str):
            raise TypeError(
                f"client_ids must be a sequence of strings, found {client_ids!r}."
            )
        self.client_ids = tuple(client_ids)
        if not self.client_ids:
            raise ValueError("client_ids is empty. Give at least one client id.")
        for client_id in self.client_ids:
            if not isinstance(client_id, str):
                raise TypeError(f"client_ids must be strings, found {client_id!r}.")
        self._known = frozenset(self.client_ids)
        if len(self._known) < len(self.client_ids):
            twice = collections.Counter(self.client_ids).most_common(1)[0][0]
            raise ValueError(
                f"client_ids holds {twice!r} more than once. Give each id once."
            )

    def _set_batching(
        self, batch_size: int, epochs: int, shuffle: bool, seed: int
    ) -> None:
        checks.check_integer("batch_size", batch_size)
        checks.check_integer("epochs", epochs)
        checks.check_integer("seed", seed, at_least=0)
        self.batch_size = int(batch_size)
        self.epochs = int(epochs)
        self.shuffle = bool(shuffle)
        self.seed = int(seed)

    @classmethod
    def from_arrays(
        cls, clients: Mapping[str, Examples], **options: Any
    ) -> ClientDatasets:
        """Makes client datasets of arrays that are in memory already.

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
        arrays = {
            client_id: checked(client_id, examples)
            for client_id, examples in clients.items()
        }
        # The arrays are held by `clients` anyway: a cache would count them twice.
        options.setdefault("cache_bytes", 0)
        return cls(tuple(arrays), arrays.__getitem__, **options)

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
        if not isinstance(client_data, tff.simulation.datasets.ClientData):
            raise TypeError(
                "client_data must be a tff.simulation.datasets.ClientData, found "
                f"{client_data!r}. Use ClientDatasets.from_arrays for arrays."
            )
        read = client_data_reader(client_data)

        def load_client(client_id: str) -> Examples:
            examples = read(client_id)
            return examples if preprocess is None else preprocess(examples)

        return cls(client_data.client_ids, load_client, **options)

    def subset(self, client_ids: Sequence[str]) -> ClientDatasets:
        """Returns the datasets of some of the clients, with the same cache.

        Args:
          client_ids: The ids of the clients to keep, in the order wanted.

        Returns:
          Client datasets like these, of the clients in `client_ids`.

        Raises:
          TypeError: If an id is not a string.
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
            `cache_bytes` or `transform`, as for `ClientDatasets`.

        Returns:
          Client datasets with these options changed.

        Raises:
          TypeError: If an option is unknown or has the wrong type.
          ValueError: If an option is out of its range.
        """
        batching = {
            name: options.pop(name, getattr(self, name))
            for name in ("batch_size", "epochs", "shuffle", "seed")
        }
        if options:
            options.setdefault("max_examples", self.max_examples)
            options.setdefault("cache_bytes", self.cache_bytes)
            options.setdefault("transform", self.transform)
            return ClientDatasets(
                self.client_ids, self._store.load_client, **options, **batching
            )
        other = self._copy()
        other._set_batching(**batching)
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
    def cache_bytes(self) -> int:
        """The memory that cached examples may hold, in bytes."""
        return self._store.cache_bytes

    @property
    def cached_bytes(self) -> int:
        """The memory that cached examples hold now, in bytes."""
        return self._store.used_bytes

    @property
    def element_spec(self) -> Any:
        """The `tf.TensorSpec` structure of a batch; its first dimension is `None`.

        Reads the first client if none has been read yet.
        """
        if self.transform is None:
            return self._store.spec(self.client_ids[0])
        first = take(self._store.examples(self.client_ids[0]), slice(0, 1))
        return batch_spec(self._transformed(self.client_ids[0], first, None))

    def _transformed(
        self,
        client_id: str,
        examples: Examples,
        generator: np.random.Generator | None,
    ) -> Examples:
        if self.transform is None:
            return examples
        result = checked(client_id, self.transform(examples, generator))
        if num_rows(result) != num_rows(examples):
            raise ValueError(
                f"transform made {num_rows(result)} examples of the "
                f"{num_rows(examples)} of client {client_id!r}. Let it keep their "
                "number."
            )
        return result

    def __len__(self) -> int:
        """Returns the number of clients."""
        return len(self.client_ids)

    def _check_known(self, client_id: str) -> None:
        if client_id not in self._known:
            raise ValueError(
                f"Unknown client_id {client_id!r}. There are {len(self)} clients, "
                f"{self.client_ids[0]!r} to {self.client_ids[-1]!r}: see client_ids."
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
        return self._transformed(client_id, self._store.examples(client_id), None)

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

    def training_data(self, client_id: str, round_number: int) -> tf.data.Dataset:
        """Returns the batches that a client trains on in one round.

        Each epoch holds every example once, in an order of its own, in batches
        of `batch_size` of which the last may be short. No batch crosses the
        border of two epochs.

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
            tf.data.Dataset.from_tensor_slices(epoch).batch(self.batch_size)
            for epoch in self._training_epochs(client_id, round_number)
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
          The batches, each a structure of arrays. They may be views of cached
          arrays: do not write to them.

        Raises:
          TypeError: As in `training_data`.
          ValueError: As in `training_data`.
        """
        return [
            batch
            for epoch in self._training_epochs(client_id, round_number)
            for batch in _split(epoch, self.batch_size)
        ]

    def _training_epochs(self, client_id: str, round_number: int) -> Iterator[Examples]:
        """Yields the examples of each epoch of a round, in its order."""
        checks.check_integer("round_number", round_number, at_least=0)
        self._check_known(client_id)
        examples = self._store.examples(client_id)
        generator = _shuffling_generator(self.seed, round_number, client_id)
        for _ in range(self.epochs):
            epoch = examples
            if self.shuffle:
                epoch = take(examples, generator.permutation(num_rows(examples)))
            yield self._transformed(client_id, epoch, generator)

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
        return _split(self.examples(client_id), batch_size)


def _split(examples: Examples, batch_size: int) -> list[Examples]:
    return [
        take(examples, slice(start, start + batch_size))
        for start in range(0, num_rows(examples), batch_size)
    ]
