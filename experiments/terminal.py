"""Handles what terminals do: Ctrl-C, closed pipes, alphabets they cannot write.

Ctrl-C during training waits for the round, see `tff_drift.simulation.callbacks`.
"""

from __future__ import annotations

import _thread
import contextlib
import io
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, TextIO, cast

from tff_drift import checks, imports, module_source, system

_INTERRUPTED = 130
_STANDARD_ERROR = 2
_SECONDS_OF_SILENCE = 1.0
_NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")


@contextlib.contextmanager
def ending() -> Iterator[types.SimpleNamespace]:
    """A context in which a program comes to its end, whatever its terminal does.

    Yields:
      What has the exit `status`: 0, or what the program sets or exits with, 130 after
      Ctrl-C, 1 if the output cannot be written, 0 if its reader has seen enough.
    """
    end = types.SimpleNamespace(status=0)
    # TensorFlow and gRPC read these when they are loaded, and write what is of no use
    # to users otherwise; a user's own values stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # None if whoever started the program closed it; `print` would take another.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows question marks, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        with all_heard():
            try:
                yield end
            except SystemExit as request:  # After help, or SIGTERM.
                end.status = int(request.code or 0)
            sys.stdout.flush()
    except KeyboardInterrupt:
        end.status = _INTERRUPTED
    except ImportError as error:
        if not system.lacks_tff(error):
            raise
        print(f"tff-drift: error: {system.MISSING_TFF}", file=sys.stderr)
        end.status = 1
    except module_source.UnreadableError as error:
        print(f"tff-drift: error: {error}", file=sys.stderr)
        end.status = 1
    except OSError as error:
        _drop_unwritable_output()
        end.status = 0 if isinstance(error, BrokenPipeError) else 1
        # Files have names; without one, it is what was printed.
        what = "" if error.filename else "the output cannot be written: "
        if end.status:
            denied = isinstance(error, PermissionError)
            remedy = ". Change its permissions, or choose another." if denied else ""
            message = checks.within_limit(f"{what}{error}{remedy}")
            print(f"tff-drift: error: {message}", file=sys.stderr)


def _drop_unwritable_output() -> None:
    """Keeps Python from complaining when it flushes the output at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def to_go_on(words: Sequence[str]) -> str:
    """Returns what to say of a command that was interrupted.

    Args:
      words: The words after `tff-drift`.
    """
    again = shlex.join(["tff-drift", *words])
    return f"tff-drift: interrupted. To continue: {again}"


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """A context in which Ctrl-C ends the program at once: nothing could be lost yet.

    A `KeyboardInterrupt` would be swallowed or turned into other errors by imports that
    try what there is, and by Python itself where it asks whether an attribute exists.
    """

    def end(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError, ValueError):  # Nobody may be there to read.
            terminal = sys.stderr.fileno() if sys.stderr else _STANDARD_ERROR
            os.write(terminal, f"{to_go_on(sys.argv[1:])}\n".encode())
        os._exit(_INTERRUPTED)

    previous = signal.getsignal(signal.SIGINT)
    on_main = threading.current_thread() is threading.main_thread()
    if previous is not signal.default_int_handler or not on_main:
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A context for imports of TensorFlow, in which Ctrl-C ends the program at once."""
    what = "loading TensorFlow and TensorFlow Federated"
    with beginning(), without_notices(), saying(what), imports.without_collection():
        yield


class _Stream:
    """Another stream, and later yet another.

    Handlers of logs that are made meanwhile keep it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """A context for imports of TensorFlow that drops the notices of its libraries.

    TensorFlow 2.21 writes them before its log has a level, whatever
    `TF_CPP_MIN_LOG_LEVEL` says. Other lines of its libraries come after the imports,
    and what Python writes comes at once.
    """
    try:
        terminal, previous = os.dup(_STANDARD_ERROR), sys.stderr
    except OSError:  # Whoever started the program closed it.
        yield
        return
    with (
        tempfile.TemporaryFile() as held,
        os.fdopen(terminal, "w", buffering=1, errors="replace") as heard,
    ):
        kept = _Stream(heard)
        sys.stderr = cast(TextIO, kept)
        os.dup2(held.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(terminal, _STANDARD_ERROR)
            sys.stderr = kept.stream = previous
            held.seek(0)
            lines = (line for line in held if not _NOTICE.match(line))
            os.write(_STANDARD_ERROR, b"".join(lines))


@contextlib.contextmanager
def saying(what: str) -> Iterator[None]:
    """A context that says on a terminal what it does, if that takes more than a second.

    Args:
      what: What it does, such as "loading TensorFlow".
    """

    def say() -> None:
        if sys.stderr.isatty():
            print(f"tff-drift: {what} ...", file=sys.stderr)

    timer = threading.Timer(_SECONDS_OF_SILENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def all_heard(number: int = signal.SIGINT) -> Iterator[None]:
    """A context in which no Ctrl-C is lost.

    Python drops a `KeyboardInterrupt` that it cannot raise where it came, as in a
    destructor or a callback of the garbage collector. Here it is raised again.

    Args:
      number: The signal that raises it, or whatever its handler does by then.
    """
    timers: list[threading.Timer] = []

    def hear(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous(unraisable)
            return
        # Not at once, which would raise it here, where it is lost again.
        timers.append(threading.Timer(0.05, _thread.interrupt_main, [number]))
        timers[-1].start()

    sys.unraisablehook, previous = hear, sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = previous
        for timer in timers:
            timer.cancel()
