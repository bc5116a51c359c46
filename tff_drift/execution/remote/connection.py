"""A connection to TFF's worker on another machine, on which nothing waits for ever.

TFF's own stub has no time limit, and where a worker has gone it tries again without
end. Here a call that fails because of the worker is a `WorkerError`. While a worker
computes it is asked for signs of life: one that has died, that is stopped, or whose
network is gone gives none, however long the computation may rightly take.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.execution.worker import WorkerError

_MESSAGE_BYTES = 2 * 1000**3
_CHANNEL_OPTIONS = [
    ("grpc.max_message_length", _MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    # A worker that is being started is found soon after it listens.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Every connection on its own: a new one is not to wait for an old one's backoff.
    ("grpc.use_local_subchannel_pool", 1),
]
# TFF's worker does not know this method. That it says so is a sign of life.
SIGN_OF_LIFE = "/grpc.health.v1.Health/Check"
# How gRPC tells that the other side is gone, or, FAILED_PRECONDITION, that it is
# another process than the one that we had spoken to.
_GONE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.FAILED_PRECONDITION,
)
_START_COMMAND = "python -m tff_drift.execution.start_worker --port=PORT"


@dataclasses.dataclass(frozen=True)
class Limits:
    """Time limits, in seconds.

    Attributes:
      connect: How long to wait for a worker to answer at first.
      heartbeat: How long a worker may take for a sign of life, and how long to wait
        before asking for the next one.
      part: How long a worker may take for its part of a computation.
    """

    connect: float
    heartbeat: float
    part: float


@compat.tf_computation
def _trial() -> Any:
    return np.int32(1)


class _UnwatchedChannel:
    """A channel whose state TFF's stub does not watch.

    gRPC watches in a thread, which prints a traceback if the channel is closed.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self.unary_unary = channel.unary_unary

    def subscribe(self, *arguments: Any, **options: Any) -> None:
        """Does nothing."""


class _Stub(compat.framework.RemoteExecutorGrpcStub):
    """TFF's stub, which tells its connection when the worker is gone."""

    def __init__(self, channel: grpc.Channel, connection: Connection) -> None:
        super().__init__(_UnwatchedChannel(channel))
        self._connection = connection


def _guarded(name: str) -> Any:
    call = getattr(compat.framework.RemoteExecutorGrpcStub, name)

    def guarded_call(self: _Stub, request: Any) -> Any:
        try:
            return call(self, request)
        # A closed channel raises a `ValueError`.
        except (grpc.RpcError, compat.framework.RetryableError, ValueError) as error:
            explained = self._connection.explain(error)
            if explained is error:
                raise
            raise explained from error

    return guarded_call


def _forgiving(name: str) -> Any:
    call = getattr(compat.framework.RemoteExecutorGrpcStub, name)

    def forgiving_call(self: _Stub, request: Any) -> Any:
        # A worker that is gone has nothing left to dispose of.
        with contextlib.suppress(
            grpc.RpcError, compat.framework.RetryableError, ValueError
        ):
            return call(self, request)

    return forgiving_call


for _name in (
    "get_executor",
    "create_value",
    "create_struct",
    "create_call",
    "create_selection",
    "compute",
):
    setattr(_Stub, _name, _guarded(_name))
for _name in ("dispose", "dispose_executor"):
    setattr(_Stub, _name, _forgiving(_name))


class Connection:
    """One connection to a worker; once it is lost, it stays so."""

    def __init__(self, address: str, limits: Limits) -> None:
        """Connects to a worker.

        Args:
          address: As `host:port`.
          limits: The time limits.

        Raises:
          WorkerError: If there is no worker of TFF, or it does not answer in time.
        """
        self.address = address
        self._limits = limits
        self._loss = ""
        self._channel = grpc.insecure_channel(address, _CHANNEL_OPTIONS)
        self._sign_of_life = self._channel.unary_unary(SIGN_OF_LIFE)
        if not self._lives(limits.connect, wait_for_ready=True):
            self.close("it did not answer")
            raise WorkerError(
                f"No worker answered at {address} within {limits.connect:g} seconds. "
                f"Start one on that machine with: {_START_COMMAND}"
            )
        stub = _Stub(self._channel, self)

        def executor_stack(
            cardinalities: dict[Any, int],
        ) -> compat.framework.RemoteExecutor:
            cardinalities.setdefault(compat.CLIENTS, 0)
            executor = compat.framework.RemoteExecutor(stub)
            executor.set_cardinalities(cardinalities)
            return executor

        self._context = compat.framework.SyncExecutionContext(
            executor_fn=compat.framework.ResourceManagingExecutorFactory(
                executor_stack
            ),
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )
        self._try_out()

    def _try_out(self) -> None:
        try:
            answer = self.run(
                tff.backends.native.desugar_and_transform_to_native(_trial), None
            )
        except grpc.RpcError as error:
            self.close("it is no worker")
            raise WorkerError(
                f"What answers at {self.address} is no worker of TFF "
                f"{tff.__version__}: {_details(error)}. Start one with: "
                f"{_START_COMMAND}"
            ) from error
        assert answer == 1

    def run(self, computation: Any, argument: Any) -> Any:
        """Runs a computation on the worker.

        Args:
          computation: A `tff.Computation`, compiled for TFF's native backend.
          argument: Its argument, `None` if it has none.

        Returns:
          The result.

        Raises:
          WorkerError: If the worker is gone or takes too long.
        """
        with self._watched():
            return self._context.invoke(computation, argument)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        done = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(done,), name="tff-drift-watch", daemon=True
        )
        watch.start()
        try:
            yield
        finally:
            done.set()

    def _watch(self, done: threading.Event) -> None:
        """Closes the channel, and so ends its calls, when the worker shows no life."""
        heartbeat = self._limits.heartbeat
        end = time.monotonic() + self._limits.part
        while not done.wait(max(0.0, min(heartbeat, end - time.monotonic()))):
            if time.monotonic() >= end:
                self.close(
                    f"it did not finish its part within {self._limits.part:g} seconds"
                )
                return
            if not self._lives(heartbeat):
                self.close(f"it gave no sign of life within {heartbeat:g} seconds")
                return

    def _lives(self, seconds: float, wait_for_ready: bool = False) -> bool:
        try:
            self._sign_of_life(b"", timeout=seconds, wait_for_ready=wait_for_ready)
        except grpc.RpcError as error:
            return error.code() not in _GONE
        except ValueError:
            return False  # The channel was closed meanwhile.
        return True

    def close(self, reason: str) -> None:
        """Ends the connection and all calls on it.

        Args:
          reason: Why, as the part of a sentence; the first one counts.
        """
        self._loss = self._loss or reason
        self._channel.close()

    def explain(self, error: Exception) -> Exception:
        """Returns the error to raise for one of gRPC.

        Args:
          error: The error.

        Returns:
          A `WorkerError` if the worker is gone, else the error itself.
        """
        code = error.code() if isinstance(error, grpc.Call) else None
        if not self._loss:
            if code not in _GONE:
                return error
            self.close(f"the connection was lost ({_details(error)})")
        return WorkerError(f"Worker {self.address} was lost: {self._loss}.")


def _details(error: Exception) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
