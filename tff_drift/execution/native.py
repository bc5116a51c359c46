"""TFF's native execution context, made civil.

The engine is TFF's own: computations run in its `worker_binary`. What differs
from `tff.backends.native` is how the worker lives: it starts within a time
limit, its output does not mix with ours, it never outlives this process, and a
worker that dies in the middle of a computation gives an error, not a hang.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import grpc
import tensorflow_federated as tff

from tff_drift import checks, compat, signatures, system
from tff_drift.execution.worker import Worker, WorkerError, worker_binary

_MESSAGE_BYTES = 2 * 1000**3
_CHANNEL_OPTIONS = [
    ("grpc.max_message_length", _MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # A proxy of the environment has no business between us and our own child.
    ("grpc.enable_http_proxy", 0),
]
_CALLS = (
    "get_executor",
    "create_value",
    "create_struct",
    "create_call",
    "create_selection",
    "compute",
    "dispose",
)


class _WorkerStub(compat.framework.RemoteExecutorGrpcStub):
    """TFF's stub, which turns a worker's death into a clear error.

    TFF retries without end when the other side is gone. Ours is a child of this
    process: if it has ended, no retry can help.
    """

    def __init__(self, channel: grpc.Channel, worker: Worker) -> None:
        super().__init__(channel)
        self._worker = worker

    def dispose_executor(self, request: Any) -> Any:
        if self._worker.exit_code is not None:
            return None
        return super().dispose_executor(request)


def _guarded(name: str) -> Any:
    call = getattr(compat.framework.RemoteExecutorGrpcStub, name)

    def guarded_call(self: _WorkerStub, request: Any) -> Any:
        try:
            return call(self, request)
        except (grpc.RpcError, compat.framework.RetryableError) as error:
            if self._worker.exit_code is None:
                raise
            raise WorkerError(
                f"{self._worker.obituary()} If the machine ran out of memory, "
                "lower max_concurrent_computation_calls or the cohort size."
            ) from error

    return guarded_call


for _name in _CALLS:
    setattr(_WorkerStub, _name, _guarded(_name))


class _WorkerPool:
    """Starts the worker at the first computation and connects to it."""

    def __init__(self, max_concurrent_computation_calls: int, seconds: float) -> None:
        self._calls = max_concurrent_computation_calls
        self._seconds = seconds
        self._lock = threading.Lock()
        self._stub: _WorkerStub | None = None

    def stub(self) -> _WorkerStub:
        with self._lock:
            if self._stub is None:
                self._stub = self._connect()
            return self._stub

    def _connect(self) -> _WorkerStub:
        worker = Worker(self._calls)
        channel = grpc.insecure_channel(f"127.0.0.1:{worker.port}", _CHANNEL_OPTIONS)
        ready = threading.Event()

        def on_change(connectivity: grpc.ChannelConnectivity) -> None:
            if connectivity == grpc.ChannelConnectivity.READY:
                ready.set()

        channel.subscribe(on_change, try_to_connect=True)
        # The stub lives longer than this: a thread of the channel's holds it.
        weakref.finalize(self, worker.stop).atexit = False
        worker.wait_until(ready, self._seconds)
        return _WorkerStub(channel, worker)


def create_native_execution_context(
    *,
    max_concurrent_computation_calls: int | None = None,
    startup_seconds: float = 60.0,
    default_num_clients: int = 0,
    stream_structs: bool = False,
) -> compat.framework.SyncExecutionContext:
    """Returns TFF's native execution context with a well-behaved worker.

    The worker starts at the first computation. It keeps what it has run until it
    ends: when nothing holds the context any more, or with this process, however this
    process ends.

    Args:
      max_concurrent_computation_calls: How many clients are trained at a time;
        0 for no limit. The default is the number of processors this process may
        use.
      startup_seconds: How long the worker may take to start, in seconds.
      default_num_clients: The number of clients of a computation whose argument does
        not say how many there are, as of TFF's own function.
      stream_structs: Whether the elements of structures are sent one by one, as of
        TFF's own function.

    Returns:
      An execution context for `tff.framework.set_default_context`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `max_concurrent_computation_calls` or `default_num_clients` is
        negative or `startup_seconds` not positive.
      WorkerError: If TFF was installed without its worker, as on macOS and on ARM.
    """
    if max_concurrent_computation_calls is None:
        max_concurrent_computation_calls = system.processors()
    checks.check_integer(
        "max_concurrent_computation_calls", max_concurrent_computation_calls, 0
    )
    checks.check_positive("startup_seconds", startup_seconds)
    checks.check_integer("default_num_clients", default_num_clients, 0)
    checks.check_flag("stream_structs", stream_structs)
    worker_binary()  # Without it, here and not at the first computation.
    pool = _WorkerPool(max_concurrent_computation_calls, startup_seconds)

    def executor_stack(
        cardinalities: dict[Any, int],
    ) -> compat.framework.RemoteExecutor:
        cardinalities.setdefault(compat.CLIENTS, int(default_num_clients))
        executor = compat.framework.RemoteExecutor(
            pool.stub(), stream_structs=stream_structs
        )
        executor.set_cardinalities(cardinalities)
        return executor

    return compat.framework.SyncExecutionContext(
        executor_fn=compat.framework.ResourceManagingExecutorFactory(executor_stack),
        compiler_fn=tff.backends.native.desugar_and_transform_to_native,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )


@signatures.with_options_of(create_native_execution_context)
def set_native_execution_context(**options: Any) -> None:
    """Makes `create_native_execution_context`'s result TFF's default context.

    Args:
      **options: Those of `create_native_execution_context`, by name.

    Raises:
      TypeError: If an option is unknown or has the wrong type.
      ValueError: If an option is out of its range.
      WorkerError: If TFF was installed without its worker, as on macOS and on ARM.
    """
    compat.set_default_context(create_native_execution_context(**options))
