"""The devices and threads on which clients run, and TensorFlow's options for them."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tff_drift import checks


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices and threads on which computations run.

    Attributes:
      server_device: The device of server computations, None for TensorFlow's
        choice.
      client_devices: The devices of clients; client i runs on the i-th, modulo
        their number. Empty for TensorFlow's choice.
      max_concurrent_clients: How many clients run at a time.
      pool: The threads that run clients.
    """

    server_device: str | None
    client_devices: tuple[str, ...]
    max_concurrent_clients: int
    pool: concurrent.futures.ThreadPoolExecutor

    def client_device(self, client: int) -> str | None:
        """Returns the device of a client, counted from 0."""
        if not self.client_devices:
            return None
        return self.client_devices[client % len(self.client_devices)]

    @property
    def on_cpus(self) -> bool:
        """Whether clients run on CPUs only."""
        given = self.client_devices
        names = given or [each.name for each in tf.config.list_logical_devices()]
        return all("CPU:" in name for name in names)

    def in_order(self, run: Callable[[int], Any], number: int) -> Iterator[Any]:
        """Yields `run(0)`, `run(1)`, ..., a few of them running at a time.

        Args:
          run: What to run.
          number: How often.
        """
        ahead: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        try:
            for client in range(number):
                # As many again as there are threads: none waits for the accumulation.
                if len(ahead) >= 2 * self.max_concurrent_clients:
                    yield ahead.popleft().result()
                ahead.append(self.pool.submit(_run_on_thread, run, client))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
            concurrent.futures.wait(ahead)

    def map(
        self, function: Callable[[Any], Any], values: Sequence[Any]
    ) -> Iterator[Any]:
        """Yields a function's results in the order of the values, as `in_order`."""
        return self.in_order(lambda number: function(values[number]), len(values))


def _run_on_thread(run: Callable[[int], Any], number: int) -> Any:
    # TensorFlow keeps such options for each thread.
    with function_options():
        return run(number)


@contextlib.contextmanager
def function_options() -> Iterator[None]:
    """Allows calls by several threads at a time, whatever the functions hold.

    Where a graph seems to need more than 200 MB, TensorFlow's memory optimizer puts
    sums of many tensors into variables of their own. Outside a session all calls of a
    function have the same ones, so that two calls at a time end in an
    `AlreadyExistsError`. Functions that are called here first stay without.
    """
    eager = eager_context.context()
    given = eager.function_call_options
    eager.function_call_options = _without_variables(
        given.executor_type, given.config_proto_serialized
    )
    try:
        yield
    finally:
        eager.function_call_options = given


@functools.lru_cache(maxsize=16)
def _without_variables(
    executor_type: str | None, config: bytes
) -> eager_context.FunctionCallOptions:
    changed = tf.compat.v1.ConfigProto.FromString(config)
    options = changed.graph_options.rewrite_options
    options.memory_optimization = options.MANUAL
    return eager_context.FunctionCallOptions(executor_type, changed)


def set_operation_threads(number: int) -> None:
    """Sets among how many threads TensorFlow splits an operation, for good.

    Args:
      number: The number of threads.

    Raises:
      RuntimeError: If TensorFlow has started with another number.
      TypeError: If it is not an integer.
      ValueError: If it is below 1 or above 32,768.
    """
    checks.check_integer("operation_threads", number, 1, 2**15)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(number)
    except RuntimeError as error:
        if os.environ.get("TF_NUM_INTRAOP_THREADS") != str(number):
            raise RuntimeError(
                f"operation_threads={number} comes too late: TensorFlow has run "
                "operations already. Create the context before anything else, or set "
                f"TF_NUM_INTRAOP_THREADS={number} in the environment of the program."
            ) from error
