"""TFF's `worker_binary` as a child that starts in time and never outlives us.

TFF starts its worker without a time limit, lets it inherit the terminal, and
ends it only in a Python destructor: after a crash or a SIGKILL the worker keeps
running and keeps the pipe of its parent's output open.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO

import portpicker

from tff_drift import _tff_exit, system

_POLL_SECONDS = 0.05
_SHOWN_BYTES = 2000
_PR_SET_PDEATHSIG = 1  # From <linux/prctl.h>.
_libc = ctypes.CDLL(None, use_errno=True)


class WorkerError(ConnectionError):
    """TFF's worker process could not be started, or ended unexpectedly."""


def worker_binary() -> pathlib.Path:
    """Returns the path of the worker that TFF's wheel ships.

    Returns:
      The path of an existing file.

    Raises:
      WorkerError: If TFF was installed without its worker; the message says why.
    """
    path = _tff_exit.worker_path()
    if not _tff_exit.has_worker():
        why = f"which runs on Linux on x86-64 only, and this is {system.machine()}"
        if system.runs_tff_worker():
            why = "which was left out: tff-drift install-tff --worker=true adds it"
        raise WorkerError(
            f"TFF's native context needs its worker, {why}. "
            "tff_drift.execution.set_local_execution_context() does without."
        )
    return path


def _die_with_parent() -> None:
    """Runs in the child, between fork and exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Worker:
    """One running `worker_binary`, listening on a port of this machine.

    Args:
      max_concurrent_computation_calls: How many clients it trains at a time; no
        limit if not positive.
    """

    def __init__(self, max_concurrent_computation_calls: int) -> None:
        self.port = portpicker.pick_unused_port()
        # The parent-death signal follows the thread that started the child, so
        # the child gets a thread that lives as long as it does.
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._started = threading.Event()
        self._arguments = [
            str(worker_binary()),
            f"--port={self.port}",
            f"--max_concurrent_computation_calls={max_concurrent_computation_calls}",
        ]
        # A child that the program forks has this object too, but not the worker.
        self._starter = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._keeper = threading.Thread(
            target=self._keep, name="tff-drift-worker", daemon=True
        )
        self._keeper.start()
        self._started.wait()
        if self._error is not None:
            raise WorkerError(
                f"TFF's worker could not be started: {self._error}."
            ) from self._error
        atexit.register(self.stop)
        # Before that, so that gRPC does not log the worker's end.
        _tff_exit.release_context_at_exit()

    def _keep(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            self._error = error
            return
        finally:
            self._started.set()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The worker's exit code, None while it runs."""
        assert self._process is not None
        return self._process.returncode

    def output(self) -> str:
        """Returns the end of what the worker has printed, which may be nothing."""
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        start = max(0, size - _SHOWN_BYTES)
        return os.pread(descriptor, size - start, start).decode(errors="replace")

    def wait_until(self, is_ready: threading.Event, seconds: float) -> None:
        """Waits until `is_ready` is set.

        Args:
          is_ready: Set by the caller's connection once the worker answers.
          seconds: How long to wait at the most.

        Raises:
          WorkerError: If the worker ends, or does not answer in time.
        """
        deadline = time.monotonic() + seconds
        while not is_ready.wait(_POLL_SECONDS):
            if self.exit_code is not None:
                raise WorkerError(self.obituary())
            if time.monotonic() > deadline:
                self.stop()
                raise WorkerError(
                    f"TFF's worker did not answer on port {self.port} within "
                    f"{seconds:g} seconds. Its output: {self.output() or '(none)'}"
                )

    def obituary(self) -> str:
        """Returns a sentence that says how the worker ended, with its output."""
        return (
            f"TFF's worker process ended with exit code {self.exit_code}. Its "
            f"output: {self.output() or '(none)'}"
        )

    def stop(self) -> None:
        """Ends the worker, unless it has ended already or this is a forked child."""
        atexit.unregister(self.stop)
        if os.getpid() != self._starter:
            return
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
