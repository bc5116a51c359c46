"""The mean of all clients' latest models, as a model to evaluate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.algorithms import LATEST_MODEL
from tff_drift.client_states import ClientStates

# Clients whose states are read at a time.
_CHUNK = 256


def client_states_in_chunks(client_states: ClientStates) -> Iterator[Any]:
    """Yields the states of all clients seen, of which few are in RAM at a time.

    Args:
      client_states: The store.

    Raises:
      ClientStatesError: If it is damaged.
    """
    seen = client_states.client_ids()
    for start in range(0, len(seen), _CHUNK):
        yield from client_states.gather(seen[start : start + _CHUNK], copy=False)


def mean_latest_model(
    process: tff.learning.templates.LearningProcess,
    state: Any,
    client_states: ClientStates,
) -> tff.learning.models.ModelWeights:
    """Returns the mean of the models that clients trained last.

    The model for inference of Acar et al. (2021), Federated Learning Based on Dynamic
    Regularization, https://arxiv.org/abs/2111.04263, in their code's `all_model`, which
    Varno et al. (2022), AdaBest, section 4.1, follow: each client counts with the
    model of the last round that it took part in, however long ago. Clients that never
    took part are left out; in that code they count with the initial model.

    The clients' states hold those models where the process was built with
    `keep_latest_models`. They are read in turn: besides the store there is one sum.

    Args:
      process: The learning process.
      state: Its server state.
      client_states: The store of the clients' states.

    Returns:
      The weights, with the server's own that are not trained. Before any client took
      part, what `process.get_model_weights` returns.

    Raises:
      ClientStatesError: If the store is damaged.
      TypeError: If `client_states` is not a store.
      ValueError: If the clients' states hold no models.
    """
    checks.check_instance("client_states", client_states, ClientStates)
    if LATEST_MODEL not in client_states.initial_state:
        raise ValueError(
            "client_states holds no latest models. Build the process with "
            "keep_latest_models=True, of a method whose clients keep a state."
        )
    weights = process.get_model_weights(state)
    total, count = 0.0, 0
    for client_state in client_states_in_chunks(client_states):
        total = total + client_state[LATEST_MODEL].astype(np.float64)
        count += 1
    if not count:
        return weights
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(weights.trainable)]
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = np.split(np.asarray(total) / count, ends[:-1])
    means = [
        part.reshape(leaf.shape).astype(leaf.dtype)
        for part, leaf in zip(parts, leaves, strict=True)
    ]
    return tff.learning.models.ModelWeights(
        tf.nest.pack_sequence_as(weights.trainable, means), weights.non_trainable
    )
