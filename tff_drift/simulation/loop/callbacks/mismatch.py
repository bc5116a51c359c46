"""The distance of a server's control variate from the mean of its clients'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.client_states import ClientStates
from tff_drift.simulation.evaluation.latest_models import client_states_in_chunks
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun

# The column of a round's row.
MISMATCH = "control_variate_mismatch"
_VARIATE = "control_variate"


def control_variate_mismatch(
    process: tff.learning.templates.LearningProcess,
    state: Any,
    client_states: ClientStates,
    num_clients: int,
) -> float | None:
    """Returns ‖c - (1/N) Σ c_i‖, with c_i = 0 of clients that never took part.

    In SCAFFOLD c is that mean after every round, up to rounding: its server adds up
    the changes of the c_i and divides by N. A mismatch reveals changes that were
    lost, of an N that is not the number of clients, or of a store that does not belong
    to the state. In SCAFFOLD/m, whose server reconstructs the changes from the mean
    pseudo-gradient, it is what different numbers of local steps cost. With clients
    weighted by examples c is a weighted mean, and this is the distance to the
    unweighted one.

    The states of all clients seen are read once: the cost follows them, not the
    cohort.

    Args:
      process: The learning process.
      state: Its server state.
      client_states: The store of the clients' states, of the same round.
      num_clients: N, the number of all clients.

    Returns:
      The distance; `None` if the server or the clients keep no control variate.

    Raises:
      ClientStatesError: If the store is damaged.
      TypeError: If an argument has the wrong type.
      ValueError: If `num_clients` is below 1.
    """
    checks.check_instance("client_states", client_states, ClientStates)
    checks.check_integer("num_clients", num_clients)
    read_variate = getattr(process, "control_variate", None)
    if read_variate is None or _VARIATE not in client_states.initial_state:
        return None
    try:
        variate = np.asarray(read_variate(state), float)
    except TypeError as error:
        found = type(state).__name__
        raise TypeError(f"state must be a server state, found {found}.") from error
    total = np.zeros(variate.shape)
    for client_state in client_states_in_chunks(client_states):
        total += client_state[_VARIATE]
    return float(np.linalg.norm(variate - total / num_clients))


class ControlVariateMismatch(Callback):
    """Measures `control_variate_mismatch` whenever the model is evaluated.

    The column is `control_variate_mismatch`; of methods without control variates there
    is none. N is the number of clients to train on.
    """

    def before_training(self, run: TrainingRun) -> None:
        """Remembers the run, whose clients' states are read."""
        self._run = run

    def after_evaluation(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> dict[str, float] | None:
        """Measures the mismatch."""
        del round_number, row
        if self._run.client_states is None:
            return None
        mismatch = control_variate_mismatch(
            self._run.process, state, self._run.client_states, len(self._run.train)
        )
        return None if mismatch is None else {MISMATCH: mismatch}
