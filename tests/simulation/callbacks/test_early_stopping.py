"""When `EarlyStopping` ends a run."""

import math

import pytest
from absl import logging

from tests.simulation import fakes
from tff_drift.simulation import run_training
from tff_drift.simulation.callbacks import Callback, EarlyStopping


class Measured(Callback):
    """Gives each round the value that is written down for it."""

    def __init__(self, values, name="test_loss"):
        self.values = values
        self.name = name

    def after_round(self, round_number, state, row):
        value = self.values.get(round_number)
        return None if value is None else {self.name: value}


def run(values, stopping, rounds=9, name="test_loss", **options):
    process = fakes.AveragingProcess()
    result = run_training(
        process,
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=2,
        callbacks=[Measured(values, name), stopping],
        **options,
    )
    return result, process.rounds_run


def in_rounds(*values):
    return dict(enumerate(values, start=1))


@pytest.mark.parametrize(
    ("values", "options", "rounds"),
    [
        (in_rounds(5, 4, 4, 4, 4, 1), {"patience": 2}, 4),
        (in_rounds(5, 4, 4, 4, 4, 1), {"patience": 3}, 5),
        (in_rounds(5, 4, 3, 2, 1, 0, -1, -2, -3), {"patience": 1}, 9),
        (in_rounds(5, 4, 5, 3, 5, 5), {"patience": 2}, 6),
        # An improvement of 0.4 is none.
        (in_rounds(5, 4.6, 4.5, 3.8), {"patience": 2, "min_change": 0.5}, 3),
        (in_rounds(1, 2, 2, 2), {"patience": 2, "higher_is_better": True}, 4),
        # Evaluated every other round.
        ({2: 4.0, 4: 5.0, 6: 5.0}, {"patience": 3}, 6),
        (in_rounds(5, math.nan, math.inf, math.nan), {"patience": 2}, 3),
        (in_rounds(math.nan, math.nan, math.nan), {"patience": 2}, 2),
    ],
)
def test_a_run_ends_when_nothing_has_improved_for_so_many_rounds(
    values, options, rounds
):
    result, trained = run(values, EarlyStopping("test_loss", **options))
    assert len(trained) == result.totals.rounds == rounds
    assert (result.stop_reason is None) == (rounds == 9)


def test_the_reason_names_the_best_round():
    result, _ = run(in_rounds(5, 4, 4, 4), EarlyStopping(patience=2))
    assert result.stop_reason == (
        "test_loss has not improved for 2 rounds: its best value, 4, is that of round 2"
    )


def test_a_run_that_has_ended_so_trains_no_further(tmp_path):
    values = in_rounds(5, 4, 4, 4, 1, 1)
    first, _ = run(values, EarlyStopping(patience=2), output_dir=tmp_path)
    again, trained = run(values, EarlyStopping(patience=2), output_dir=tmp_path)
    assert trained == []
    assert again.stop_reason == first.stop_reason
    with pytest.raises(ValueError, match=r"EarlyStopping\.patience was 2 and is now 3"):
        run(values, EarlyStopping(patience=3), output_dir=tmp_path)


def test_a_resumed_run_ends_in_the_same_round(tmp_path):
    values = in_rounds(5, 4, 4, 4, 4, 4)
    run(values, EarlyStopping(patience=3), rounds=3, output_dir=tmp_path)
    result, trained = run(values, EarlyStopping(patience=3), output_dir=tmp_path)
    assert trained == [4, 5]
    assert result.totals.rounds == 5


def test_a_metric_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="watches 'test_los', but the columns"):
        run(in_rounds(1.0), EarlyStopping("test_los"))
    with pytest.raises(ValueError, match="watches 'train_mae', but the columns"):
        run({}, EarlyStopping("train_mae"))


def test_other_columns_of_its_kind_may_come_in_rounds_without_the_metric():
    result = run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=9,
        cohort_size=2,
        callbacks=[
            Measured({1: 4.0, 4: 5.0}),
            Measured(in_rounds(1, 2, 3, 4, 5), "test_norm"),
            EarlyStopping(patience=3),
        ],
    )
    assert result.totals.rounds == 4


@pytest.mark.parametrize(
    ("metric", "patience", "number", "hint"),
    [
        ("accuracy", 3, 1, " It has 'train_accuracy'."),
        ("norm", 3, 3, ""),
        ("test_loss", 2, 2, ""),
        ("norm", 9, None, ""),
    ],
)
def test_a_metric_that_no_row_has_is_warned_of_once(
    monkeypatch, metric, patience, number, hint
):
    logged = []
    monkeypatch.setattr(
        logging, "warning", lambda message, *values: logged.append(message % values)
    )
    result, _ = run({}, EarlyStopping(metric, patience=patience), rounds=5)
    assert result.totals.rounds == 5
    expected = (
        f"EarlyStopping watches {metric!r}, which no row up to round {number} has: as "
        f"long as none has it, the run is not ended.{hint}"
    )
    assert logged == ([] if number is None else [expected])


def test_a_metric_of_some_rounds_is_not_warned_of(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda *message: logged.append(message))
    result, _ = run({1: 4.0, 5: 5.0}, EarlyStopping("norm", patience=3), name="norm")
    assert result.totals.rounds == 5
    assert logged == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"metric": 3}, TypeError, "metric must be a string"),
        ({"patience": 0}, ValueError, "patience must be at least 1"),
        ({"min_change": -1.0}, ValueError, "min_change must be a finite"),
        ({"higher_is_better": 1}, TypeError, "higher_is_better must be True"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        EarlyStopping(**options)
