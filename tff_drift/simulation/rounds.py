"""One round of training, with and without clients' states."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow_federated as tff
import tree

from tff_drift import execution
from tff_drift.algorithms import CLIENT_STATES, StatefulLearningProcess
from tff_drift.client_states import ClientStates, InMemoryClientStates
from tff_drift.simulation.client_datasets import ClientDatasets


class RoundRunner(Protocol):
    """Runs rounds of a process on cohorts.

    Attributes:
      client_states: The store of the clients' memory; `None` for processes whose
        clients have none.
    """

    @property
    def client_states(self) -> ClientStates | None:
        """The store of the clients' memory, if they have any."""

    @property
    def rounds_kept(self) -> int | None:
        """After how many rounds the memory kept is; `None` without memory."""

    def begin(self, rounds_completed: int) -> None:
        """Says after how many rounds the memory is that was restored."""

    def run(
        self, state: Any, cohort: Sequence[str], round_number: int
    ) -> tuple[Any, Mapping[str, Any]]:
        """Runs a round; returns the new server state and the round's metrics."""


def build_round_runner(
    process: tff.learning.templates.LearningProcess,
    train: ClientDatasets,
    client_states: ClientStates | None,
) -> RoundRunner:
    """Returns what runs rounds of this kind of process.

    Args:
      process: The process.
      train: The clients' data.
      client_states: Where the clients' memory is kept; by default in memory, if the
        process's clients have any.

    Returns:
      A runner.

    Raises:
      TypeError: If `client_states` is not a store.
      ValueError: If it is given for a process whose clients have no memory.
    """
    if not isinstance(process, StatefulLearningProcess):
        if client_states is not None:
            raise ValueError(
                "client_states is given, but the clients of this process keep no "
                "memory. Leave it out."
            )
        return _PlainRunner(process, train)
    if client_states is None:
        client_states = InMemoryClientStates(process.initial_client_state)
    if not isinstance(client_states, ClientStates):
        raise TypeError(
            "client_states must be a store of tff_drift.client_states, found "
            f"{client_states!r}."
        )
    return _StatefulRunner(process, train, client_states)


class _PlainRunner:
    """Rounds of a process whose clients keep no memory."""

    client_states = None
    rounds_kept = None

    def __init__(
        self, process: tff.learning.templates.LearningProcess, train: ClientDatasets
    ) -> None:
        self._process = process
        self._train = train

    def begin(self, rounds_completed: int) -> None:
        del rounds_completed

    def run(
        self, state: Any, cohort: Sequence[str], round_number: int
    ) -> tuple[Any, Mapping[str, Any]]:
        output = self._process.next(
            state, [_client_data(self._train, name, round_number) for name in cohort]
        )
        return output.state, output.metrics


class _NewMemory(NamedTuple):
    """The memory that a cohort's clients return.

    Attributes:
      indices: The indices that were given to the clients.
      states: The new state of each.
      are_views: Whether the states are parts of arrays of the whole cohort, which
        one of them would keep in memory.
    """

    indices: list[int]
    states: list[Any]
    are_views: bool


class _StatefulRunner:
    """Rounds of a process whose clients keep memory, which is kept here."""

    def __init__(
        self,
        process: StatefulLearningProcess,
        train: ClientDatasets,
        client_states: ClientStates,
    ) -> None:
        self._process = process
        self._train = train
        self.client_states = client_states
        self.rounds_kept: int | None = 0

    def begin(self, rounds_completed: int) -> None:
        self.rounds_kept = rounds_completed

    def run(
        self, state: Any, cohort: Sequence[str], round_number: int
    ) -> tuple[Any, Mapping[str, Any]]:
        memories = self.client_states.gather(cohort, copy=False)
        output, new = self._next(
            state,
            [
                collections.OrderedDict(
                    examples=_client_data(self._train, name, round_number),
                    state=memory,
                    index=np.int32(index),
                )
                for index, (name, memory) in enumerate(zip(cohort, memories))
            ],
        )
        metrics = dict(output.metrics)
        metrics.pop(CLIENT_STATES, None)
        # Between these two lines the memory is of no round: an interrupt that
        # comes there must not save it.
        self.rounds_kept = None
        names = [cohort[index] for index in new.indices]
        self.client_states.scatter(names, new.states, copy=new.are_views)
        self.rounds_kept = round_number + 1
        return output.state, metrics

    def _next(self, state: Any, client_data: Sequence[Any]) -> tuple[Any, _NewMemory]:
        """Returns the output of `next` and the clients' new memory."""
        initial = self._process.initial_client_state
        of_client = sum(np.asarray(leaf).nbytes for leaf in tree.flatten(initial))
        preferences = execution.current_preferences()
        if preferences.prefers_states_at_clients(of_client, len(client_data)):
            output, kept = self._process.next_at_clients(state, client_data)
            states = [
                tree.unflatten_as(initial, tree.flatten(dict(each["state"])))
                for each in kept
            ]
            indices = [int(each["index"]) for each in kept]
            return output, _NewMemory(indices, states, are_views=False)
        output = self._process.next(state, client_data)
        indices, states = unstack_client_states(output.metrics[CLIENT_STATES], initial)
        return output, _NewMemory(indices, states, are_views=True)


def _client_data(train: ClientDatasets, client_id: str, round_number: int) -> Any:
    """Returns a client's batches in the form that the context takes quickest."""
    if execution.current_preferences().prefers_lists:
        return train.training_batches(client_id, round_number)
    return train.training_data(client_id, round_number)


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
    """
    indices = [int(index) for index in np.asarray(collected["index"])]
    stacked = [np.asarray(leaf) for leaf in tree.flatten(dict(collected["state"]))]
    states = [
        tree.unflatten_as(initial_client_state, [leaf[row] for leaf in stacked])
        for row in range(len(indices))
    ]
    return indices, states
