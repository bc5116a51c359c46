import math
import types

import ml_dtypes
import numpy as np
import pytest

from tests import models
from tff_drift import algorithms, simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.records import failures


@pytest.mark.parametrize(
    ("previous", "now", "expected"),
    [
        (0.8, 0.4, True),  # Exactly half.
        (0.8, 0.41, False),
        (0.8, 0.0, True),
        (0.4, 0.8, False),
        (0.0, 0.0, False),
        (None, 0.1, False),
        (0.8, None, False),
        (0.8, math.nan, False),
    ],
)
def test_catastrophic_means_half_or_less(previous, now, expected):
    assert failures.is_catastrophic(previous, now) is expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_loss_or_weight(bad):
    good = [np.zeros(3, np.float32), np.array([1], np.int64)]
    norm = failures.weights_norm(good)
    assert norm == 0
    assert not failures.is_non_finite(1.0, norm)
    assert not failures.is_non_finite(None, failures.weights_norm(()))
    assert failures.is_non_finite(bad, norm)
    worse = failures.weights_norm([*good, np.array([0, bad], np.float32)])
    assert failures.is_non_finite(1.0, worse)


@pytest.mark.parametrize(
    ("leaves", "norm"),
    [
        ([np.array([3, 4], np.float32), np.array([[12.0]])], 13.0),
        # Whose squares are beyond the dtype.
        ([np.array([3e30, 4e30], np.float32)], 5e30),
        ([np.array([3e200, 4e200])], 5e200),
        ([np.array([300, 400], np.float16)], 500.0),
        ([np.array([3, 4], ml_dtypes.bfloat16)], 5.0),
        ([np.array([3 + 4j])], 5.0),
        ([np.array([7], np.int32)], 0.0),
    ],
)
def test_the_norm_of_a_model(leaves, norm):
    assert failures.weights_norm(leaves) == pytest.approx(norm, rel=1e-6)


def test_the_first_rejection_and_rounds_that_leave_all_out_are_warned_of_once(caplog):
    watch = callbacks.FailureWatch()
    run = types.SimpleNamespace(rows=[], cohort=(), state=(), train=None)
    watch.before_training(run)
    for number, rejected in enumerate([2, 3, 3, 0, 3], 1):
        row = {
            "round": number,
            "cohort_size": 3,
            "client_work/rejected_clients": rejected,
        }
        watch.after_round(number, (), row)
        run.rows.append(row)
    warned = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in warned] == ["Round 1", "Round 2", "Round 5"]
    assert "2 of 3 clients were rejected" in warned[0]
    assert "no client's update is finite" in warned[1]


def test_rounds_whose_step_is_not_finite_are_warned_of_once(caplog):
    clients = dict(zip("abc", models.client_arrays([5, 8, 6]), strict=True))
    result = simulation.run_training(
        # The clients' mean change is in the thousands.
        algorithms.build_fed_avg(models.softmax_regression, 1e4, 3e38),
        simulation.ClientDatasets.from_arrays(clients, batch_size=4),
        rounds=2,
        cohort_size=3,
    )
    assert [row["finalizer/update_non_finite"] for row in result.rows] == [1, 1]
    [warned] = [each.getMessage() for each in caplog.records if each.levelno >= 30]
    assert warned.startswith("Round 1: the mean of the updates or the new model is not")


@pytest.mark.parametrize("row", [{"cohort_size": 0}, {"train_num_examples": 0}])
def test_the_mean_of_nobody_is_not_warned_of(row, caplog):
    watch = callbacks.FailureWatch()
    run = types.SimpleNamespace(rows=[], cohort=(), state=(), train=None)
    watch.before_training(run)
    watch.after_round(1, (), {"finalizer/update_non_finite": 1, **row})
    assert not caplog.records


def test_failures_are_read_from_rows():
    rows = [
        {"round": 0},
        {"round": 1, "catastrophic_failure": 0, "non_finite": 0},
        {"round": 2, "catastrophic_failure": 1, "non_finite": 0},
        {"round": 3, "catastrophic_failure": 1, "non_finite": 1},
    ]
    found = failures.failures_of(rows)
    assert found == [
        failures.Failure(2, "catastrophic_failure"),
        failures.Failure(3, "catastrophic_failure"),
        failures.Failure(3, "non_finite"),
    ]
    assert str(found[0]) == "Round 2: the training accuracy fell to half or less."
