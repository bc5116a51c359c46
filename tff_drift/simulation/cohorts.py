"""The cohort of a round: its clients, with their data and their states.

The execution context runs the round, see `tff_drift.execution.RoundRunner`: it reads
the cohort's data, and says how the clients' new states come back.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
import operator
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_drift import autograph, checks, client_works, compat
from tff_drift.algorithms import CLIENT_STATES
from tff_drift.client_states import ClientStates
from tff_drift.execution.round_runner import current_runner
from tff_drift.simulation import references
from tff_drift.simulation.data.client_datasets import ClientDatasets


class Selection(Mapping[str, Any]):
    """The datasets of some clients of a round, by client id.

    What `next` of a `ProcessWithClientStates` takes. A context that runs rounds reads
    the clients' data itself; for all others it is a mapping of datasets.

    Attributes:
      train: The clients' data.
      round_number: The round, from 0.
    """

    def __init__(
        self,
        train: ClientDatasets,
        client_ids: Sequence[str] = (),
        round_number: int = 0,
    ) -> None:
        """Selects clients.

        Args:
          train: The clients' data.
          client_ids: The clients.
          round_number: The round, from 0.

        Raises:
          TypeError: If TFF takes the selection for another mapping, and copies it.
        """
        if not isinstance(train, ClientDatasets):
            raise TypeError(
                "A selection by client id is for a ProcessWithClientStates. For others "
                "ClientDataSource(train, by_client_id=False) selects lists."
            )
        self.train = train
        self.round_number = round_number
        self._client_ids = dict.fromkeys(client_ids)

    def __getitem__(self, client_id: str) -> tf.data.Dataset:
        if client_id not in self._client_ids:
            raise KeyError(client_id)
        return self.train.training_data(client_id, self.round_number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._client_ids)

    def __len__(self) -> int:
        return len(self._client_ids)


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round, their data and their states.

    Attributes:
      round_number: The round, from 0.
      clients: The clients' ids, in the order in which a context takes them.
      data: The clients' data, or what was given for each client.
      states: The store of the clients' states; None if they have none.
      next_clients: The clients that train next, as far as that is known.
      replacing: Is given what replaces the states, and calls it.
    """

    round_number: int
    clients: Sequence[str]
    data: ClientDatasets | Mapping[str, Any]
    states: ClientStates | None = None
    next_clients: Sequence[str] = ()
    replacing: Callable[[Callable[[], object]], object] = operator.call

    __repr__ = checks.shown_fields

    def batches(self) -> list[Any]:
        """Returns each client's data as `ClientDatasets.training_batches` has it.

        What was given for each client has its own form.
        """
        if isinstance(self.data, Mapping):
            return [self.data[client_id] for client_id in self.clients]
        read = self.data.training_batches
        return [read(client_id, self.round_number) for client_id in self.clients]

    def datasets(self) -> list[Any]:
        """Returns the same as datasets, which every context of TFF takes."""
        if isinstance(self.data, Mapping):
            return self.batches()
        read = self.data.training_data
        return [read(client_id, self.round_number) for client_id in self.clients]

    @property
    def state_nbytes(self) -> int:
        """The size of one client's state, in bytes."""
        return 0 if self.states is None else self.states.state_nbytes

    def run(
        self,
        process: tff.learning.templates.LearningProcess,
        server_state: Any,
        data: Sequence[Any],
        *,
        states_stay: bool = False,
    ) -> Any:
        """Runs `next` of a process, under the current context, and keeps the states.

        Args:
          process: The process.
          server_state: The server state.
          data: Each client's data.
          states_stay: Whether the clients' new states are returned one by one, by
            `next_at_clients`, which is quicker than to collect large ones.

        Returns:
          The output of the round, without the clients' states; an awaitable of it under
          an asynchronous context, references to it under one of `tff.program`.
        """
        if self.states is None:
            return process.next(server_state, data)
        states = self.states.gather(list(self.clients), copy=False)
        indices = [np.int32(index) for index in range(len(data))]
        stateful: Any = process
        if isinstance(compat.get_context_stack().current, compat.FederatedContext):
            columns = [
                list(each) for each in zip(*map(tree.flatten, states), strict=True)
            ]
            output = stateful.next_of_columns(
                server_state, list(data), columns, indices
            )
            ending = self._end_later(process, compat.materialize_value(output))
            return references.to_later(without_client_states(output), ending)
        client_data = [
            collections.OrderedDict(examples=examples, state=client_state, index=index)
            for examples, client_state, index in zip(data, states, indices, strict=True)
        ]
        computation = stateful.next_at_clients if states_stay else process.next
        result = computation(server_state, client_data)
        if inspect.isawaitable(result):
            return self._end_later(process, result, states_stay)
        return self.end(process, result, states_stay)

    async def _end_later(
        self, process: Any, result: Awaitable[Any], states_stay: bool = False
    ) -> Any:
        return self.end(process, await result, states_stay)

    def end(
        self, process: Any, result: Any, states_stay: bool = False
    ) -> tff.learning.templates.LearningProcessOutput:
        """Keeps the new states that a round returned, and returns the rest.

        Args:
          process: The process.
          result: What `next` or `next_at_clients` returned.
          states_stay: Whether it was `next_at_clients`.

        Returns:
          The output of the round, without the clients' states.
        """
        assert self.states is not None
        store, initial = self.states, process.initial_client_state
        if states_stay:
            output, kept = result
            indices = [int(each["index"]) for each in kept]
            states = [
                tree.unflatten_as(initial, tree.flatten(dict(each["state"])))
                for each in kept
            ]
        else:
            output = result
            collected = output.metrics[CLIENT_STATES]
            indices, states = unstack_client_states(collected, initial)
        names = [self.clients[index] for index in indices]
        # One of the states that were stacked would keep all of them in RAM.
        self.replacing(lambda: store.scatter(names, states, copy=not states_stay))
        return without_client_states(output)


def run_round(
    process: tff.learning.templates.LearningProcess, server_state: Any, cohort: Cohort
) -> Any:
    """Runs a round as the current context does, see `RoundRunner.run_round`.

    Args:
      process: The process, a `StatefulLearningProcess` if clients have states.
      server_state: The server state.
      cohort: The clients.
    """
    return current_runner().run_round(process, server_state, cohort)


def clients_alone(
    spec: client_works.ModelSpec,
    client_type: Any,
    prepare: Callable[[], Callable[[Any, Any], Any]],
) -> Any:
    """Returns a round without a server, which `run_round` takes in place of a process.

    Args:
      spec: The model, whose weights are sent.
      client_type: The type of what a client has.
      prepare: Builds the models that a client needs, in the current graph. Returns what
        it does, a function of the weights and of what it has, whose results a round
        returns client by client.
    """

    @compat.tf_computation(spec.weights_type, client_type)
    def of_client(weights: Any, client: Any) -> Any:
        return autograph.traced_as_written(prepare())(weights, client)

    @compat.federated_computation(
        compat.FederatedType(spec.weights_type, compat.SERVER),
        compat.FederatedType(client_type, compat.CLIENTS),
    )
    def next_fn(weights: Any, clients: Any) -> Any:
        sent = compat.federated_broadcast(weights)
        return compat.federated_map(of_client, (sent, clients))

    return types.SimpleNamespace(next=next_fn)


def unstack_client_states(
    collected: Mapping[str, Any], initial_client_state: Any
) -> tuple[list[int], list[Any]]:
    """Separates the states of a cohort, which `next` returns stacked.

    Args:
      collected: `<index=int32[M],state=C*>`, from a process's metrics under
        `tff_drift.algorithms.CLIENT_STATES`.
      initial_client_state: A state of one client, for its containers and dtypes.

    Returns:
      The indices that were given to the clients, and the state of each.

    Raises:
      TypeError: If `collected` is something else.
    """
    if not isinstance(collected, Mapping) or not {"index", "state"} <= set(collected):
        raise TypeError(
            "collected must be the client states in the metrics of a process, "
            f"metrics[CLIENT_STATES], found {type(collected).__name__}."
        )
    indices = [int(index) for index in np.asarray(collected["index"])]
    stacked = [np.asarray(leaf) for leaf in tree.flatten(dict(collected["state"]))]
    states = [
        tree.unflatten_as(initial_client_state, [leaf[row] for leaf in stacked])
        for row in range(len(indices))
    ]
    return indices, states


def without_client_states(
    output: tff.learning.templates.LearningProcessOutput,
) -> tff.learning.templates.LearningProcessOutput:
    """Returns the output of a round without the clients' states in its metrics."""
    metrics = collections.OrderedDict(output.metrics)
    metrics.pop(CLIENT_STATES, None)
    return tff.learning.templates.LearningProcessOutput(output.state, metrics)
