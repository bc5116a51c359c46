"""One round of training, with and without clients' states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_drift.algorithms import StatefulLearningProcess
from tff_drift.client_states import ClientStates
from tff_drift.simulation.cohorts import Cohort, run_round
from tff_drift.simulation.data import label_errors
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.loop.process_with_client_states import ProcessWithClientStates


class Rounds:
    """Runs rounds of a process on cohorts.

    Attributes:
      client_states: The store of the clients' states, None if they have none.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        train: ClientDatasets,
        client_states: ClientStates | None,
    ) -> None:
        """Puts a process, its clients' data and their states together.

        Args:
          process: The process.
          train: The clients' data.
          client_states: Where the clients' states are kept; by default in RAM, if the
            process's clients have any.

        Raises:
          TypeError: If `client_states` is not a store.
          ValueError: If it is given for a process whose clients have no states, or for
            one that has a store already, or is a store of other states.
        """
        if isinstance(process, StatefulLearningProcess):
            process = ProcessWithClientStates(process, client_states)
        elif client_states is not None:
            why = "the clients of this process keep no states"
            if isinstance(process, ProcessWithClientStates):
                why = "process has a store"
            raise ValueError(f"client_states is given, but {why}. Leave it out.")
        self._process: Any = process
        self._train = train
        self._is_stateful = isinstance(process, ProcessWithClientStates)
        self.client_states: ClientStates | None = (
            self._process.client_states if self._is_stateful else None
        )

    def begin(self, state: Any) -> None:
        """Says that the store, if any, holds the clients' states of a server state."""
        if self._is_stateful:
            self._process.begin(state)

    def is_in_step(self, state: Any) -> bool:
        """Returns whether it does."""
        return not self._is_stateful or self._process.is_in_step(state)

    def run(
        self,
        state: Any,
        client_ids: Sequence[str],
        round_number: int,
        next_clients: Sequence[str] = (),
    ) -> tuple[Any, Mapping[str, Any]]:
        """Runs a round.

        Args:
          state: The server state.
          client_ids: The round's clients.
          round_number: The round, from 0.
          next_clients: Those of the next round, as far as they are known.

        Returns:
          The new server state, and the round's metrics.
        """
        if self._is_stateful and len(set(client_ids)) < len(client_ids):
            raise ValueError(
                f"sampling returned a client more than once in round {round_number}: "
                f"{list(client_ids)}. A client has one state: return each id once."
            )
        cohort = Cohort(
            round_number, client_ids, self._train, next_clients=next_clients
        )
        with label_errors.naming_bad_labels(self._train, client_ids):
            if self._is_stateful:
                output = self._process.run_round(state, cohort)
            else:
                output = run_round(self._process, state, cohort)
        return output.state, output.metrics
