"""Runs that train side by side, each in a process of its own, here or on Ray."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any

from experiments import terminal
from experiments.flags import plugins
from experiments.flags.errors import UserError
from experiments.flags.placement import Placement
from experiments.flags.settings import RunSettings
from tff_drift import system

# For processes that a signal has ended together with this one.
_SECONDS_TO_END = 1.0
# For a round that is finished before the process ends; it is done again if necessary.
_SECONDS_OF_A_ROUND = 10.0
# Those that end a program. Of the processes of a pool this one decides.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Whether this process of a pool has been told to end, and calls nothing any more.
_told = False


@dataclasses.dataclass(frozen=True)
class Pool:
    """Processes that train.

    Attributes:
      executor: Calls functions of modules in them.
      size: How many there are.
    """

    executor: concurrent.futures.Executor
    size: int


def size(placement: Placement) -> int:
    """Returns how many processes of this machine train at a time.

    Args:
      placement: What was asked for; by default what the cores and the free RAM are good
        for.
    """
    fitting = min(
        system.processors(), int(system.free_memory() / placement.bytes_per_run)
    )
    return placement.processes or max(1, fitting)


def train(
    waiting: Sequence[RunSettings],
    train_one: Callable[[RunSettings], str],
    placement: Placement,
) -> None:
    """Trains runs and reports each that ends.

    Args:
      waiting: The runs, at least one.
      train_one: Trains a run and returns why it was given up, nothing if it was not; a
        function of a module.
      placement: Where.

    Raises:
      KeyboardInterrupt: On Ctrl-C; what is finished is kept.
      UserError: If something asked for is not available, or a run's process is killed.
    """
    with open_pool(placement, len(waiting)) as pool:
        futures = {pool.executor.submit(train_one, each): each for each in waiting}
        for number, future in enumerate(
            concurrent.futures.as_completed(futures), start=1
        ):
            run = futures[future]
            print(
                f"[{number}/{len(waiting)}] {run.label}, seed {run.seed}: "
                f"{future.result() or 'done'}",
                file=sys.stderr,
            )


@contextlib.contextmanager
def open_pool(placement: Placement, most_runs: int) -> Iterator[Pool]:
    """Opens a pool, whose processes start when there is something for them to do.

    What has not begun when an exception ends the context does not begin any more, and
    what has is interrupted: a run ends after its round, at once where that takes more
    than ten seconds or a signal comes again, and can be continued. So it is when this
    process ends by itself, killed even. Ctrl-C and SIGTERM are such exceptions.

    Args:
      placement: Where they are to be.
      most_runs: No more than so many runs will be trained.

    Raises:
      UserError: If Ray is asked for, and cannot be had, or a run's process is killed.
    """
    if placement.on_ray:
        # Here, so that who does without it does without TensorFlow.
        from experiments.training import ray_tasks

        tasks = ray_tasks.RayTasks(placement, most_runs)
        try:
            yield Pool(tasks, tasks.size)
        except BaseException:
            tasks.shutdown(cancel_futures=True)
            raise
        return
    processes = min(size(placement), most_runs)
    others = set(multiprocessing.active_children())
    with (
        _terminated(),
        _Processes(
            processes,
            # A process that was forked from one with threads may hang.
            multiprocessing.get_context("spawn"),
            _begin,
            (placement.plugins, max(1, system.processors() // processes)),
        ) as executor,
    ):
        try:
            yield Pool(executor, processes)
        except BaseException as error:
            # It waits for the processes, which wait for it once nothing is called.
            closing = threading.Thread(
                target=executor.shutdown, kwargs={"cancel_futures": True}
            )
            closing.start()
            _end(set(multiprocessing.active_children()) - others)
            closing.join()
            if isinstance(error, BrokenProcessPool):
                raise _killed(processes) from error
            raise


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """A context in which SIGTERM raises, so that this process ends in good order."""

    def end(number: int, frame: FrameType | None) -> None:
        # The status that a shell reports for a program ended by the signal.
        raise SystemExit(128 + number)

    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _killed(processes: int) -> UserError:
    fewer = f" Lower --processes, from {processes}." if processes > 1 else ""
    return UserError(
        "The process of a run was killed, or crashed; often RAM ran out." + fewer + " "
        "The same command again goes on from what is finished."
    )


class _Processes(concurrent.futures.ProcessPoolExecutor):
    """Processes of which a signal ends what they do, and never one that waits.

    With one of them the executor would end all others, in the middle of their rounds.
    """

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **named: Any
    ) -> concurrent.futures.Future[Any]:
        """Calls a function of a module; see `concurrent.futures.Executor`."""
        # A process that starts here inherits the mask, until it is prepared.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            place = (function.__module__, function.__qualname__)
            return super().submit(_call, place, *arguments, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(children: Collection[multiprocessing.process.BaseProcess]) -> None:
    """Ends processes: after what they do, then at once, then whatever they do.

    Args:
      children: The processes. A signal that comes while this one waits for them ends
        them sooner.
    """
    _wait(children, _SECONDS_TO_END)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for child in children:
            if child.is_alive() and child.pid is not None:
                # It may have ended since, with the program that began it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)
        _wait(children, _SECONDS_OF_A_ROUND)


def _wait(
    children: Iterable[multiprocessing.process.BaseProcess], seconds: float
) -> None:
    end = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        for child in children:
            child.join(max(0.0, end - time.monotonic()))


def _begin(paths: Sequence[str], threads: int) -> None:
    """Prepares a process: TensorFlow shares the cores with the others."""
    # Ctrl-C in a terminal comes to the program as well, which then ends these.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _remember)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, str(threads))
    with terminal.without_notices():
        plugins.load(paths)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _call(place: tuple[str, str], /, *arguments: Any, **named: Any) -> Any:
    """Calls a function in a process, unless that has been told to end.

    Args:
      place: Its module, which may import TensorFlow, and its name there.
      *arguments: Its arguments.
      **named: Those that are named.
    """
    global _told
    if _told:
        raise KeyboardInterrupt
    # Training takes this one over, and lets its round end; elsewhere it raises.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with terminal.all_heard(signal.SIGTERM):
            with terminal.without_notices():
                function = getattr(importlib.import_module(place[0]), place[1])
            return function(*arguments, **named)
    except (KeyboardInterrupt, SystemExit):
        _told = True
        raise
    finally:
        signal.signal(signal.SIGTERM, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    """Hears SIGTERM where nothing is called; the next one ends this process."""
    global _told
    _told = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_parent() -> None:
    """Interrupts this process when the one that began it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        while signal.getsignal(signal.SIGTERM) not in (_remember, signal.SIG_DFL):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_SECONDS_OF_A_ROUND)
        # It waits for something to do, which nobody gives it any more.
        os._exit(128 + signal.SIGTERM)
