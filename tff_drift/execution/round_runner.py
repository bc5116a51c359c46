"""The base class of execution contexts that run rounds in their own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tff_drift import compat

# TFF's engine sends what clients return through its worker, each with a copy of its
# own: collected states are quicker, until they fill a message.
_MOST_COLLECTED_BYTES = 2**26


class RoundRunner:
    """Runs rounds under an execution context of TFF.

    As it stands, it serves any context: datasets go in, and the clients' new states
    are collected, or under TFF's own engine returned one by one where they would fill
    a message. A context that knows better is a subclass of it as well:

        class MyContext(RoundRunner, tff.framework.SyncContext):
            def invoke(self, comp, arg): ...

            def run_round(self, process, server_state, cohort):
                data = [list(batches) for batches in cohort.batches()]
                return cohort.run(process, server_state, data)
    """

    def run_round(self, process: Any, server_state: Any, cohort: Any) -> Any:
        """Runs a round.

        Args:
          process: The process, a `StatefulLearningProcess` if clients have states.
          server_state: The server state.
          cohort: The clients, a `tff_drift.simulation.Cohort`.

        Returns:
          The output of the round, without the clients' states; an awaitable of it under
          an asynchronous context, references to it under one of `tff.program`.
        """
        context = compat.get_context_stack().current
        of_engine = isinstance(context, compat.framework.SyncExecutionContext)
        num_bytes = len(cohort.clients) * cohort.state_nbytes
        return cohort.run(
            process,
            server_state,
            cohort.datasets(),
            states_stay=of_engine and num_bytes > _MOST_COLLECTED_BYTES,
        )

    def open_client_states(self, initial_state: Any, path: Any = None) -> Any:
        """Returns the store of client states that is best here.

        Args:
          initial_state: The state of a client that has not been seen.
          path: A folder for them; None if they may end with the program.

        Returns:
          A `tff_drift.client_states.ClientStates`; None for one in RAM.
        """
        del initial_state, path
        return None

    def map_clients(
        self,
        build: Callable[[], Any],
        source: Any,
        client_ids: Sequence[str],
        *arguments: Any,
    ) -> list[Any] | None:
        """Calls a function of clients where their data is.

        Args:
          build: Makes the function: of a list of pairs, what has a client and the
            client's id, and of the arguments to a result for each pair.
          source: The clients' data, a `tff_drift.simulation.ClientDatasets`.
          client_ids: The clients.
          *arguments: What the function is given besides.

        Returns:
          The results in the order of the clients; None if their data is in this
          process, or the function cannot be sent to where it is.
        """
        del build, source, client_ids, arguments
        return None


def current_runner() -> RoundRunner:
    """Returns what runs rounds under the current context."""
    context = compat.get_context_stack().current
    return context if isinstance(context, RoundRunner) else RoundRunner()
