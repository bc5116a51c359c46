"""A run that is killed and restarted equals one that is not.

Set TFF_DRIFT_KILLS to the number of kills wanted; 1 by default, so that the test
stays quick: tests/reliability counts hundreds.
"""

import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from tests import tiers
from tests.forks.programs import Popen, wait_until
from tests.simulation import kill_target
from tff_drift import client_states
from tff_drift.simulation import read_rows, without_timing
from tff_drift.simulation.records.checkpoint import load_checkpoint

pytestmark = pytest.mark.no_smoke

ROOT = pathlib.Path(__file__).parents[2]


def _start(output_dir, log, algorithm="fed_adam"):
    # The log goes to a file: a pipe would wait for the worker that holds it too.
    return Popen(
        ["-m", kill_target.__name__, str(output_dir), algorithm],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def _rounds_in(output_dir):
    try:
        rows = read_rows(output_dir / "metrics.csv")[1]
    except FileNotFoundError:
        return 0
    return max((row["round"] for row in rows), default=0)


def _wait_for_round(program, output_dir, round_, log_path):
    """Waits until the running program has written the row of a round."""
    try:
        wait_until(lambda: _rounds_in(output_dir) >= round_, f"round {round_}", program)
    except AssertionError as error:
        raise AssertionError(log_path.read_text()) from error


@pytest.fixture(params=tiers.first(["scaffold"], ["fed_adam", "scaffold"]))
def algorithm(request):
    """A method without client states, and one that keeps them on disk."""
    return request.param


def _client_states(output_dir, names):
    """The client states that a run has left on disk."""
    initial = collections.OrderedDict(control_variate=np.zeros(16, np.float32))
    folder = output_dir / "client_states"
    with client_states.DiskClientStates(folder, initial) as states:
        assert states.client_ids() == names
        return [state["control_variate"] for state in states.gather(names)]


def test_killed_and_restarted_run_equals_an_uninterrupted_one(algorithm, tmp_path):
    # What goes on, and what is whole, trains here, where TensorFlow is imported.
    whole = tmp_path / "whole"
    kill_target.train(whole, algorithm)
    seed = time.time_ns()
    print(f"The seed of the moments of the kills is {seed}.")
    choose = random.Random(seed)
    killed, log_path = tmp_path / "killed", tmp_path / "killed.log"
    span = (kill_target.ROUNDS - 5) // kill_target.KILLS
    for kill in range(kill_target.KILLS):
        # Kills are spread over the run, each at any moment of some round.
        round_ = 1 + kill * span + choose.randrange(span)
        with open(log_path, "wb") as log:
            program = _start(killed, log, algorithm)
            _wait_for_round(program, killed, round_, log_path)
            time.sleep(choose.uniform(0, 0.15))
            program.send_signal(signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL, log_path.read_text()
        print(f"Killed in round {_rounds_in(killed) + 1}.")
    kill_target.train(killed, algorithm)

    _, rows = read_rows(killed / "metrics.csv")
    _, expected = read_rows(whole / "metrics.csv")
    assert len(expected) == kill_target.ROUNDS + 1
    assert list(map(without_timing, rows)) == list(map(without_timing, expected))
    found = load_checkpoint(killed / "checkpoint.npz").leaves["server_state"]
    wanted = load_checkpoint(whole / "checkpoint.npz").leaves["server_state"]
    assert list(found) == list(wanted)
    for path, leaf in wanted.items():
        assert found[path].tobytes() == leaf.tobytes(), path
    # The weights did move, so that the comparison says something.
    assert np.any(wanted["global_model_weights/trainable/1"] != 0)
    if algorithm == "scaffold":
        names = [f"client_{index}" for index in range(6)]
        for one, other in zip(
            _client_states(killed, names), _client_states(whole, names), strict=True
        ):
            assert one.tobytes() == other.tobytes()
            assert np.any(one != 0)


@pytest.mark.conformance
def test_interrupt_stops_after_a_round_with_one_line(tmp_path):
    output_dir, log_path = tmp_path / "run", tmp_path / "log"
    with open(log_path, "wb") as log:
        program = _start(output_dir, log)
        _wait_for_round(program, output_dir, 4, log_path)
        program.send_signal(signal.SIGINT)
        rounds_then = _rounds_in(output_dir)
        wait_until(lambda: program.poll() is not None, "the end")
    # The fourth row is written a moment before the fourth round counts as done.
    [kept] = re.findall(r"continue after round (\d+) from", log_path.read_text())
    saved = load_checkpoint(output_dir / "checkpoint.npz")
    assert saved.rounds_completed == int(kept) >= 3
    # At most the round in progress was finished first.
    assert int(kept) <= rounds_then + 1
