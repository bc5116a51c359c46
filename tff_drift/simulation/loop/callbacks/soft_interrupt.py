"""Ctrl-C, and a scheduler's SIGTERM, that let the round in progress end."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

from tff_drift.simulation.loop import interrupts
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records.results import TrainingResult

_STANDARD_ERROR = 2
_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
# Of runs that a signal has ended.
STOP_REASONS = frozenset(_SIGNALS.values())


class SoftInterrupt(Callback):
    """Ends a run after the round in progress, on the first Ctrl-C or SIGTERM.

    Python raises `KeyboardInterrupt` wherever the program happens to be. In a
    destructor it is swallowed; in the middle of TensorFlow's native code it has made
    the program abort. Between two rounds neither can happen.

    The round's row is kept and a checkpoint written. Then `run_training` raises what
    the signal means: `KeyboardInterrupt` for Ctrl-C, `SystemExit` with status 143 for
    SIGTERM, which schedulers send. A signal in the last round ends nothing: the run is
    whole, and `run_training` returns its result. The second signal does the usual at
    once.

    The callback may be given to another run afterwards, or to the same one again.

    Signals are handled during training; as a context (`with SoftInterrupt() as
    interrupt:`), also before and after it. Only the main thread can handle them: in
    another one the callback does nothing.
    """

    def __init__(self) -> None:
        """Initializes the callback."""
        self._signal: int | None = None
        self._previous: dict[int, Any] = {}
        self._depth = 0
        self._run: TrainingRun | None = None

    def __enter__(self) -> SoftInterrupt:
        """Begins to handle the signals."""
        self._depth += 1
        if self._depth == 1:
            self._install()
        return self

    def __exit__(self, *error: object) -> None:
        """Leaves the signals to their handlers of before."""
        self._depth -= 1
        if self._depth == 0:
            while self._previous:
                signal.signal(*self._previous.popitem())

    def _install(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            # A program that was told to ignore a signal, or handles it, keeps doing so.
            if handler is not signal.SIG_DFL and not interrupts.is_pythons(handler):
                continue
            try:
                signal.signal(number, self._on_signal)
            except ValueError:  # Not the main thread.
                return
            self._previous[number] = handler

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            _raise(number)
        self._signal = number
        # Before the first round, that one does not begin.
        self._pass_on()
        # Not `print`, which may be what the signal has interrupted.
        name = _SIGNALS[signal.Signals(number)]
        note = f"\n{name}: this round is finished first. Again stops at once.\n"
        os.write(_STANDARD_ERROR, note.encode())

    def check(self) -> None:
        """Raises what the signal means, if one has come.

        Raises:
          KeyboardInterrupt: If Ctrl-C has been pressed.
          SystemExit: If SIGTERM has come.
        """
        if self._signal is not None:
            _raise(self._signal)

    def before_training(self, run: TrainingRun) -> None:
        """Begins to handle the signals."""
        self.__enter__()
        self._run = run
        self._pass_on()

    def _pass_on(self) -> None:
        if self._signal is not None and self._run is not None:
            self._run.stop(_SIGNALS[signal.Signals(self._signal)])

    def after_training(self, result: TrainingResult | None) -> None:
        """Ends the handling, and raises what the signal means if it ended the run.

        Raises:
          KeyboardInterrupt: If Ctrl-C has ended the run.
          SystemExit: If SIGTERM has.
        """
        self.__exit__(None, None, None)
        self._run = None
        if result is not None and result.stop_reason in STOP_REASONS:
            number, self._signal = self._signal, None
            if number is not None:
                _raise(number)


def _raise(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    # The status that a shell reports for a program ended by the signal.
    raise SystemExit(128 + number)
