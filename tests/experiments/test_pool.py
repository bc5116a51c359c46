"""Processes that train side by side end when the program that began them ends."""

import os
import pathlib
import signal
import subprocess
import sys

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
with pool.open_pool(Placement(processes=1), 1) as opened:
    pid = opened.executor.submit(os.getpid).result()
    opened.executor.submit(time.sleep, 600)
    print(pid, flush=True)
    while True:
        time.sleep(0.1)
"""


# Of the program alone: a terminal's Ctrl-C comes to all of them.
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_end_with_the_program_that_began_them(sent):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell has programs in the background ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
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
