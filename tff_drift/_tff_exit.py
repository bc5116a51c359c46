"""Ends TFF's workers and its default context while Python can still clean up."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pathlib
import signal
import sys
import threading
from typing import Any

_EXECUTOR_FACTORY = (
    "tensorflow_federated.python.core.impl.executor_stacks.executor_factory"
)


def worker_path() -> pathlib.Path:
    """Returns where TFF's wheel puts its worker; the file may be missing or empty."""
    import tensorflow_federated as tff

    return pathlib.Path(tff.__file__).parent / "data" / "worker_binary"


def has_worker() -> bool:
    """Returns whether TFF was installed with its worker.

    TFF cannot be imported where there is no such file: an empty one stands for none.
    """
    path = worker_path()
    return path.is_file() and path.stat().st_size > 0


def child_workers() -> set[int]:
    """Returns the ids of the workers that this process has started, TFF's included."""
    binary = worker_path().resolve()
    workers = set()
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and (status.parent / "exe").resolve() == binary:
                workers.add(int(status.parent.name))
    return workers


def end_workers(workers: set[int]) -> None:
    """Ends workers at once.

    TFF asks its worker to end by SIGINT and then waits for it. A program that was
    started in the background of a shell script ignores SIGINT, its children do so
    too, and TFF would wait forever.

    Args:
      workers: Their process ids.
    """
    for process in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def kill_worker_with(context: Any) -> None:
    """Has TFF's own context end its worker at once, when nothing holds it any more.

    TFF would wait forever where SIGINT is ignored, see `end_workers`.

    Args:
      context: Any context; one that is not TFF's is left as it is.
    """
    factory = getattr(context, "__dict__", {}).get("_executor_factory")
    stack_fn = getattr(factory, "_executor_stack_fn", None)
    for cell in getattr(stack_fn, "__closure__", None) or ():
        if _is_service_manager(type(cell.cell_contents)):
            # Each context has a class of its own.
            type(cell.cell_contents).__del__ = _kill_worker


def _kill_worker(manager: Any) -> None:
    if manager._process is not None:
        manager._process.kill()
        manager._process.wait()


def _is_service_manager(kind: type) -> bool:
    return kind.__module__ == _EXECUTOR_FACTORY and kind.__name__ == "ServiceManager"


def _no_context() -> Any:
    """Returns a context that, unlike TFF's, needs no thread of its own."""
    import tensorflow_federated as tff

    class NoContext(tff.framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            raise RuntimeError("This process is ending: no computation can run.")

    return NoContext()


def _ignore_refused_threads() -> None:
    """Keeps the end of the workers off the terminal.

    gRPC reports a lost connection in a new thread, which Python 3.12 and newer refuse
    while they end.
    """
    report = threading.excepthook

    def report_the_rest(arguments: threading.ExceptHookArgs) -> None:
        if "at interpreter shutdown" not in str(arguments.exc_value):
            report(arguments)

    threading.excepthook = report_the_rest


def _disarm_destructors() -> None:
    """Leaves the destructors of TFF's contexts nothing to do: their workers ended.

    Those of contexts that the program still holds run when their modules are gone.
    """
    gc.unfreeze()  # What came with TensorFlow, TFF's first context, is frozen.
    for candidate in gc.get_objects():
        kind = type(candidate)
        if _is_service_manager(kind):
            kind.__del__ = lambda manager: None


def _drop_default_context() -> None:
    framework = getattr(sys.modules.get("tensorflow_federated"), "framework", None)
    if framework is None:  # TFF is not imported, or not wholly.
        return
    _ignore_refused_threads()
    end_workers(child_workers())
    _disarm_destructors()
    framework.set_default_context(_no_context())
    gc.collect()


def release_context_at_exit() -> None:
    """Drops TFF's default context at exit, while Python can still clean up.

    The context that TFF sets when it is imported ends its worker in a
    destructor. Left to the end of the interpreter, the destructor finds its
    modules gone, prints a traceback and leaves the worker running. TFF need not be
    imported yet. Another call makes it come before what was registered since.
    """
    atexit.unregister(_drop_default_context)
    atexit.register(_drop_default_context)
