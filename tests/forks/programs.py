"""Programs of Python that begin where TensorFlow and TFF have been imported.

Importing them takes seconds, of which a short program's own work is a fraction. So one
server for all tests (`server.py`) imports them once and forks what tests start:

    subprocess.run([*programs.python(), "-m", "experiments", "list"])

What is started is a small program (`proxy.py`) that hands its words, its environment,
its folder and its standard streams to the server, and then lives and ends as the
program does. A test of imports themselves starts `sys.executable`.
"""

import os
import pathlib
import socket
import subprocess
import sys
import time

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
# The process that all tests of a session descend from, see `own_session`.
_SESSION = "TFF_DRIFT_TEST_SESSION"
# How long a test waits, in seconds, for a program to go on or to end: for what would
# otherwise hang, on a machine with twenty times as much to do as it can.
PATIENCE = 600.0

_server: "subprocess.Popen | None" = None


def own_session() -> None:
    """Makes the server that this process and its children start end with it.

    The first process that calls this is meant: the children inherit its choice.
    """
    os.environ.setdefault(_SESSION, str(os.getpid()))


def python() -> "list[str]":
    """Returns the words to start Python with, in place of `sys.executable`."""
    if not _forks():
        return [sys.executable]
    session = int(os.environ[_SESSION])
    address = f"tff_drift-tests-{session}"
    _start(address, session)
    # Without `site`, which a proxy does not need.
    return [sys.executable, "-I", "-S", str(_HERE / "proxy.py"), address]


def _forks() -> bool:
    """Whether programs can be forked: elsewhere TensorFlow does not survive it."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def wait_until(holds, what, program=None):
    """Waits until something holds: for progress, and not for some time.

    Args:
      holds: A function that tells whether it does.
      what: What that is, in words.
      program: A process on whose work it depends; its end is the end of waiting.

    Raises:
      AssertionError: If it can hold no more, or does not within `PATIENCE`.
    """
    give_up = time.monotonic() + PATIENCE
    while not holds():
        # What a program did last may have been seen by nobody yet.
        assert program is None or program.poll() is None or holds(), f"not: {what}"
        assert time.monotonic() < give_up, f"not within {PATIENCE:g} seconds: {what}"
        time.sleep(0.01)


class Popen(subprocess.Popen):
    """A program that signals reach, and not its proxy.

    `wait` returns when the program itself has ended, killed even.
    """

    def __init__(self, words, **options):
        """Starts a program.

        Args:
          words: Those after `python`.
          **options: Those of `subprocess.Popen`.
        """
        if not _forks():
            super().__init__([sys.executable, *words], **options)
            self.program = self.pid
            return
        told, tell = os.pipe()
        try:
            environment = {**(options.pop("env", None) or os.environ)}
            environment["TFF_DRIFT_TELL_PID"] = str(tell)
            super().__init__(
                [*python(), *words], env=environment, pass_fds=[tell], **options
            )
        finally:
            os.close(tell)
        with open(told) as file:
            self.program = int(file.read() or 0)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.program, number)


def _start(address: str, session: int) -> None:
    """Starts the server of a session, unless another process has done so."""
    global _server
    if _listens(address):
        return
    _server = subprocess.Popen(
        [sys.executable, str(_HERE / "server.py"), address, str(session)],
        cwd=_ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # Of its own, so that Ctrl-C in a terminal is the tests'.
        start_new_session=True,
    )
    # It does so before it imports anything.
    wait_until(lambda: _listens(address), "the server of programs listens")


def _listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"\0{address}")
        except ConnectionRefusedError:
            return False
    return True
