"""A client's data of a round, as the execution context takes it best."""

from __future__ import annotations

from typing import Any

from tff_drift.execution import batches_on_demand, preferences
from tff_drift.simulation.data.client_datasets import ClientDatasets


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
    if preferences.current_preferences().takes_batches_on_demand:
        return train.batches_on_demand(client_id, round_number)
    return train.training_data(client_id, round_number)
