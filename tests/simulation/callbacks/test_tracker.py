"""What is common to trackers, with one that may fail."""

import logging
import os
import signal
import sys
import threading

import pytest

from tests.simulation import fakes
from tff_drift import simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.callbacks import MLflowTracker, Tracker, WandbTracker
from tff_drift.simulation.loop.callbacks import tracker as tracker_module


class Server:
    """What a tracker keeps; it fails while it is down."""

    def __init__(self):
        self.rounds = []
        self.settings = {}
        self.opened = []
        self.outcomes = []
        self.files = []
        self.is_down = False
        self.answers = threading.Event()
        self.answers.set()

    def call(self):
        assert self.answers.wait(30)
        if self.is_down:
            raise ConnectionError("nobody answers.")


class FakeTracker(Tracker):
    title, extra = "The server", "fake"

    def __init__(self, server):
        super().__init__()
        self._server = server

    def check(self):
        pass

    def _open(self, known, settings, name):
        self._server.call()
        self._server.opened.append((known, name))
        self._server.settings = settings
        return {"id": 7}, max(self._server.rounds, default=-1)

    def _log(self, rows):
        self._server.call()
        self._server.rounds += [row["round"] for row in rows]

    def _log_files(self, paths):
        self._server.files += [path.name for path in paths]

    def _close(self, outcome, stop_reason):
        self._server.call()
        self._server.outcomes.append((outcome, stop_reason))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(tracker_module, "_BETWEEN_CALLS", 0.0)


def train(server, folder, rounds=4, process=None):
    return simulation.run_training(
        process or fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=2,
        callbacks=[FakeTracker(server)],
        output_dir=folder,
    )


def in_rounds(actions):
    process = fakes.AveragingProcess()
    process.before_round = lambda number: actions.get(number, lambda: None)()
    return process


def test_a_run_and_its_extension(tmp_path):
    server = Server()
    train(server, tmp_path / "a" / "b")
    train(server, tmp_path / "a" / "b", rounds=6)
    assert server.opened == [(None, "a/b"), ({"id": 7}, "a/b")]
    assert server.rounds == [1, 2, 3, 4, 5, 6]
    assert server.outcomes == [("finished", None)] * 2
    assert server.files == ["config.json", "metrics.csv", "curves.png"] * 2
    assert server.settings["rounds"] == 6
    assert server.settings["cohort_size"] == 2


class WithoutMetrics(fakes.AveragingProcess):
    """A process whose model measures nothing that could be drawn."""

    def next(self, state, client_data):
        output = super().next(state, client_data)
        train = output.metrics["client_work"]["train"]
        del train["accuracy"], train["loss"]
        return output


def test_a_run_of_which_nothing_can_be_drawn_is_told_whole(tmp_path, caplog):
    server = Server()
    with caplog.at_level(logging.WARNING):
        train(server, tmp_path, process=WithoutMetrics())
    assert server.outcomes == [("finished", None)]
    assert server.files == ["config.json", "metrics.csv"]
    assert "failed" not in caplog.text


def test_training_does_not_wait_for_a_slow_server(tmp_path):
    server = Server()

    def stall():
        server.answers.clear()

    train(server, tmp_path, process=in_rounds({1: stall, 3: server.answers.set}))
    assert server.rounds == [1, 2, 3, 4]


def test_a_server_that_is_down_for_a_while(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tracker_module, "_AFTER_A_FAILURE", 0.0)
    server = Server()
    actions = {
        1: lambda: setattr(server, "is_down", True),
        3: lambda: setattr(server, "is_down", False),
    }
    with caplog.at_level(logging.WARNING):
        train(server, tmp_path, process=in_rounds(actions))
    assert server.rounds == [1, 2, 3, 4]
    assert "The server failed, and is tried again later: nobody answers." in caplog.text


def test_what_a_server_missed_is_told_when_the_run_is_started_again(tmp_path, caplog):
    server = Server()
    actions = {2: lambda: setattr(server, "is_down", True)}
    with caplog.at_level(logging.WARNING):
        result = train(server, tmp_path, process=in_rounds(actions))
    assert result.totals.rounds == 4
    assert len(simulation.read_rows(tmp_path / "metrics.csv")[1]) == 4
    assert server.outcomes == []
    assert f"They are kept in '{tmp_path}': the same run started" in caplog.text
    server.is_down = False
    process = fakes.AveragingProcess()
    train(server, tmp_path, process=process)
    assert process.rounds_run == []
    assert server.rounds == [1, 2, 3, 4]
    assert server.outcomes == [("finished", None)]


def test_a_server_that_is_down_at_first_is_an_error(tmp_path):
    server = Server()
    server.is_down = True
    process = fakes.AveragingProcess()
    with pytest.raises(ValueError, match=r"The server cannot start the run: nobody"):
        train(server, tmp_path, process=process)
    assert process.rounds_run == []
    server.is_down = False
    train(server, tmp_path, process=process)
    assert server.rounds == [1, 2, 3, 4]


def test_outcomes(tmp_path):
    server = Server()

    def fail():
        raise RuntimeError("x")

    with pytest.raises(RuntimeError):
        train(server, tmp_path / "failed", process=in_rounds({2: fail}))
    assert server.outcomes == [("failed", None)]
    interrupt = callbacks.SoftInterrupt()
    with pytest.raises(SystemExit):
        simulation.run_training(
            in_rounds({2: lambda: signal.raise_signal(signal.SIGTERM)}),
            fakes.client_datasets(),
            rounds=6,
            cohort_size=2,
            callbacks=[interrupt, FakeTracker(server)],
        )
    assert server.outcomes[1:] == [("killed", "SIGTERM")]


@pytest.mark.parametrize("kind", ["{", "[" * 100_000, "[3]", "pipe", "zero"])
def test_a_damaged_file_of_trackers(tmp_path, kind):
    train(Server(), tmp_path)
    path = tmp_path / "trackers.json"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.write_text(kind)
    with pytest.raises(ValueError, match=r"trackers.json is damaged.*Remove it"):
        train(Server(), tmp_path)


def test_track_folder_refuses_what_holds_no_run(tmp_path):
    with pytest.raises(FileNotFoundError):
        FakeTracker(Server()).track_folder(tmp_path)
    with pytest.raises(TypeError, match="folder must be a path"):
        FakeTracker(Server()).track_folder(3)


@pytest.mark.parametrize(
    ("package", "build"), [("mlflow", MLflowTracker), ("wandb", WandbTracker)]
)
def test_without_its_package_the_extra_is_named(monkeypatch, tmp_path, package, build):
    monkeypatch.setitem(sys.modules, package, None)
    process = fakes.AveragingProcess()
    with pytest.raises(ImportError, match=rf"pip install 'tff-drift\[{package}\]'"):
        simulation.run_training(
            process,
            fakes.client_datasets(),
            rounds=2,
            cohort_size=2,
            callbacks=[build()],
        )
    assert process.rounds_run == []


@pytest.mark.parametrize(
    ("build", "options", "error", "message"),
    [
        (MLflowTracker, {"experiment": 3}, TypeError, "experiment must be a string"),
        (MLflowTracker, {"tracking_uri": ""}, ValueError, "tracking_uri"),
        (WandbTracker, {"project": ""}, ValueError, "project"),
        (WandbTracker, {"mode": "off"}, ValueError, "mode must be one of"),
    ],
)
def test_bad_arguments(build, options, error, message):
    with pytest.raises(error, match=message):
        build(**options)


def test_a_tracker_that_has_begun_nothing_ends_nothing():
    server = Server()
    FakeTracker(server).after_training(None)
    result = simulation.run_training(
        fakes.AveragingProcess(), fakes.client_datasets(), rounds=1, cohort_size=2
    )
    FakeTracker(server).after_training(result)
    assert not server.outcomes
