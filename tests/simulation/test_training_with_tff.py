"""The driver on TFF's own processes, in TFF's native execution context."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models
from tests.simulation import fakes
from tff_drift import simulation
from tff_drift.simulation import callbacks

pytestmark = pytest.mark.no_smoke

SIZES = [5, 8, 11, 14]


@pytest.fixture(scope="module")
def train():
    clients = {
        f"client_{index}": arrays
        for index, arrays in enumerate(models.client_arrays(SIZES, seed=8))
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=4)


@pytest.fixture(scope="module")
def process():
    """FedAvg as TFF builds it."""
    return tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, tff.learning.optimizers.build_sgdm(0.1)
    )


def test_equals_a_loop_over_next(process, train, tmp_path):
    result = simulation.run_training(
        process,
        train,
        rounds=3,
        cohort_size=2,
        seed=5,
        output_dir=tmp_path,
    )
    state = process.initialize()
    sampling = simulation.build_uniform_sampling(train.client_ids, 2, seed=5)
    for round_number, row in enumerate(result.rows):
        cohort = sampling(round_number)
        state, metrics = process.next(
            state,
            [train.training_data(client_id, round_number) for client_id in cohort],
        )
        expected = metrics["client_work"]["train"]
        assert np.float32(row["train_loss"]) == expected["loss"]
        assert np.float32(row["train_accuracy"]) == expected["accuracy"]
        assert row["train_num_examples"] == sum(map(train.num_examples, cohort))
        assert row["finalizer/update_non_finite"] == 0
    models.assert_bit_equal(
        result.model_weights.trainable, models.trainable(process, state)
    )
    # A kernel of 3 x 4 and 4 biases in float32; a client weight beside the update.
    assert result.totals.bytes_down == 3 * 2 * 64
    assert result.totals.bytes_up == 3 * 2 * 68

    again = simulation.run_training(
        process,
        train,
        rounds=3,
        cohort_size=2,
        seed=5,
        output_dir=tmp_path,
    )
    assert again.rows == result.rows
    # The restored state is good for TFF.
    process.next(again.state, [train.training_data("client_0", 3)])


def test_initial_weights_take_the_place_of_the_model(process, train):
    trained = simulation.run_training(process, train, rounds=2, cohort_size=2)
    again = simulation.run_training(
        process, train, rounds=1, cohort_size=2, initial_weights=trained.model_weights
    )
    state = process.set_model_weights(process.initialize(), trained.model_weights)
    cohort = simulation.build_uniform_sampling(train.client_ids, 2)(0)
    expected = process.next(state, [train.training_data(name, 0) for name in cohort])
    models.assert_bit_equal(
        again.model_weights.trainable, models.trainable(process, expected.state)
    )


@pytest.mark.conformance
def test_many_rounds_do_not_grow_this_process(process, train):
    sizes = {}

    def measure(weights):
        sizes[len(sizes)] = fakes.resident_bytes()
        return {}

    simulation.run_training(
        process,
        train,
        rounds=120,
        cohort_size=2,
        callbacks=[callbacks.PeriodicEvaluation(measure, rounds_per_evaluation=40)],
    )
    # After 40 rounds everything is in place; 80 more may cost their rows alone.
    assert sizes[3] - sizes[1] < 4 * 2**20
