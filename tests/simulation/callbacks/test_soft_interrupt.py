"""Ctrl-C and SIGTERM end a run after the round in progress."""

import signal
import threading

import pytest

from tests.simulation import fakes
from tff_drift.simulation import OutputDir, read_rows, run_training
from tff_drift.simulation.callbacks import SoftInterrupt
from tff_drift.simulation.records.run_directory import RunDirectory

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(params=SIGNALS)
def number(request):
    return request.param


def _expect(number):
    error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    return pytest.raises(error)


def _train(process, interrupt, folder, rounds=5):
    return run_training(
        process,
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=3,
        callbacks=[interrupt],
        output_dir=OutputDir(folder, rounds_per_checkpoint=100),
    )


def test_the_round_ends_and_a_checkpoint_is_written(number, tmp_path, capfd):
    def press(round_number):
        if round_number == 2:
            signal.raise_signal(number)

    process = fakes.AveragingProcess()
    process.before_round = press
    with _expect(number) as caught:
        _train(process, SoftInterrupt(), tmp_path)
    if number == signal.SIGTERM:
        assert caught.value.code == 143
    assert process.rounds_run == [1, 2, 3]
    assert [row["round"] for row in read_rows(tmp_path / "metrics.csv")[1]] == [1, 2, 3]
    assert "this round is finished first" in capfd.readouterr().err
    again = fakes.AveragingProcess()
    result = _train(again, SoftInterrupt(), tmp_path)
    assert again.rounds_run == [4, 5]
    assert result.stop_reason is None


def test_a_signal_before_the_first_round_is_not_lost(number, tmp_path):
    process = fakes.AveragingProcess()
    with _expect(number), SoftInterrupt() as interrupt:
        signal.raise_signal(number)
        _train(process, interrupt, tmp_path)
    assert process.rounds_run == []


def test_a_signal_after_the_initial_model_is_kept_is_not_lost(
    number, tmp_path, monkeypatch
):
    save = RunDirectory.save

    def save_and_press(self, state):
        save(self, state)
        if state.rounds_completed == 0:
            signal.raise_signal(number)

    monkeypatch.setattr(RunDirectory, "save", save_and_press)
    process = fakes.AveragingProcess()
    with _expect(number):
        _train(process, SoftInterrupt(), tmp_path)
    assert process.rounds_run == []
    assert _train(process, SoftInterrupt(), tmp_path).stop_reason is None
    assert process.rounds_run == [1, 2, 3, 4, 5]


def test_a_signal_in_the_last_round_does_not_cost_the_result(number, tmp_path):
    process = fakes.AveragingProcess()
    process.before_round = lambda round_number: signal.raise_signal(number)
    interrupt = SoftInterrupt()
    result = _train(process, interrupt, tmp_path, rounds=1)
    assert result.stop_reason is None
    # Whoever has more to do asks.
    with _expect(number):
        interrupt.check()


def test_the_second_signal_stops_at_once(number):
    with SoftInterrupt():
        signal.raise_signal(number)
        with _expect(number):
            signal.raise_signal(number)


def test_the_usual_handlers_come_back(number):
    before = signal.getsignal(number)
    with SoftInterrupt():
        assert signal.getsignal(number) != before
    assert signal.getsignal(number) == before


def test_an_ignored_signal_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with SoftInterrupt() as interrupt:
            signal.raise_signal(number)
            interrupt.check()
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_in_another_thread_it_does_nothing(tmp_path):
    found = []

    def train():
        found.append(_train(fakes.AveragingProcess(), SoftInterrupt(), tmp_path))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found[0].totals.rounds == 5


def test_it_may_be_given_to_another_run_afterwards(number, tmp_path):
    process = fakes.AveragingProcess()
    process.before_round = lambda round_number: signal.raise_signal(number)
    interrupt = SoftInterrupt()
    with _expect(number):
        _train(process, interrupt, tmp_path)
    assert process.rounds_run == [1]
    process.before_round = lambda round_number: None
    assert _train(process, interrupt, tmp_path).stop_reason is None
    assert process.rounds_run == [1, 2, 3, 4, 5]
