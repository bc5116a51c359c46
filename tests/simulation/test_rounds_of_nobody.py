"""What a round tells in which no example counted, and who is suspected."""

import math

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, tiers
from tests.paper.contexts import both_contexts
from tff_drift import simulation
from tff_drift.simulation import run_training
from tff_drift.simulation.records import failures, metrics

CLIENTS = {
    f"client_{k}": client for k, client in enumerate(models.client_arrays([5, 8, 6]))
}


RATE = 0.1


def with_bad(*names, value=np.nan):
    clients = {name: (x.copy(), y) for name, (x, y) in CLIENTS.items()}
    for name in names:
        clients[name][0][2, 1] = value
    return simulation.ClientDatasets.from_arrays(clients, batch_size=4)


def run(train, rounds=1, rate=RATE, **options):
    if "sampling" not in options:
        options = {"cohort_size": 3, **options}
    if rate != RATE:
        options["initial_state"] = at_rate(rate)
    return run_training(models.fed_avg(RATE), train, rounds=rounds, **options)


def at_rate(rate):
    """The initial state of the process, with another rate of the clients."""
    process = models.fed_avg(RATE)
    state = process.initialize()
    hparams = process.get_hparams(state)
    hparams["client_work"]["learning_rate"] = np.float32(rate)
    return process.set_hparams(state, hparams)


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def assert_is_of_nobody(row):
    assert math.isnan(row["train_loss"])
    assert math.isnan(row["train_accuracy"])
    assert row["train_num_examples"] == 0
    # Nothing is wrong with the model.
    assert row["non_finite"] == row["catastrophic_failure"] == 0


@pytest.mark.conformance
def test_where_all_are_rejected_loss_and_accuracy_are_no_numbers(caplog):
    for _ in both_contexts():
        caplog.clear()
        result = run(with_bad(*CLIENTS))
        [row] = result.rows
        assert_is_of_nobody(row)
        assert row["client_work/rejected_clients"] == 3
        [warned] = warnings(caplog)
        assert "no client's update is finite, and the model stays as it is" in warned
        for name in CLIENTS:
            assert f"client {name!r}, example 2, is not finite" in warned
        assert "Suspect the data" in warned


@pytest.mark.no_smoke
def test_where_one_is_rejected_the_others_count_and_it_is_named_once(caplog):
    result = run(with_bad("client_1", value=np.inf), rounds=3)
    for row in result.rows:
        assert math.isfinite(row["train_loss"])
        assert row["client_work/rejected_clients"] == 1
    assert warnings(caplog) == [
        "Round 1: 1 of 3 clients were rejected, because an update is not finite. "
        "Suspect the data: client 'client_1', example 2, is not finite."
    ]


def test_it_is_told_once_of_a_run_in_two_programs(caplog, tmp_path):
    run(with_bad("client_1"), rounds=1, output_dir=tmp_path)
    caplog.clear()
    run(with_bad("client_1"), rounds=3, output_dir=tmp_path)
    assert warnings(caplog) == []


def test_data_that_are_finite_are_not_suspected(caplog):
    clients = {name: (1e30 * x, y) for name, (x, y) in CLIENTS.items()}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    run(train, rate=1e30)
    [warned] = warnings(caplog)
    assert "Take a smaller rate, or a gradient_clipping_norm." in warned
    assert "Suspect" not in warned


def test_an_empty_cohort_is_a_round_of_nobody():
    begin = models.fed_avg(RATE).initialize()
    result = run(
        with_bad(),
        rounds=2,
        cohort_size=None,
        sampling=lambda _: [],
        initial_state=begin,
    )
    for row in result.rows:
        assert_is_of_nobody(row)
        assert row["cohort_size"] == 0
    for old, new in zip(
        begin.global_model_weights.trainable,
        result.model_weights.trainable,
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)


def test_such_rounds_are_read_back_and_are_gaps(tmp_path):
    def sample(round_number):
        return [] if round_number == 1 else list(CLIENTS)

    options = {"rounds": 3, "cohort_size": None, "sampling": sample}
    whole = run(with_bad(), **options, output_dir=tmp_path)
    _, rows = simulation.read_rows(tmp_path / "metrics.csv")
    assert math.isnan(rows[1]["train_accuracy"])
    assert math.isfinite(rows[2]["train_accuracy"])
    again = run(with_bad(), **options, output_dir=tmp_path)
    assert [repr(row) for row in again.rows] == [repr(row) for row in whole.rows]
    [line] = again.plot("train_accuracy").get_lines()
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("row", "nobody"),
    [
        ({"train_num_examples": 0, "cohort_size": 2}, True),
        ({"train_num_examples": 3, "cohort_size": 2}, False),
        ({"cohort_size": 0}, True),
        ({"cohort_size": 2}, False),
        ({"cohort_size": 2, "client_work/rejected_clients": 2}, True),
        ({"cohort_size": 2, "client_work/rejected_clients": 1}, False),
        ({}, False),
    ],
)
def test_when_nobody_counted(row, nobody):
    assert failures.nobody_counted(row) == nobody


def test_numbers_of_nobody_stay():
    row = {"round": 3, "train_loss": 0.0, "train_num_batches": 0, "seconds": 0.5}
    found = metrics.of_nobody(row)
    assert math.isnan(found.pop("train_loss"))
    assert found == {"round": 3, "train_num_batches": 0, "seconds": 0.5}


@pytest.mark.parametrize(
    ("scale", "rate"), tiers.first([1], [(1e15, 1e13), (1.0, 1e29)])
)
def test_a_norm_that_grows_a_thousandfold_is_told(scale, rate, caplog):
    # One step each: a second one would end in what is not finite.
    clients = {name: (scale * x, y) for name, (x, y) in CLIENTS.items()}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=8)
    weights = run(train, rate=rate).model_weights.trainable
    norm = math.sqrt(sum(np.sum(np.asarray(w, float) ** 2) for w in weights))
    assert norm > 1e27
    [warned] = [text for text in warnings(caplog) if "norm of the model" in text]
    assert "norm of the model has grown from 1." in warned
    assert f" to {norm:.3g}. " in warned


def test_a_norm_that_grows_as_learning_does_is_not_told(caplog):
    run(with_bad(), rounds=3, rate=1.0)
    assert warnings(caplog) == []


@pytest.mark.conformance
def test_native_processes_of_tff_have_such_rounds_too():
    built = tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
    )
    result = run_training(built, with_bad(), rounds=1, sampling=lambda _: [])
    assert math.isnan(result.rows[0]["train_loss"])
