"""One round of training, with and without clients' states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow_federated as tff

from tff_drift import execution
from tff_drift.algorithms import StatefulLearningProcess
from tff_drift.client_states import ClientStates
from tff_drift.execution import batches_on_demand, preferences
from tff_drift.simulation.data import label_errors
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.loop.process_with_client_states import ProcessWithClientStates


class RoundRunner(Protocol):
    """Runs rounds of a process on cohorts.

    Attributes:
      client_states: The store of the clients' states; `None` for processes whose
        clients have none.
    """

    @property
    def client_states(self) -> ClientStates | None:
        """The store of the clients' states, if they have any."""

    def begin(self, state: Any) -> None:
        """Says that the store holds the clients' states of a server state."""

    def is_in_step(self, state: Any) -> bool:
        """Returns whether it does."""

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
      client_states: Where the clients' states are kept; by default in RAM, if the
        process's clients have any.

    Returns:
      A runner.

    Raises:
      TypeError: If `client_states` is not a store.
      ValueError: If it is given for a process whose clients have no states, or for one
        that has a store already, or is a store of other states.
    """
    if isinstance(process, StatefulLearningProcess):
        return _StatefulRunner(ProcessWithClientStates(process, client_states), train)
    if isinstance(process, ProcessWithClientStates):
        if client_states is not None:
            raise ValueError(
                "client_states is given, but process has a store. Leave it out."
            )
        return _StatefulRunner(process, train)
    if client_states is not None:
        raise ValueError(
            "client_states is given, but the clients of this process keep no states. "
            "Leave it out."
        )
    return _PlainRunner(process, train)


class _PlainRunner:
    """Rounds of a process whose clients keep no states."""

    client_states = None

    def __init__(
        self, process: tff.learning.templates.LearningProcess, train: ClientDatasets
    ) -> None:
        self._process = process
        self._train = train

    def begin(self, state: Any) -> None:
        del state

    def is_in_step(self, state: Any) -> bool:
        del state
        return True

    def run(
        self, state: Any, cohort: Sequence[str], round_number: int
    ) -> tuple[Any, Mapping[str, Any]]:
        data = [client_data(self._train, name, round_number) for name in cohort]
        with label_errors.naming_bad_labels(self._train, cohort):
            output = self._process.next(state, data)
        return output.state, output.metrics


class _StatefulRunner:
    """Rounds of a process whose clients keep states, which are in its store."""

    def __init__(self, process: ProcessWithClientStates, train: ClientDatasets) -> None:
        self._process = process
        self._train = train
        self.client_states = process.client_states

    def begin(self, state: Any) -> None:
        self._process.begin(state)

    def is_in_step(self, state: Any) -> bool:
        return self._process.is_in_step(state)

    def run(
        self, state: Any, cohort: Sequence[str], round_number: int
    ) -> tuple[Any, Mapping[str, Any]]:
        data = {name: client_data(self._train, name, round_number) for name in cohort}
        if len(data) < len(cohort):
            raise ValueError(
                f"sampling returned a client more than once in round {round_number}: "
                f"{list(cohort)}. A client has one state: return each id once."
            )
        with label_errors.naming_bad_labels(self._train, cohort):
            output = self._process.next(state, data)
        return output.state, output.metrics


def client_data(train: ClientDatasets, client_id: str, round_number: int) -> Any:
    """Returns a client's batches in the form that the context prefers.

    Args:
      train: The clients' data.
      client_id: The client.
      round_number: The round, from 0.

    Returns:
      Batches that are named or made on demand, or a `tf.data.Dataset`.
    """
    if preferences.takes_rounds_of_clients():
        return batches_on_demand.RoundOfClient(train, client_id, round_number)
    if execution.current_preferences().takes_batches_on_demand:
        return train.batches_on_demand(client_id, round_number)
    return train.training_data(client_id, round_number)
