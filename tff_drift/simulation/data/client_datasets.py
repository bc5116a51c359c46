"""Examples of many clients, read on demand and turned into a round's datasets.

A simulation asks for a cohort's training data in every round. `ClientDatasets` answers
from NumPy arrays kept in RAM within a limit, and shuffles them as a pure function of
the seed, the round and the client, so that a run that is resumed sees exactly the
batches that an uninterrupted run sees.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, signatures, summaries
from tff_drift.execution.batches_on_demand import BatchesOnDemand
from tff_drift.simulation.data import named_examples
from tff_drift.simulation.data.arguments import (
    CachedDatasetOptions,
    DatasetOptions,
    suggest_names,
)
from tff_drift.simulation.data.batching import Batching, to_dataset
from tff_drift.simulation.data.client_data_reader import ClientDataReader
from tff_drift.simulation.data.client_examples import ClientExamples
from tff_drift.simulation.data.client_weights import (
    WeightedClients,
    WeightedTransform,
    checked_weights,
)
from tff_drift.simulation.data.data_summary import summary
from tff_drift.simulation.data.example_store import STORE_OPTIONS, ExampleStore, InRam
from tff_drift.simulation.data.examples import (
    Examples,
    Transform,
    checked_clients,
    take,
)
from tff_drift.simulation.data.named_examples import Names

_DEFAULT_CACHE_BYTES = 2**30


class ClientDatasets(ClientExamples):
    """Examples of many clients, read on demand and cached within a limit of RAM.

    One client's examples are a structure of NumPy arrays with equal first
    dimension, such as `(x, y)`; all clients share one structure, dtypes and shapes.
    Lists of numbers or of strings, nested or not, are arrays; so is a list of arrays
    that has one for each example. Other lists are tuples, such as `[x, y]`.
    A client's training data in one round is a `tf.data.Dataset` of batches that goes
    into any TFF computation of type `{<x=float32[?,...],y=...>*}@CLIENTS`.

    Every draw is a pure function of (`seed`, `round_number`, `client_id`): neither
    the order of the calls nor a restart of the program changes it.

    Instances are immutable from outside and may be used from several threads.

    Attributes:
      client_ids: The ids of all clients, in the order given.
      batching: How a client's examples become the batches of a round.
    """

    @suggest_names
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
          local_steps: Train every client on this many batches (the papers' K), of as
            many epochs as it takes, the last cut off; `None` leaves it to `epochs`.
          cache_bytes: The RAM that cached examples may hold, in bytes. The
            clients used last stay; 0 reads a client anew at every use.
          transform: A function of examples and a random generator that returns
            as many examples, at each use, and leaves those it is given, which are
            read-only, as they are. So what is cached can be small
            (bytes instead of floats) and training examples can be augmented
            anew in every epoch. The generator is that of the client's round, so
            the result stays a pure function of seed, round and client; it is
            `None` outside training, where nothing random may happen. Structure and
            dtypes must be the same in both.

        Raises:
          TypeError: If an argument is unknown or has the wrong type.
          ValueError: If `client_ids` is empty or holds an id twice, or a number
            is out of its range.
        """
        store = ExampleStore(load_client, max_examples, cache_bytes, transform)
        super().__init__(client_ids, store)
        self.batching = Batching(
            batch_size, epochs, shuffle, seed, last_batch, local_steps
        )

    @classmethod
    @suggest_names
    @signatures.with_options_of(__init__)
    def from_arrays(
        cls,
        clients: Mapping[str, Examples],
        *,
        x: Names = None,
        y: Names = None,
        cache_bytes: int = 0,
        **options: Unpack[DatasetOptions],
    ) -> ClientDatasets:
        """Makes client datasets of arrays that are in RAM already.

        Args:
          clients: Each client's examples by client id, for instance
            `{"ann": (x, y)}`.
          x: Where a client's examples are arrays by names of their own, such as
            `{"input_ids": ..., "labels": ...}`, the name of the inputs; a list of
            names for a model that takes a mapping of them.
          y: The name of the labels, or a list of names.
          cache_bytes: The RAM for copies that `max_examples` makes, in bytes.
          **options: The other options of `ClientDatasets`, `batch_size` among them.

        Returns:
          The client datasets, in the order of `clients`.

        Raises:
          TypeError: If an argument is unknown or has the wrong type.
          ValueError: If an argument is out of its range, or a client has no
            examples, arrays of different lengths, no array of a name in `x` or `y`,
            or weights beside these: with weights, call the arrays `x`, `y` and
            `sample_weight`.
        """
        arrays = checked_clients(named_examples.as_pairs(clients, x, y))
        return cls(tuple(arrays), InRam(arrays), cache_bytes=cache_bytes, **options)

    @classmethod
    @suggest_names
    @signatures.with_options_of(__init__)
    def from_client_data(
        cls,
        client_data: tff.simulation.datasets.ClientData,
        preprocess: Callable[[Examples], Examples] | None = None,
        **options: Unpack[CachedDatasetOptions],
    ) -> ClientDatasets:
        """Reads clients from a `tff.simulation.datasets.ClientData`.

        Args:
          client_data: The clients and their datasets of examples. Batches, as TFF's
            tutorials make them, are taken apart, and made anew of `batch_size`.
          preprocess: Turns the arrays of one client (the elements of its
            dataset, stacked) into its examples. It may change the number of
            examples. Default: the arrays as they are.
          **options: The options of `ClientDatasets`, `batch_size` among them.

        Returns:
          The client datasets, in the order of `client_data.client_ids`.

        Raises:
          TypeError: If an argument is unknown or has the wrong type.
          ValueError: If an argument is out of its range.
        """
        load_client = ClientDataReader(client_data, preprocess)
        return cls(tuple(client_data.client_ids), load_client, **options)

    @suggest_names
    @signatures.with_options_of(__init__, are_given=True)
    def replace(self, **options: Unpack[CachedDatasetOptions]) -> ClientDatasets:
        """Returns the same clients under other options.

        The cache is shared with the result unless `max_examples`, `cache_bytes`
        or `transform` change.

        Args:
          **options: Options of `ClientDatasets`. What is not given stays.

        Returns:
          Client datasets with these options changed.

        Raises:
          TypeError: If an option is unknown or has the wrong type.
          ValueError: If an option is out of its range.
        """
        changed: dict[str, Any] = {**options}
        stored = {name: changed.pop(name) for name in STORE_OPTIONS if name in changed}
        other = copy.copy(self)
        other.batching = dataclasses.replace(self.batching, **changed)
        if "transform" in stored and self._has_client_weights:
            stored["transform"] = WeightedTransform(stored["transform"])
        if stored:
            other._store = self._store.replace(**stored)
        return other

    @property
    def _has_client_weights(self) -> bool:
        return isinstance(self._store.transform, WeightedTransform)

    def as_loaded(self) -> ClientDatasets:
        """Returns the same clients with examples as they are loaded.

        Unlike those of `replace(transform=None)`, clients' weights are beside them.
        """
        if self._store.transform is None:
            return self
        other = copy.copy(self)
        other._store = self._store.replace(transform=None)
        return other

    def with_examples(
        self, client_ids: Sequence[str], load_client: Callable[[str], Examples]
    ) -> ClientDatasets:
        """Returns other clients under these options, except for `max_examples`.

        Args:
          client_ids: The clients.
          load_client: Returns a client's examples, like those of `as_loaded`.
        """
        return ClientDatasets(
            client_ids,
            load_client,
            cache_bytes=self.cache_bytes,
            transform=self._store.transform,
            **dataclasses.asdict(self.batching),
        )

    def with_client_weights(self, weights: Mapping[str, float]) -> ClientDatasets:
        """Returns the same clients with weights, by which their updates are averaged.

        They replace weights that clients have already.

        Batches are mappings then, `{"client_weight": ..., "x": ..., "y": ...}`, with
        `sample_weight` if examples have weights. A model of their `element_spec`, by
        `tff_drift.models.from_keras2` or `from_keras3`, trains on them with a builder's
        `client_weighting="client_weight"`.

        Args:
          weights: The weight of each client by its id, at least 0. What is there of
            other clients is not used.

        Returns:
          Client datasets with the same options.

        Raises:
          TypeError: If `weights` is no mapping of client ids to numbers.
          ValueError: If a client has no weight, or one that is negative or not finite.
        """
        store, checked = self._store, checked_weights(weights, self.client_ids)
        load: Callable[[str], Examples]
        load = WeightedClients(store.load_client, checked, self._has_client_weights)
        if store.holds_examples:
            load = InRam({each: load(each) for each in self.client_ids})
        other = copy.copy(self)
        other._check = None
        transform = WeightedTransform(self.transform)
        other._store = store.replace(load_client=load, transform=transform)
        if store.holds_examples and self.transform is None:
            # Examples without names are refused at once where that loads nothing.
            other._store.spec(self.client_ids[0])
        return other

    def __repr__(self) -> str:
        return summaries.text(*summary(self.client_ids, self._store, self.batching))

    def _repr_html_(self) -> str:
        return summaries.html(*summary(self.client_ids, self._store, self.batching))

    def in_parts(self, parts: Sequence[Sequence[str]]) -> list[ClientDatasets]:
        """Returns what to send to processes that train parts of the clients.

        Args:
          parts: The ids of the clients of each part; together all of them.

        Returns:
          For each part client datasets that have its examples alone, if they are in
          RAM. If they are loaded, client datasets of all clients, once.
        """
        if not self._store.holds_examples:
            return [self]
        divided = []
        for part in parts:
            other = copy.copy(self)
            # A part may have no clients, unlike what users make.
            other.client_ids, other._known = tuple(part), frozenset(part)
            other._store = self._store.only(part)
            divided.append(other)
        return divided

    def load_ahead(self, client_ids: Sequence[str]) -> None:
        """Loads clients that train next, as many as half of the cache holds.

        Args:
          client_ids: The clients, of which those that are in RAM are left as they are.

        Raises:
          TypeError: If an id is not a string.
          ValueError: If a client is unknown, or its examples are not as `examples`
            wants them.
        """
        for client_id in client_ids:
            self._check_known(client_id)
        self._store.load_ahead(client_ids)

    def num_examples_per_round(self, client_id: str) -> int:
        """Returns the examples of a client's batches in a round; see `num_examples`."""
        return self.batching.num_examples(self.num_examples(client_id))

    def batch_sizes(self, client_id: str) -> list[int]:
        """Returns the sizes of a client's batches in a round; see `num_examples`."""
        return self.batching.batch_sizes(self.num_examples(client_id))

    def training_batches(self, client_id: str, round_number: int) -> BatchesOnDemand:
        """Returns the batches that a client trains on in one round.

        Each epoch holds every example once, in an order of its own, in batches
        of `batch_size` of which the last may be short, or is filled up or left out
        as `last_batch` says. No batch crosses the border of two epochs.
        `local_steps` cuts the last epoch off.

        The batches are made when they are read. The local execution context takes
        them for a sequence, and reads them when the client trains; `list` of them goes
        into any context of TFF.

        Args:
          client_id: The id of the client. It is read, for the sizes of its batches.
          round_number: The round, from 0. It changes the order, and what a
            transform draws.

        Returns:
          A sequence of batches, structures of arrays like `examples`. They may be
          cached: do not write to them.

        Raises:
          TypeError: If `round_number` is not an integer.
          ValueError: If `client_id` is unknown, `round_number` is negative, or the
            client's examples are not as `examples` wants them.
        """
        checks.check_integer("round_number", round_number, at_least=0)
        sizes = self.batch_sizes(client_id)
        epochs = functools.partial(self._epochs, client_id, int(round_number))
        return BatchesOnDemand(sizes, self._store.spec(client_id), epochs)

    def _epochs(
        self, client_id: str, round_number: int
    ) -> Iterator[tuple[Examples, np.ndarray | None]]:
        """Returns what the batches of each epoch are cut from; see `Batching`."""
        self._check_values(client_id)
        return self.batching.of_round(self._store, client_id, round_number)

    def training_data(self, client_id: str, round_number: int) -> tf.data.Dataset:
        """Returns `training_batches` as a dataset, which every context of TFF takes.

        Args:
          client_id: The id of the client.
          round_number: The round, see `training_batches`.

        Returns:
          A dataset of batches with the structure of `element_spec`.

        Raises:
          TypeError: As in `training_batches`, like ValueError.
        """
        epochs = starmap(take, self.training_batches(client_id, round_number).make())
        batches = to_dataset(epochs, self.batching.batch_size)
        return batches if self._check is None else self._check.cast(batches)
