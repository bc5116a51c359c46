"""Workers that share the clients of a computation."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from tff_drift.execution.remote.connection import Connection, Limits
from tff_drift.execution.worker import WorkerError


def _start(function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future:
    """Calls a function in a thread that does not keep the program from ending."""
    future: concurrent.futures.Future = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="tff-drift-remote", daemon=True).start()
    return future


class _Worker:
    """A worker, which may be lost and come back."""

    def __init__(self, address: str, limits: Limits) -> None:
        self.address = address
        self.loss = "It was never connected."
        self._limits = limits
        self._connection: Connection | None = None
        self._attempt: concurrent.futures.Future | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def connect(self) -> concurrent.futures.Future:
        """Starts to connect, unless that is under way already."""
        if self._attempt is None or self._attempt.done():
            self._attempt = _start(self._connect)
        return self._attempt

    def _connect(self) -> None:
        try:
            self._connection = Connection(self.address, self._limits)
        except WorkerError as error:
            self.loss = str(error)
            raise

    def run(self, computation: Any, argument: Any) -> Any:
        connection = self._connection
        if connection is None:
            raise WorkerError(self.loss)
        try:
            return connection.run(computation, argument)
        except WorkerError as error:
            self.loss = str(error)
            self._connection = None
            raise

    def drop(self, reason: str) -> None:
        """Ends the connection and what runs on it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.loss = f"Worker {self.address} was left: {reason}."
            connection.close(reason)


class Workers:
    """Workers that run the parts of a computation, each any part."""

    def __init__(
        self, addresses: Sequence[str], limits: Limits, max_retries: int
    ) -> None:
        """Connects to all workers.

        Args:
          addresses: Their addresses.
          limits: The time limits.
          max_retries: How often a part is run again whose worker was lost.

        Raises:
          WorkerError: If one of them does not answer; the message names all that do
            not.
        """
        self._limits = limits
        self._max_retries = max_retries
        self._workers = [_Worker(address, limits) for address in addresses]
        attempts = [worker.connect() for worker in self._workers]
        concurrent.futures.wait(attempts)
        errors = [error for error in (each.exception() for each in attempts) if error]
        if errors:
            self.close("another worker was missing")
            for error in errors:
                if not isinstance(error, WorkerError):
                    raise error
            raise WorkerError(" ".join(map(str, errors)))

    def __len__(self) -> int:
        return len(self._workers)

    def close(self, reason: str) -> None:
        """Ends all connections and what runs on them.

        Args:
          reason: Why, as the part of a sentence.
        """
        for worker in self._workers:
            worker.drop(reason)

    def run(self, computation: Any, arguments: Sequence[Any]) -> list[Any]:
        """Runs a computation on several arguments, one per worker at a time.

        An argument whose worker is lost goes to another worker.

        Args:
          computation: A `tff.Computation`, compiled for TFF's native backend.
          arguments: The arguments.

        Returns:
          The results, in the order of the arguments.

        Raises:
          WorkerError: If no worker is left, or an argument has lost too many.
        """
        results: dict[int, Any] = {}
        losses = [0] * len(arguments)
        todo = list(range(len(arguments)))
        try:
            while todo:
                running = [
                    (index, _start(worker.run, computation, arguments[index]))
                    for index, worker in zip(todo, self._connected())
                ]
                todo = todo[len(running) :]
                for index, future in running:
                    try:
                        results[index] = future.result()
                    except WorkerError as error:
                        losses[index] += 1
                        if losses[index] > self._max_retries:
                            raise WorkerError(
                                f"A part of the clients lost {losses[index]} workers, "
                                f"the last one so: {error}"
                            ) from error
                        logging.warning("%s Its clients run on another one.", error)
                        todo.append(index)
        except BaseException:
            self.close("the computation was broken off")
            raise
        return [results[index] for index in range(len(arguments))]

    def _connected(self) -> list[_Worker]:
        """Returns the workers that are there; waits for one if there is none."""
        lost = [worker for worker in self._workers if not worker.is_connected]
        attempts = [worker.connect() for worker in lost]
        end = time.monotonic() + self._limits.connect
        waiting = set(attempts)
        while waiting and len(lost) == len(self._workers):
            done, waiting = concurrent.futures.wait(
                waiting,
                timeout=max(0.0, end - time.monotonic()),
                return_when=concurrent.futures.FIRST_COMPLETED,
            )
            if not done or any(each.exception() is None for each in done):
                break
        connected = [worker for worker in self._workers if worker.is_connected]
        if not connected:
            raise WorkerError(
                "No worker is left. " + " ".join(worker.loss for worker in lost)
            )
        return connected
