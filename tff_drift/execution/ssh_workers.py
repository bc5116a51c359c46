"""Starts workers on other machines through SSH, with a tunnel to each.

    python -m tff_drift.execution.ssh_workers ann@gpu-1 ann@gpu-2

It says which `--workers=` to give, and runs until Ctrl-C or SIGTERM, which end the
workers too. SSH proves who is who and encrypts what goes over the network. It must not
ask for a password: use keys.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import portpicker

from tff_drift.execution.start_worker import ended_by_sigterm, port_number
from tff_drift.execution.worker import WorkerError

_START_SECONDS = 120.0
_POLL_SECONDS = 0.2
_LISTENS = "listens on port"


def ssh_words(host: str, local_port: int, port: int, python: str) -> list[str]:
    """Returns the command that starts a worker on a machine.

    Args:
      host: The machine, as SSH knows it: `[USER@]HOST`.
      local_port: The port of this machine that leads to the worker.
      port: The port that the worker listens on.
      python: The Python of that machine, one that has tff_drift.
    """
    worker = f"{shlex.quote(python)} -m tff_drift.execution.start_worker --port={port}"
    return [
        "ssh",
        # With a terminal, so that the worker ends when the connection does.
        "-tt",
        *("-o", "BatchMode=yes"),
        *("-o", "ExitOnForwardFailure=yes"),
        *("-o", "ServerAliveInterval=15"),
        *("-L", f"127.0.0.1:{local_port}:127.0.0.1:{port}"),
        "--",
        host,
        worker,
    ]


class SshWorker:
    """A worker on another machine.

    Attributes:
      host: The machine.
      address: Where this machine reaches the worker.
    """

    def __init__(self, host: str, port: int, python: str) -> None:
        """Starts the worker.

        Args:
          host: The machine, as SSH knows it.
          port: The port that the worker listens on.
          python: The Python of that machine.
        """
        self.host = host
        local_port = portpicker.pick_unused_port()
        self.address = f"localhost:{local_port}"
        self._said: collections.deque[str] = collections.deque(maxlen=5)
        self._listens = threading.Event()
        self._process = subprocess.Popen(
            ssh_words(host, local_port, port, python),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.strip())
            if _LISTENS in line:
                self._listens.set()

    def wait(self) -> None:
        """Waits until the worker listens.

        Raises:
          WorkerError: If it does not.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens.wait(_POLL_SECONDS):
            self.check()
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"{self.host} did not start a worker within {_START_SECONDS:g} "
                    f"seconds. It said: {self._last_words()}"
                )

    def check(self) -> None:
        """Raises a WorkerError if the worker, or the connection, has ended."""
        if self._process.poll() is not None:
            raise WorkerError(
                f"The worker on {self.host} ended, or the connection to it (SSH's exit "
                f"code {self._process.returncode}). It said: {self._last_words()}"
            )

    def _last_words(self) -> str:
        return " / ".join(filter(None, self._said)) or "(nothing)"

    def stop(self) -> None:
        """Ends the connection, and with it the worker."""
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def started(hosts: Sequence[str], port: int, python: str) -> Iterator[list[SshWorker]]:
    """Starts a worker on each machine; ends them when the context is left.

    Args:
      hosts: The machines, as SSH knows them.
      port: The port that the workers listen on.
      python: The Python of those machines.

    Yields:
      The workers, which listen.

    Raises:
      WorkerError: If one cannot be started.
    """
    with contextlib.ExitStack() as stopping:
        workers = []
        for host in hosts:
            workers.append(SshWorker(host, port, python))
            stopping.callback(workers[-1].stop)
        for worker in workers:
            worker.wait()
        yield workers


def _host(text: str) -> str:
    # SSH would take it for an option.
    if not text or text.startswith("-"):
        raise ValueError(text)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: The words after the command; by default those of this program.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tff_drift.execution.ssh_workers",
        description="Starts a worker on each machine through SSH, until Ctrl-C.",
    )
    parser.add_argument("hosts", nargs="+", type=_host, metavar="[USER@]HOST")
    parser.add_argument(
        "--port", type=port_number, default=8000, help="of the workers, there"
    )
    parser.add_argument(
        "--python", default="python3", help="there, one that has tff_drift"
    )
    options = parser.parse_args(arguments)
    workers_of = started(options.hosts, options.port, options.python)
    try:
        with ended_by_sigterm(), workers_of as workers:
            addresses = ",".join(worker.address for worker in workers)
            print(f"--workers={addresses}\nCtrl-C ends the workers.", flush=True)
            while True:
                for worker in workers:
                    worker.check()
                time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return 0
    except (WorkerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
