"""Processes that train side by side end when the program that began them ends."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import pytest

from experiments.flags.errors import UserError
from experiments.flags.placement import Placement
from experiments.training import pool
from tests.forks.programs import PATIENCE, wait_until

# Of short sleeps: a signal that comes just before one does not end it.
PROGRAM = """
import os, time
from experiments.flags.placement import Placement
from experiments.training import pool
from tff_drift import programs
try:
    with pool.open_pool(Placement(processes=1), 1) as opened:
        pid = opened.executor.submit(os.getpid).result()
        opened.executor.submit(time.sleep, 600)
        print(pid, flush=True)
        while True:
            time.sleep(0.1)
except KeyboardInterrupt:
    programs.end(130)
except SystemExit as end:
    programs.end(end.code)
"""


# Of the program alone: a terminal's Ctrl-C comes to all of them.
@pytest.mark.parametrize(
    ("sent", "interrupts"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.default_int_handler),
        # A shell has programs in the background ignore Ctrl-C.
        (signal.SIGTERM, signal.SIG_IGN),
        (signal.SIGKILL, signal.default_int_handler),
    ],
)
def test_they_end_with_the_program_that_began_them(sent, interrupts):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupts),
    )
    try:
        pid = int(program.stdout.readline())
        program.send_signal(sent)
        status = program.wait(PATIENCE)
        wait_until(lambda: not is_running(pid), f"process {pid} ends")
        if sent == signal.SIGTERM:
            error = program.stderr.read()
            assert status == 143, error
            # It has ended in good order, and has left nothing behind.
            assert "leaked" not in error
    finally:
        program.kill()
        program.stdout.close()
        program.stderr.close()
        program.wait()


def finish_a_round(folder):
    """Trains as runs do: what ends it comes after the round."""
    (folder / f"began_{os.getpid()}").touch()
    try:
        while True:
            time.sleep(0.1)
    except KeyboardInterrupt:
        time.sleep(1.0)
        (folder / f"finished_{os.getpid()}").touch()
        raise


def fail():
    raise ValueError("no such data")


def found(folder, what):
    return {path.name.partition("_")[2] for path in folder.glob(f"{what}_*")}


def test_after_an_error_in_one_the_others_end_after_their_rounds(tmp_path):
    def train():
        with pool.open_pool(Placement(processes=3), most_runs=3) as opened:
            for _ in range(2):
                opened.executor.submit(finish_a_round, tmp_path)
            wait_until(lambda: len(found(tmp_path, "began")) == 2, "two train")
            opened.executor.submit(fail).result()

    with pytest.raises(ValueError, match="no such data"):
        train()
    assert found(tmp_path, "finished") == found(tmp_path, "began")


def test_what_waits_for_a_process_does_not_begin_any_more(tmp_path):
    def train():
        with pool.open_pool(Placement(processes=1), most_runs=5) as opened:
            futures = [
                opened.executor.submit(finish_a_round, tmp_path / str(number))
                for number in range(3)
            ]
            wait_until(lambda: found(tmp_path / "0", "began"), "the first trains")
            # The next is on its way to the process already.
            wait_until(futures[1].running, "the second is handed over")
            raise KeyboardInterrupt

    for number in range(3):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(KeyboardInterrupt):
        train()
    assert found(tmp_path / "0", "finished")
    assert not found(tmp_path / "1", "began") | found(tmp_path / "2", "began")


def test_what_no_signal_ends_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "_SECONDS_OF_A_ROUND", 0.2)

    def train():
        with pool.open_pool(Placement(processes=1), most_runs=1) as opened:
            opened.executor.submit(go_on_for_ever, tmp_path)
            wait_until(lambda: found(tmp_path, "began"), "it has begun")
            raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        train()
    (pid,) = found(tmp_path, "began")
    wait_until(lambda: not is_running(int(pid)), f"process {pid} ends")


def go_on_for_ever(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"began_{os.getpid()}").touch()
    while True:
        time.sleep(0.1)


def test_processes_import_without_the_notices_of_libraries(
    tmp_path, capfd, monkeypatch
):
    notice = "WARNING: All log messages before absl::InitializeLog() are written here"
    (tmp_path / "loud.py").write_text(
        f"import os\nos.write(2, b'{notice}\\nan error\\n')\ndef call(): return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loud = types.SimpleNamespace(__module__="loud", __qualname__="call")
    with pool.open_pool(Placement(processes=1), most_runs=1) as opened:
        assert opened.executor.submit(loud).result() == 3
    told = capfd.readouterr().err
    assert notice not in told
    assert "an error" in told


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("processes", "advice"),
    [(1, "ran out. The same"), (2, "ran out. Lower --processes, from 2. The same")],
)
def test_a_run_whose_process_is_killed_is_an_error_with_the_usual_cause(
    processes, advice
):
    def train():
        with pool.open_pool(Placement(processes=processes), most_runs=5) as opened:
            opened.executor.submit(kill_itself).result(PATIENCE)

    with pytest.raises(UserError, match="process of a run was killed") as error:
        train()
    assert advice in str(error.value)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended may wait for a parent to ask for its status.
    try:
        told = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return sys.platform != "linux"
    return told.rpartition(")")[2].split()[0] != "Z"
