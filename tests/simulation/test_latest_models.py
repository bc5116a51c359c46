"""The mean of all clients' latest models, streamed from the store."""

import numpy as np
import pytest
import tensorflow as tf

from tests import stateful
from tff_drift import algorithms, client_states, simulation

pytestmark = pytest.mark.no_smoke


@pytest.fixture(scope="module")
def train():
    draw = np.random.default_rng(3)
    clients = {
        name: (
            draw.normal(size=(4, stateful.DIMENSION)).astype(np.float32),
            draw.normal(size=4).astype(np.float32),
        )
        for name in ("ann", "bob")
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=2)


@pytest.fixture(scope="module")
def process():
    # With β = μ = 0 AdaBest is FedAvg: a cohort of one has its client's model as mean.
    return algorithms.build_adabest(
        stateful.LinearRegression, 0.1, beta=0.0, mu=0.0, keep_latest_models=True
    )


def _run(process, train, cohorts, initial_state=None):
    store = client_states.InMemoryClientStates(process.initial_client_state)
    result = simulation.run_training(
        process, train, rounds=len(cohorts), sampling=cohorts.__getitem__,
        client_states=store, initial_state=initial_state,
    )  # fmt: skip
    return result, store


def test_each_client_counts_with_the_model_of_its_latest_round(process, train):
    both, store = _run(process, train, [["ann", "bob"], ["ann"]])
    mean = simulation.mean_latest_model(process, both.state, store)
    # Bob's model of the first round, and Ann's of the second.
    bob, _ = _run(process, train, [["bob"]])
    for found, of_bob, of_ann in zip(
        *map(tf.nest.flatten, (mean, bob.model_weights, both.model_weights)),
        strict=True,
    ):
        np.testing.assert_allclose(found, (of_bob + of_ann) / 2, rtol=1e-5)


def test_before_any_client_it_is_the_servers_model(process):
    store = client_states.InMemoryClientStates(process.initial_client_state)
    state = process.initialize()
    mean = simulation.mean_latest_model(process, state, store)
    expected = process.get_model_weights(state)
    tf.nest.map_structure(np.testing.assert_array_equal, mean, expected)


def test_states_without_models_are_refused(process):
    store = client_states.InMemoryClientStates({"other": np.zeros(2)})
    with pytest.raises(ValueError, match="holds no latest models"):
        simulation.mean_latest_model(process, process.initialize(), store)
