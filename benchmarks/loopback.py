"""TFF's workers on this machine: started, timed, and what goes to and fro counted."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

_WORKER_START_SECONDS = 120.0


@contextlib.contextmanager
def running_workers(number: int) -> Iterator[tuple[list[str], list[int]]]:
    """Starts workers; gives their addresses, and their processes' numbers."""
    ports = [_free_port() for _ in range(number)]
    programs = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tff_drift.execution.start_worker"),
                *(f"--port={port}", "--max_concurrent_clients=1"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for port in ports
    ]
    try:
        for port in ports:
            _wait_for(port)
        pids = [child for program in programs for child in _family(program.pid)]
        yield [f"localhost:{port}" for port in ports], pids
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait()


def _free_port() -> int:
    with socket.socket() as attempt:
        attempt.bind(("", 0))
        return int(attempt.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _WORKER_START_SECONDS
    while True:
        with socket.socket() as attempt:
            if attempt.connect_ex(("localhost", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"The worker on port {port} did not start.")
        time.sleep(0.2)


def _family(pid: int) -> Iterator[int]:
    """Yields a process and those that it started."""
    yield pid
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes_received() -> float:
    """Returns what went over the loopback interface so far."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0]) / 1e6
    raise SystemExit("/proc/net/dev has no interface 'lo'.")
