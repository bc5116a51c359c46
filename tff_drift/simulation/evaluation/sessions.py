"""TensorFlow's sessions of one graph, each with variables of its own."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tff_drift import system

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Sessions:
    """As many sessions of a graph as are asked for at a time.

    Args:
      graph: The graph.
      initializers: What a session runs first.
    """

    def __init__(self, graph: tf.Graph, initializers: Sequence[Any]) -> None:
        self._graph, self._initializers = graph, initializers
        self._assignment: tuple[Any, Mapping[Any, Any]] | None = None
        # With what their variables have been assigned.
        self._free: list[tuple[tf.compat.v1.Session, Any]] = []
        self._lock = threading.Lock()
        with self.borrowed():
            pass

    def assign(self, operations: Sequence[Any], feeds: Mapping[Any, Any]) -> None:
        """Has every session run some operations before it is borrowed again.

        Args:
          operations: Those that assign variables.
          feeds: The values.
        """
        self._assignment = operations, feeds
        with self.borrowed():
            pass

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[tf.compat.v1.Session]:
        """Yields a session that nobody else has meanwhile."""
        with self._lock:
            session, known = self._free.pop() if self._free else (None, None)
            assignment = self._assignment
        if session is None:
            session = tf.compat.v1.Session(graph=self._graph)
            session.run(self._initializers)
        try:
            if assignment is not None and assignment is not known:
                session.run(*assignment)
                known = assignment
            yield session
        finally:
            with self._lock:
                self._free.append((session, known))


def in_parallel(
    function: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[_Result]:
    """Yields a function's results in the order of the items.

    Where the program has TensorFlow keep each operation to one thread, several are
    computed at a time, by a thread for each processor: one alone would use one.

    Args:
      function: The function.
      items: What it is called with.
    """
    processors = system.processors()
    if tf.config.threading.get_intra_op_parallelism_threads() != 1 or processors == 1:
        yield from map(function, items)
        return
    ahead: collections.deque[concurrent.futures.Future[_Result]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(processors) as pool:
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) >= 2 * processors:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
