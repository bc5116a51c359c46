"""The distance of the server's control variate from the mean of its clients'."""

import collections
import types

import numpy as np
import pytest

from tests import models
from tff_drift import algorithms, client_states, simulation
from tff_drift.simulation import callbacks


def _store(variates):
    initial = collections.OrderedDict(control_variate=np.zeros(3, np.float32))
    store = client_states.InMemoryClientStates(initial)
    states = [
        collections.OrderedDict(control_variate=np.array(variate, np.float32))
        for variate in variates.values()
    ]
    store.scatter(list(variates), states)
    return store


# A process whose server state is its control variate, as far as it is asked.
PROCESS = types.SimpleNamespace(control_variate=lambda state: state)


def test_by_hand_with_clients_that_never_took_part():
    store = _store({"a": [4, 0, 0], "b": [0, 8, 0]})
    # Of four clients, two of which are at zero, the mean is (1, 2, 0).
    for variate, distance in (([1, 2, 0], 0), ([4, 2, 4], 5), ([1, 2, 7], 7)):
        state = np.array(variate, np.float32)
        mismatch = simulation.control_variate_mismatch(PROCESS, state, store, 4)
        assert mismatch == distance


def test_without_a_control_variate_there_is_nothing_to_compare():
    mismatch, state = simulation.control_variate_mismatch, np.zeros(3)
    others = client_states.InMemoryClientStates({"gradient_estimate": np.zeros(2)})
    assert mismatch(PROCESS, state, others, 2) is None
    without = types.SimpleNamespace(control_variate=None)
    assert mismatch(without, state, _store({}), 2) is None
    assert mismatch(types.SimpleNamespace(), state, _store({}), 2) is None


@pytest.fixture
def train():
    clients = models.client_arrays([5, 8, 11, 14], seed=2)
    return simulation.ClientDatasets.from_arrays(
        {f"client_{index}": arrays for index, arrays in enumerate(clients)},
        batch_size=4,
        seed=6,
    )


def test_a_run_measures_it_at_evaluations(train):
    process = algorithms.build_scaffold(models.softmax_regression, 0.2, len(train))
    result = simulation.run_training(
        process,
        train,
        rounds=4,
        cohort_size=2,
        callbacks=[
            callbacks.PeriodicEvaluation(
                lambda weights: {"zero": 0}, rounds_per_evaluation=2
            ),
            callbacks.ControlVariateMismatch(),
        ],
    )
    measured = {
        row["round"]: row["control_variate_mismatch"]
        for row in result.rows
        if "control_variate_mismatch" in row
    }
    assert list(measured) == [2, 4]
    norm = result.rows[-1]["aggregator/control_variate/control_variate_norm"]
    assert max(measured.values()) < 1e-6 * norm


@pytest.mark.conformance
def test_a_wrong_number_of_clients_shows(train):
    process = algorithms.build_scaffold(models.softmax_regression, 0.2, 2)
    kept = simulation.ProcessWithClientStates(process)
    state = kept.initialize()
    sample = simulation.build_uniform_sampling(train.client_ids, 2)
    for number in range(4):
        cohort = {name: train.training_data(name, number) for name in sample(number)}
        state, metrics = kept.next(state, cohort)
    mismatch = simulation.control_variate_mismatch(
        kept, state, kept.client_states, len(train)
    )
    # c is twice the mean.
    norm = metrics["aggregator"]["control_variate"]["control_variate_norm"]
    assert mismatch == pytest.approx(norm / 2, rel=1e-5)
