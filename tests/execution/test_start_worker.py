"""The command that starts a worker: it says so, it serves, it ends when told to."""

import signal
import socket
import subprocess
import sys

import numpy as np
import portpicker
import pytest

from tests.execution.local.support import call
from tff_drift import compat, execution
from tff_drift.execution import start_worker


def start(port):
    return subprocess.Popen(
        [
            sys.executable,
            *("-m", "tff_drift.execution.start_worker"),
            *(f"--port={port}", "--max_concurrent_clients=1"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.whole_programs
def test_it_serves_until_it_is_told_to_end():
    port = portpicker.pick_unused_port()
    program = start(port)
    assert program.stdout.readline() == (
        f"TFF's worker listens on port {port} and trains 1 client at a time. Ctrl-C "
        "ends it.\n"
    )

    @compat.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
    def total(values):
        return compat.federated_sum(values)

    context = execution.create_remote_execution_context([f"localhost:{port}"])
    assert call(context, total, [1, 2, 39]) == 42
    program.send_signal(signal.SIGTERM)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0
    assert "Traceback" not in errors
    start_worker.check_port(port)


def test_a_port_in_use_is_an_error(capsys):
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        before = signal.getsignal(signal.SIGTERM)
        assert start_worker.main([f"--port={port}"]) == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert f"Port {port} cannot be listened on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["--port=0"], ["--port=x"], ["--port=1", "--max_concurrent_clients=0"]],
)
def test_bad_arguments_are_refused(words, capsys):
    with pytest.raises(SystemExit) as error:
        start_worker.main(words)
    assert error.value.code == 2
    assert "argument" in capsys.readouterr().err
