"""Programs whose processes are killed, stopped or interrupted: `make soak`.

Every one of them starts several programs with TensorFlow. What is left is compared bit
for bit with what an undisturbed program leaves.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.soak import endings, program, results
from tff_drift import _tff_exit

pytestmark = pytest.mark.soak
PATIENCE = 300  # Seconds.
ROOT = pathlib.Path(__file__).parents[2]


class Program:
    """A training of `program.py` in a process of its own."""

    def __init__(self, folder, method, *flags, store="ram"):
        self.folder = folder
        words = [sys.executable, "-m", program.__name__, folder, method, store, *flags]
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def wait_for_round(self, number):
        for line in self._process.stdout:
            if line.strip() == f"round {number}":
                return
        pytest.fail(self._process.stderr.read())

    def send(self, number):
        self._process.send_signal(number)

    def end(self):
        """Waits until it ends; returns its exit status and what it said of errors."""
        _, errors = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, errors

    def worker(self):
        """The process number of its own native worker."""
        binary = _tff_exit.worker_path().resolve()
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                if parent == self.pid and (status.parent / "exe").resolve() == binary:
                    return int(status.parent.name)
            except OSError:  # It has ended meanwhile.
                continue
        return pytest.fail("The program has no worker.")


def _trained(folder, method, *flags):
    training = Program(folder, method, *flags)
    status, errors = training.end()
    assert status == 0, errors
    return endings.read(folder)


def test_a_native_worker_that_is_killed_under_its_trainer(tmp_path):
    expected = _trained(tmp_path / "whole", "scaffold", "--native")
    training = Program(tmp_path / "killed", "scaffold", "--native")
    training.wait_for_round(5)
    os.kill(training.worker(), signal.SIGKILL)
    status, errors = training.end()
    assert status == 1
    assert "WorkerError" in errors
    found = _trained(tmp_path / "killed", "scaffold", "--native")
    assert endings.differences(found, expected) == []
    results.note(
        "native worker killed under its trainer",
        "WorkerError; resumed with the bits of an undisturbed run",
    )


def test_a_native_worker_that_is_stopped_under_its_trainer_and_goes_on(tmp_path):
    expected = _trained(tmp_path / "whole", "scaffold", "--native")
    training = Program(tmp_path / "stopped", "scaffold", "--native")
    training.wait_for_round(5)
    worker = training.worker()
    os.kill(worker, signal.SIGSTOP)
    time.sleep(3)
    os.kill(worker, signal.SIGCONT)
    status, errors = training.end()
    assert status == 0, errors
    found = endings.read(tmp_path / "stopped")
    assert endings.differences(found, expected) == []
    results.note(
        "native worker stopped for 3 seconds under its trainer",
        "the run ends with the bits of an undisturbed one",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_two_signals_in_a_row(tmp_path, number, pause):
    expected = _trained(tmp_path / "whole", "adabest")
    training = Program(tmp_path / "run", "adabest")
    training.wait_for_round(5)
    training.send(number)
    time.sleep(pause)
    training.send(number)
    status, _ = training.end()
    # The usual end of a program, or the second came when the first had ended it.
    assert status in (130, 143, 1, -signal.SIGINT, -signal.SIGTERM)
    found = _trained(tmp_path / "run", "adabest")
    assert endings.differences(found, expected) == []
    name = signal.Signals(number).name
    results.note(
        f"{name} twice, {pause:g} seconds apart",
        f"exit status {status}; resumed with the bits of an undisturbed run",
    )


def test_a_child_that_is_forked_after_use_and_exits_harms_nobody(tmp_path):
    code = """
import os
import numpy as np
from tff_drift import compat, execution
execution.set_native_execution_context()

@compat.tf_computation(np.int32)
def increment(value):
    return value + 1

assert increment(1) == 2
child = os.fork()
if child == 0:
    raise SystemExit(0)  # With everything that is done at exit.
assert os.waitpid(child, 0)[1] == 0
assert increment(2) == 3
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        timeout=PATIENCE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    results.note("fork after use, the child exits", "the parent goes on")


def _search(folder):
    words = ["client_learning_rate=log:0.01:1:2", "--sampler=tpe", "--points=4"]
    words += ["--task=digits", "--algorithm=fed_avg", "--rounds=4", "--processes=1"]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "experiments",
            "sweep",
            *words,
            f"--output_dir={folder}",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_search_that_is_killed_again_and_again_finds_the_same_points(tmp_path):
    start = time.monotonic()
    assert _search(tmp_path / "whole").wait(PATIENCE) == 0
    whole = time.monotonic() - start
    kills, choose = 0, random.Random()
    for _ in range(20):
        search = _search(tmp_path / "killed")
        patience = PATIENCE if kills == 6 else choose.uniform(0.3, 0.6) * whole
        try:
            assert search.wait(patience) == 0
            break
        except subprocess.TimeoutExpired:
            search.send_signal(choose.choice([signal.SIGKILL, signal.SIGTERM]))
            search.wait()
            kills += 1
    table = "points.csv"
    assert (tmp_path / "killed" / table).read_text() == (
        tmp_path / "whole" / table
    ).read_text()
    assert kills
    results.note(
        "a search by TPE, killed again and again by SIGKILL or SIGTERM",
        f"{kills} kills; the points and scores of an undisturbed one",
    )
