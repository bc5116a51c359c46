"""Starts a worker for `create_remote_execution_context` on this machine.

    python -m tff_drift.execution.start_worker --port=8000

It runs until Ctrl-C or SIGTERM. The worker is TFF's own: it listens on all network
interfaces, and it runs what anybody asks of it who can reach the port.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence

import grpc

from tff_drift import system
from tff_drift.execution.remote.connection import SIGN_OF_LIFE
from tff_drift.execution.worker import Worker, WorkerError

_START_SECONDS = 60.0


def check_port(port: int) -> None:
    """Raises unless a worker can listen on a port.

    TFF's worker would share the port with whoever listens on it already, and get
    some of the calls.

    Args:
      port: The port.

    Raises:
      WorkerError: If it is in use, or not to be used by this user.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        # A port that was in use a moment ago is free.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("", port))
        except OSError as error:
            raise WorkerError(
                f"Port {port} cannot be listened on: {error.strerror}. Choose another "
                "--port."
            ) from error


def serve(port: int, max_concurrent_clients: int) -> None:
    """Runs a worker until it ends.

    Args:
      port: The port to listen on.
      max_concurrent_clients: How many clients to train at a time.

    Raises:
      KeyboardInterrupt: On Ctrl-C, once the worker is ended.
      SystemExit: On SIGTERM, once the worker is ended.
      WorkerError: If it cannot be started, or ends by itself.
    """
    check_port(port)
    worker = Worker(max_concurrent_clients, port)
    try:
        ready = threading.Event()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = channel.unary_unary(SIGN_OF_LIFE).future(b"", wait_for_ready=True)
            answer.add_done_callback(lambda _: ready.set())
            worker.wait_until(ready, _START_SECONDS)
        clients = "client" if max_concurrent_clients == 1 else "clients"
        print(
            f"TFF's worker listens on port {port} and trains {max_concurrent_clients} "
            f"{clients} at a time. Ctrl-C ends it.",
            flush=True,
        )
        worker.wait()
        raise WorkerError(worker.obituary())
    finally:
        worker.stop()


def port_number(text: str) -> int:
    """Reads the number of a port; raises a ValueError if there is none."""
    port = int(text)
    if not 0 < port < 2**16:
        raise ValueError(text)
    return port


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Has SIGTERM end the program in order, and gives the signal back afterwards.

    Yields:
      Nothing.
    """

    def end(*_: object) -> None:
        sys.exit(0)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: Its arguments; by default those of this program.

    Returns:
      The exit status: 0 after Ctrl-C or SIGTERM, 1 if the worker failed.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tff_drift.execution.start_worker",
        description="Starts a worker of TFF for tff_drift's remote execution context. "
        "It listens on all network interfaces, and it runs what anybody asks of it "
        "who can reach the port.",
    )
    parser.add_argument(
        "--port", type=port_number, required=True, help="the port to listen on"
    )
    parser.add_argument(
        "--max_concurrent_clients",
        type=_count,
        default=system.processors(),
        help="clients to train at a time [the number of processors: %(default)s]",
    )
    options = parser.parse_args(arguments)
    try:
        with ended_by_sigterm():
            serve(options.port, options.max_concurrent_clients)
    except KeyboardInterrupt:
        return 0
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
