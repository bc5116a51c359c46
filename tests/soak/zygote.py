"""Trainings that are forked from a program which has imported TensorFlow already.

Importing TensorFlow and building a learning process take seconds, a short training a
few tenths: so hundreds of kills are affordable. What is forked is `program.train`,
the training itself, with its own folder and its own execution context.

A forked process has none of its parent's threads, and TensorFlow's runtime has some
since a process was built. The child therefore starts a runtime of its own. What the
two share is the pool for parts of one operation, which is not used when it has one
thread. The parent's runtime must not end in the child: its end would wait for its
threads.
"""

import contextlib
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tests.soak import program
from tff_drift import execution

# Told of every row, and of the last one.
_ROW, _LAST_ROW = b".", b"!"
# Whoever writes a byte of a run.
WRITERS = (
    "checkpoint.py",
    "files.py",
    "metrics_file.py",
    "on_disk.py",
    "run_directory.py",
    "slot_file.py",
    "state_index.py",
    "store.py",
    "training_loop.py",
)
# The exit status of a training that ended with an error.
_FAILED = 9
_SIGTERM_STATUS = 128 + signal.SIGTERM
PATIENCE = 300  # Seconds.


class Moment(NamedTuple):
    """When a training is killed.

    Attributes:
      where: "startup": some seconds after its start. "round": some seconds after some
        rows. "ending": some seconds after the last row of the run. "write": before
        some line of `WRITERS`, by itself. "": never.
      seconds: The seconds.
      count: The rows or the lines.
      signal: What is sent; a write is always ended by SIGKILL.
    """

    where: str = ""
    seconds: float = 0.0
    count: int = 0
    signal: int = signal.SIGKILL


NEVER = Moment()


class Attempt(NamedTuple):
    """What became of a training.

    Attributes:
      ended_by: The name of the signal or of the error class that ended it; "" if it
        came to its end.
      rows: The rows that it kept.
      message: That of the error.
      ending: The seconds from the last row of the run to its end, if that came.
    """

    ended_by: str
    rows: int
    message: str = ""
    ending: float = 0.0


class Zygote:
    """Forks trainings. It wants a program for itself, without threads."""

    def __init__(self, methods, stores=("ram", "disk")):
        """Builds the processes.

        Args:
          methods: The methods.
          stores: What runs keep, some of `program.STORES`.
        """
        # MLflow's tables take longest to make: runs begin with a copy of empty ones.
        self._tracked = _empty_tables() if "mlflow" in stores else b""
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.processes = {method: program.build(method) for method in methods}
        # Held, for where nothing else holds it a child would end it.
        self._runtime = eager_context.context()

    def train(self, method, store, folder, moment=NEVER, fault=contextlib.nullcontext):
        """Trains in a process of its own, which is killed at a moment.

        Args:
          method: One of those given.
          store: One of `program.STORES`.
          folder: The run's folder.
          moment: When to kill it.
          fault: Makes a context that the training runs in.

        Returns:
          An `Attempt`.
        """
        if store == "mlflow" and not program.tracked(folder).exists():
            program.tracked(folder).write_bytes(self._tracked)
        rows, tell = os.pipe()
        child = os.fork()
        if child == 0:
            status = _FAILED
            try:
                os.close(rows)
                status = self._run(method, store, folder, moment, tell, fault)
            except BaseException as error:
                os.write(tell, f"\n{type(error).__name__}\n{error}".encode()[:4000])
            finally:
                os._exit(status)
        os.close(tell)
        try:
            told, ending = _kill(child, rows, moment)
        finally:
            os.close(rows)
        seen, *error = told.decode(errors="replace").split("\n", 2)
        status = os.waitpid(child, 0)[1]
        if error and os.WIFEXITED(status):
            return Attempt(error[0], len(seen), error[1])
        return Attempt(_ended_by(status), len(seen), ending=ending)

    def _run(self, method, store, folder, moment, tell, fault):
        eager_context._reset_context()
        execution.set_local_execution_context()
        if moment.where == "write":
            _kill_before_line(moment.count)
        try:
            with fault():
                program.train(
                    method,
                    self.processes[method],
                    store,
                    folder,
                    lambda row: os.write(
                        tell, _LAST_ROW if row["round"] == program.ROUNDS else _ROW
                    ),
                )
        except SystemExit as end:
            return int(end.code)
        return 0


def _empty_tables():
    """Returns a store of MLflow without runs; its package is imported here, too."""
    import mlflow  # noqa: F401  What is forked has it.

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "mlflow.db"
        code = (
            "import mlflow; mlflow.MlflowClient(tracking_uri='sqlite:///"
            f"{path}').search_experiments()"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return path.read_bytes()


def _kill(child, rows, moment):
    """Kills a training when its moment has come.

    Returns:
      What it told: its rows. The seconds from the last one of the run to its end.
    """
    told, deadline, last_row = b"", None, None
    if moment.where == "startup":
        deadline = time.monotonic() + moment.seconds
    give_up = time.monotonic() + PATIENCE
    while True:
        until = give_up if deadline is None else deadline
        ready, _, _ = select.select([rows], [], [], max(0, until - time.monotonic()))
        if not ready:
            hangs = deadline is None
            os.kill(child, signal.SIGKILL if hangs else moment.signal)
            if hangs:
                raise TimeoutError(f"The training hangs after {len(told)} rows.")
            deadline, moment = None, NEVER
            continue
        more = os.read(rows, 4096)
        if not more:
            return told, 0.0 if last_row is None else time.monotonic() - last_row
        told += more
        if last_row is None and _LAST_ROW in told:
            last_row = time.monotonic()
        if deadline is None and (
            (moment.where == "round" and len(told) >= moment.count)
            or (moment.where == "ending" and last_row is not None)
        ):
            deadline = time.monotonic() + moment.seconds


def _ended_by(status):
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    code = os.WEXITSTATUS(status)
    if code == _SIGTERM_STATUS:
        return "SIGTERM"
    return str(code) if code else ""


def _kill_before_line(number):
    """Kills this process before the line of that number that writers come to."""
    left = [number]

    def trace(frame, event, _):
        if os.path.basename(frame.f_code.co_filename) not in WRITERS:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


class Pace(NamedTuple):
    """How long an uninterrupted training took, in seconds."""

    to_first_row: float
    per_row: float
    after_last_row: float


def measure_pace(zygote, method, store, folder):
    """Trains to the end, and to the end of a training that has nothing left to do."""
    start = time.monotonic()
    attempt = zygote.train(method, store, folder)
    whole = time.monotonic() - start
    if attempt.ended_by or attempt.rows < program.ROUNDS:
        raise RuntimeError(f"The training ended with {attempt}.")
    start = time.monotonic()
    zygote.train(method, store, folder)
    startup = time.monotonic() - start
    per_row = max(0.01, (whole - startup) / program.ROUNDS)
    return Pace(startup, per_row, attempt.ending)


_PLACES = ("startup", "startup", "round", "round", "round", "write", "write", "ending")


def draw_moment(choose: random.Random, pace: Pace, where: str | None = None):
    """Draws when a training is killed: in its startup, a round, a write, its ending."""
    where = where or choose.choice(_PLACES)
    killer = choose.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    if where == "startup":
        return Moment(where, choose.uniform(0, pace.to_first_row), 0, killer)
    if where == "round":
        seconds = choose.uniform(0, 2 * pace.per_row)
        return Moment(where, seconds, choose.randint(1, 6), killer)
    if where == "ending":
        return Moment(where, choose.uniform(0, pace.after_last_row), 0, killer)
    # A round comes to some 500 of the writers' lines, the startup to as many.
    return Moment(where, 0.0, choose.randint(1, 3000))


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    program.tracked(folder).unlink(missing_ok=True)
    folder.mkdir(parents=True)
