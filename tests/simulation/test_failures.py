import math
import types

import numpy as np
import pytest

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
    assert not failures.is_non_finite(1.0, good)
    assert not failures.is_non_finite(None, ())
    assert failures.is_non_finite(bad, good)
    assert failures.is_non_finite(1.0, [*good, np.array([0, bad], np.float32)])


def test_rounds_that_leave_all_clients_out_are_warned_of_once(caplog):
    watch = callbacks.FailureWatch()
    run = types.SimpleNamespace(rows=[])
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
    assert [text.split(":")[0] for text in warned] == ["Round 2", "Round 5"]
    assert "no client's update is finite" in warned[0]


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
