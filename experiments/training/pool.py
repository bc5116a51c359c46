"""Runs that train side by side, each in a process of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from experiments.flags import plugins
from experiments.flags.settings import RunSettings
from tff_drift import system

# With TensorFlow, a small model and its data.
BYTES_PER_PROCESS = 1.5e9
# For processes that are told to end by Ctrl-C in their terminal, as this one is.
_SECONDS_TO_END = 1.0
# For a round that is finished before the process ends; it is done again if need be.
_SECONDS_OF_A_ROUND = 10.0


def size(bytes_per_process: float = BYTES_PER_PROCESS) -> int:
    """Returns how many processes the cores and the free RAM are good for."""
    return max(1, min(_cores(), int(system.free_memory() / bytes_per_process)))


def train(
    waiting: Sequence[RunSettings],
    train_one: Callable[[RunSettings], str],
    processes: int,
    paths: Sequence[str] = (),
) -> None:
    """Trains runs and tells of each that ends.

    Args:
      waiting: The runs, at least one.
      train_one: Trains a run and returns why it was given up, nothing if it was not; a
        function of a module.
      processes: The runs to train at a time.
      paths: Files of the user that the runs need.

    Raises:
      KeyboardInterrupt: On Ctrl-C; what is finished is kept.
      UserError: If something asked for cannot be had.
    """
    with open_pool(min(processes, len(waiting)), paths) as pool:
        futures = {pool.submit(train_one, each): each for each in waiting}
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
def open_pool(
    processes: int, paths: Sequence[str] = ()
) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Opens a pool, whose processes start when there is something for them to do.

    What has not begun when an exception ends the context does not begin any more, and
    what has is interrupted: a run ends after its round, and can be gone on with. So it
    is when this process ends by itself, killed even.

    Args:
      processes: The number of processes.
      paths: Files of the user that they need.
    """
    others = set(multiprocessing.active_children())
    with concurrent.futures.ProcessPoolExecutor(
        processes,
        # A process that was forked from one with threads may hang.
        multiprocessing.get_context("spawn"),
        _begin,
        (paths, max(1, _cores() // processes)),
    ) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _interrupt(set(multiprocessing.active_children()) - others)
            raise


def _interrupt(children: Iterable[multiprocessing.process.BaseProcess]) -> None:
    """Interrupts those that Ctrl-C in their terminal has not ended already."""
    end = time.monotonic() + _SECONDS_TO_END
    for child in children:
        child.join(max(0.0, end - time.monotonic()))
        if child.is_alive() and child.pid is not None:
            os.kill(child.pid, signal.SIGINT)


def _cores() -> int:
    return system.processors()


def _begin(paths: Sequence[str], threads: int) -> None:
    """Prepares a process: TensorFlow shares the cores with the others."""
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, str(threads))
    plugins.load(paths)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Interrupts this process when the one that began it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            # A run has ended after its round, and this process waits for another.
            time.sleep(_SECONDS_OF_A_ROUND)
