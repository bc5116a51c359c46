"""A Ctrl-C that Python drops ends a run all the same."""

import signal
import sys
import threading

import pytest

from tests.simulation import fakes
from tff_drift.simulation import OutputDir, read_rows, run_training
from tff_drift.simulation.callbacks import PeriodicEvaluation
from tff_drift.simulation.loop.interrupts import Interrupts


class _Presses:
    """Presses Ctrl-C in its destructor, where Python drops the exception."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def dropped(monkeypatch):
    """What Python has dropped: the types of exceptions."""
    types = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda unraisable: types.append(unraisable.exc_type)
    )
    return types


def _press_in(round_):
    def before_round(rounds_completed):
        if rounds_completed + 1 == round_:
            _Presses()

    process = fakes.AveragingProcess()
    process.before_round = before_round
    return process


def _train(process, folder, **options):
    return run_training(
        process,
        fakes.client_datasets(),
        rounds=5,
        cohort_size=3,
        output_dir=OutputDir(folder, rounds_per_checkpoint=100),
        **options,
    )


# The last one, too: another run may follow.
@pytest.mark.parametrize("round_", [1, 3, 5])
def test_a_run_ends_after_the_round_in_which_an_interrupt_was_dropped(
    dropped, tmp_path, round_
):
    process = _press_in(round_)
    with pytest.raises(KeyboardInterrupt):
        _train(process, tmp_path)
    assert dropped == [KeyboardInterrupt]
    until_then = list(range(1, round_ + 1))
    assert process.rounds_run == until_then
    _, rows = read_rows(tmp_path / "metrics.csv")
    assert [row["round"] for row in rows] == until_then
    again = fakes.AveragingProcess()
    assert _train(again, tmp_path).stop_reason is None
    assert again.rounds_run == list(range(round_ + 1, 6))


def test_no_round_begins_after_one_was_dropped_while_the_initial_model_is_evaluated(
    dropped, tmp_path
):
    def evaluate(weights):
        _Presses()
        return {"accuracy": 0.5}

    process = fakes.AveragingProcess()
    evaluation = PeriodicEvaluation(evaluate, rounds_per_evaluation=5)
    with pytest.raises(KeyboardInterrupt):
        _train(process, tmp_path, callbacks=[evaluation])
    assert dropped == [KeyboardInterrupt]
    assert process.rounds_run == []


def test_a_handler_of_the_programs_own_stays(tmp_path):
    pressed = []
    own = lambda number, frame: pressed.append(number)  # noqa: E731
    before = signal.signal(signal.SIGINT, own)
    try:
        result = _train(_press_in(3), tmp_path)
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]
    assert result.stop_reason is None


def test_one_that_arrives_is_raised_where_it_came():
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_within_another_tells_it_too(dropped):
    with Interrupts() as outer:
        with Interrupts() as inner:
            _Presses()
            with pytest.raises(KeyboardInterrupt):
                inner.check()
        with pytest.raises(KeyboardInterrupt):
            outer.check()
    assert dropped == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_run_as_before(tmp_path):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(_train(fakes.AveragingProcess(), tmp_path))
    )
    thread.start()
    thread.join()
    assert results[0].totals.rounds == 5
