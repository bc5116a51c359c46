"""The structures and types in which clients' states go through a round."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_drift import compat
from tff_drift.algorithms import CLIENT_STATES, StatefulLearningProcess
from tff_drift.client_states import ClientStates


def rounds_of(state: Any) -> int:
    """Returns the rounds that a server state has been trained for.

    Args:
      state: The server state of a process whose clients keep a state.

    Raises:
      TypeError: If it is not one, or a reference to one.
    """
    client_work = getattr(state, "client_work", None)
    if not isinstance(client_work, Mapping) or "round_number" not in client_work:
        raise TypeError(
            "state must be the server state of a process whose clients keep a state, "
            f"found {type(state).__name__}. Give what initialize or next returned."
        )
    rounds = client_work["round_number"]
    if isinstance(rounds, compat.MaterializableValueReference):
        raise TypeError(
            "state holds references to values, but the clients' states to go with "
            "it must be known. Await tff.program.materialize_value(state) first, "
            "as tff.learning.programs.train_model does."
        )
    return int(rounds)


def next_type(process: StatefulLearningProcess) -> compat.FunctionType:
    """Returns the type of `next` without the clients' states."""
    parameter: Any = process.next.type_signature.parameter
    result: Any = process.next.type_signature.result
    metrics = result.metrics.member
    seen = collections.OrderedDict(
        (name, metrics[name])
        for name in compat.structure_names(metrics)
        if name != CLIENT_STATES
    )
    return compat.FunctionType(
        compat.to_type(
            collections.OrderedDict(
                state=parameter[0],
                client_data=compat.FederatedType(
                    parameter[1].member.examples, compat.CLIENTS
                ),
            )
        ),
        compat.to_type(
            tff.learning.templates.LearningProcessOutput(
                result.state, compat.FederatedType(compat.to_type(seen), compat.SERVER)
            )
        ),
    )


def check_store_fits(process: StatefulLearningProcess, store: ClientStates) -> None:
    """Raises a `ValueError` unless a store is for the clients of a process."""

    def shapes(state: Any) -> list[tuple[Any, Any, Any]]:
        return [
            (path, np.asarray(leaf).shape, np.asarray(leaf).dtype)
            for path, leaf in tree.flatten_with_path(state)
        ]

    if shapes(store.initial_state) != shapes(process.initial_client_state):
        raise ValueError(
            "client_states was made for other states than those of this process's "
            "clients. Make it with process.initial_client_state."
        )
