"""The native context's worker: it computes, it dies with us, it says why."""

import gc
import os
import signal
import subprocess
import textwrap

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.forks.programs import PATIENCE, Popen, wait_until
from tff_drift import _tff_exit, compat, execution
from tff_drift.execution import worker as worker_lib

pytestmark = pytest.mark.usefixtures("worker")

PROLOGUE = """
import os, sys, time
import numpy as np
import tensorflow_federated as tff
import tff_drift
from tff_drift import compat, execution
from tff_drift.execution import worker

workers = []
start = worker.Worker.__init__
def remember(self, *arguments):
    start(self, *arguments)
    workers.append(self)
worker.Worker.__init__ = remember

@compat.tf_computation(np.int32)
def increment(value):
    return value + 1
"""


def start_program(code, *arguments):
    """Starts a Python program whose output is a pipe."""
    return Popen(
        ["-c", PROLOGUE + textwrap.dedent(code), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_running(pid):
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_ended(pid):
    wait_until(lambda: not is_running(pid), f"process {pid} ends")


def test_computes_on_clients_and_server():
    @compat.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
    def total(values):
        return compat.federated_sum(values)

    assert total([1, 2, 39]) == 42


@pytest.mark.parametrize("ending", ["exit", "kill"])
def test_the_worker_ends_with_its_parent_and_lets_go_of_the_pipe(ending):
    program = start_program(
        """
        execution.set_native_execution_context()
        assert increment(1) == 2
        print(workers[0].pid, flush=True)
        if sys.argv[1] == "kill":
            time.sleep(600)
        """,
        ending,
    )
    worker_pid = int(program.stdout.readline())
    if ending == "kill":
        assert is_running(worker_pid)
        program.send_signal(signal.SIGKILL)
    # The pipe ends only when no process holds it any more.
    _, errors = program.communicate(PATIENCE)
    wait_until_ended(worker_pid)
    if ending == "exit":
        assert program.returncode == 0
        assert "Traceback" not in errors


def test_a_program_that_ignores_interrupts_leaves_no_traceback_at_exit():
    # As in the background of a shell script; TFF's worker inherits it.
    program = start_program(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "assert increment(1) == 2"
    )
    output, errors = program.communicate(PATIENCE)
    assert program.returncode == 0
    assert output == ""
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@pytest.mark.parametrize("kind", ["local", "native"])
def test_a_program_that_ignores_interrupts_replaces_tffs_own_context(kind):
    program = start_program(
        """
        import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
        from tff_drift import _tff_exit
        native = tff.backends.native
        native.set_sync_local_cpp_execution_context()
        held = compat.default_context()
        assert increment(1) == 2
        (kept,) = _tff_exit.child_workers()
        replace = getattr(execution, f"set_{sys.argv[1]}_execution_context")
        replace()
        assert increment(2) == 3
        assert kept in _tff_exit.child_workers()
        with tff.framework.get_context_stack().install(held):
            assert increment(3) == 4
        before = _tff_exit.child_workers()
        native.set_sync_local_cpp_execution_context()
        assert increment(4) == 5
        (other,) = _tff_exit.child_workers() - before
        replace()
        assert kept in _tff_exit.child_workers()
        assert other not in _tff_exit.child_workers()
        assert increment(5) == 6
        """,
        kind,
    )
    _, errors = program.communicate(PATIENCE)
    assert program.returncode == 0, errors
    assert "Traceback" not in errors


def test_the_worker_ends_with_its_context():
    before = _tff_exit.child_workers()
    context = execution.create_native_execution_context()
    with tff.framework.get_context_stack().install(context):
        assert compat.tf_computation(lambda: 42)() == 42
    (own,) = _tff_exit.child_workers() - before
    del context
    gc.collect()
    wait_until_ended(own)


def test_a_worker_that_dies_gives_an_error_and_no_hang():
    context = execution.create_native_execution_context()

    @compat.tf_computation(np.int32)
    def increment(value):
        return value + 1

    started = []
    start = worker_lib.Worker.__init__

    def remember(self, *arguments):
        start(self, *arguments)
        started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_lib.Worker, "__init__", remember)
        stack = tff.framework.get_context_stack()
        with stack.install(context):
            assert increment(1) == 2
            os.kill(started[0].pid, signal.SIGKILL)
            wait_until_ended(started[0].pid)
            with pytest.raises(execution.WorkerError, match="exit code -9"):
                increment(1)


def test_a_worker_that_cannot_start_is_reported_with_its_output(monkeypatch, tmp_path):
    script = tmp_path / "worker_binary"
    script.write_text("#!/bin/sh\necho no such port >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(worker_lib, "worker_binary", lambda: script)
    context = execution.create_native_execution_context(startup_seconds=20)

    @compat.tf_computation
    def one():
        return np.int32(1)

    installed = tff.framework.get_context_stack().install(context)
    with (
        installed,
        pytest.raises(execution.WorkerError, match=r"exit code 3.*no such port"),
    ):
        one()


def test_a_worker_that_never_answers_is_given_up(monkeypatch, tmp_path):
    script = tmp_path / "worker_binary"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(worker_lib, "worker_binary", lambda: script)
    context = execution.create_native_execution_context(startup_seconds=0.5)

    @compat.tf_computation
    def two():
        return np.int32(2)

    installed = tff.framework.get_context_stack().install(context)
    with installed, pytest.raises(execution.WorkerError, match=r"within 0\.5 seconds"):
        two()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_concurrent_computation_calls": -1}, "max_concurrent_computation_calls"),
        ({"startup_seconds": 0.0}, "startup_seconds"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        execution.create_native_execution_context(**arguments)
