"""Ctrl-C that lets the round in progress end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

_STANDARD_ERROR = 2
_NOTE = b"\nInterrupted: this round is finished first. Ctrl-C again stops at once.\n"


class SoftInterrupt:
    """A context in which the first Ctrl-C waits for the next convenient moment.

    Python raises `KeyboardInterrupt` wherever the program happens to be. In a
    destructor it is swallowed; in the middle of TensorFlow's native code it has made
    the program abort. Between two rounds neither can happen.

    The second Ctrl-C is the usual one.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: Any = None

    def __enter__(self) -> SoftInterrupt:
        self._previous = signal.getsignal(signal.SIGINT)
        # A program in the background may have been told to ignore Ctrl-C.
        if self._previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            signal.default_int_handler(number, frame)
        self._requested = True
        # Not `print`, which may be what the signal has interrupted.
        os.write(_STANDARD_ERROR, _NOTE)

    def check(self) -> None:
        """Raises `KeyboardInterrupt` if Ctrl-C has been pressed.

        Raises:
          KeyboardInterrupt: If Ctrl-C has been pressed.
        """
        if self._requested:
            raise KeyboardInterrupt

    def before_each(
        self, sampling: Callable[[int], Sequence[str]]
    ) -> Callable[[int], Sequence[str]]:
        """Returns a sampling that checks first: it is called before each round.

        Args:
          sampling: A function of a round number that returns client ids.

        Returns:
          The same function, which may raise `KeyboardInterrupt`.
        """

        def checked_sampling(round_number: int) -> Sequence[str]:
            self.check()
            return sampling(round_number)

        return checked_sampling
