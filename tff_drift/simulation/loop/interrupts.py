"""A Ctrl-C that Python loses, and that is raised again."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """A context that remembers whether Ctrl-C has raised `KeyboardInterrupt`.

    The exception does not always arrive: Python drops it in a destructor or a callback
    of the garbage collector, and so do libraries that try what there is. Whoever calls
    `check` from time to time raises it where nothing can drop it.

    What a program of its own does at Ctrl-C stays, and other threads than the main one
    have no signals: nothing is remembered there.
    """

    def __init__(self) -> None:
        """Initializes the context."""
        self._have_come = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        """Begins to remember."""
        handler = signal.getsignal(signal.SIGINT)
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and is_pythons(handler):
            self._previous = handler
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        """Brings the handler of before back, unless another has come meanwhile."""
        if signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._have_come = True
        self._previous(number, frame)

    def check(self) -> None:
        """Raises what was lost.

        Raises:
          KeyboardInterrupt: If Ctrl-C has been pressed.
        """
        if self._have_come:
            raise KeyboardInterrupt


def is_pythons(handler: Any) -> bool:
    """Whether a handler raises `KeyboardInterrupt`, as Python's own does.

    Args:
      handler: What `signal.getsignal` returns.

    Returns:
      Whether it is Python's, or that of an `Interrupts` around it.
    """
    own = isinstance(getattr(handler, "__self__", None), Interrupts)
    return own or handler is signal.default_int_handler
