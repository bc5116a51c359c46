"""Ctrl-C outside of training, where no round is in progress."""

from __future__ import annotations

import _thread
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

STATUS = 130
_STANDARD_ERROR = 2


def message(words: Sequence[str]) -> str:
    """Returns what to tell the user, with the command that goes on.

    Args:
      words: The words after `tff-drift`.
    """
    again = shlex.join(["tff-drift", *words])
    return f"tff-drift: interrupted. To go on: {again}"


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A context for imports of TensorFlow, in which Ctrl-C ends the program at once.

    A `KeyboardInterrupt` in the middle of them is swallowed or turned into other errors
    by code that tries what there is. Nothing has begun that could be lost.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os.write(_STANDARD_ERROR, f"{message(sys.argv[1:])}\n".encode())
        os._exit(STATUS)

    previous = signal.getsignal(signal.SIGINT)
    usual = previous is signal.default_int_handler
    on_main = threading.current_thread() is threading.main_thread()
    if usual and on_main:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if usual and on_main:
            signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A context in which no Ctrl-C is lost.

    Python drops a `KeyboardInterrupt` that it cannot raise where it came, as in a
    destructor or a callback of the garbage collector. Here it is raised again.
    """
    timers: list[threading.Timer] = []

    def hear(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous(unraisable)
            return
        # Not at once, which would raise it here, where it is lost again.
        timers.append(threading.Timer(0.05, _thread.interrupt_main))
        timers[-1].start()

    sys.unraisablehook, previous = hear, sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = previous
        for timer in timers:
            timer.cancel()
