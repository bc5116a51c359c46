"""A run that was resumed is the run that was not interrupted, for every method."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import methods, models
from tff_drift import algorithms, client_states, execution, simulation


@pytest.fixture(scope="module")
def local():
    return execution.create_local_execution_context()


@pytest.fixture(scope="module")
def train():
    clients = {
        name: (client.features.astype(np.float32), client.targets.astype(np.float32))
        for name, client in methods.CLIENTS.items()
    }
    return simulation.ClientDatasets.from_arrays(
        clients, batch_size=3, epochs=methods.EPOCHS, seed=6
    )


def run(process, train, rounds, folder):
    """Trains under a folder; returns the result and what clients keep."""
    store = None
    needs_all = getattr(process, "needs_full_participation", False)
    if isinstance(process, algorithms.StatefulLearningProcess):
        store = client_states.InMemoryClientStates(process.initial_client_state)
    result = simulation.run_training(
        process,
        train,
        rounds=rounds,
        cohort_size=len(train) if needs_all else 2,
        seed=3,
        client_states=store,
        output_dir=folder,
    )
    kept = [] if store is None else store.gather(list(methods.CLIENTS))
    return result, [np.asarray(leaf) for state in kept for leaf in state.values()]


@pytest.mark.no_smoke
@methods.every_resumed
def test_a_resumed_run_equals_a_whole_one(method, local, train, tmp_path):
    process = methods.build(method, num_clients=len(train))
    with tff.framework.get_context_stack().install(local):
        expected, kept = run(process, train, 4, tmp_path / "whole")
        for rounds in (1, 4):
            result, kept_in_parts = run(process, train, rounds, tmp_path / "parts")
        weights = models.trainable(process, expected.state)
        models.assert_bit_equal(models.trainable(process, result.state), weights)
        assert any(np.any(tensor) for tensor in weights)
    models.assert_bit_equal(kept_in_parts, kept)
    rows = [list(map(simulation.without_timing, r.rows)) for r in (result, expected)]
    assert rows[0] == rows[1]
