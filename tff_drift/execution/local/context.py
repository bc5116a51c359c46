"""The execution context that runs TFF computations in this process."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.execution.local import (
    batches,
    cohorts,
    devices,
    planning,
    running,
    splice,
    values,
)
from tff_drift.execution.local.graphs import GraphCache

_CACHED_PLANS = 256
# Collecting the states of a cohort copies them; from this size of one client's on,
# the copy costs more than returning them one by one.
_LARGE_CLIENT_BYTES = 2**20


class LocalExecutionContext(tff.framework.SyncContext):
    """Runs TFF computations in this process, see `create_local_execution_context`."""

    def __init__(
        self, executors: running.Executors, builders: running.Builders
    ) -> None:
        self._executors = executors
        self._builders = builders
        self._plans: collections.OrderedDict[bytes, running.RunnablePlan] = (
            collections.OrderedDict()
        )
        self._known: dict[int, tuple[Any, running.RunnablePlan, values.Assembler]] = {}
        self._lock = threading.Lock()

    @property
    def prefers_lists(self) -> bool:
        """True: a client's batches are quicker taken from a list than a dataset."""
        return True

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        """Whether the clients' new states are better returned one by one.

        Args:
          client_bytes: The size of one client's state, in bytes.
          num_clients: The number of clients in the cohort.

        Returns:
          True for states of more than 1 MiB each, which take long to copy.
        """
        del num_clients
        return client_bytes > _LARGE_CLIENT_BYTES

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation.

        Args:
          comp: A `tff.Computation`.
          arg: Its argument, None if it has none.

        Returns:
          The result, as TFF's native execution context returns it.

        Raises:
          NotImplementedError: If the computation holds something that this
            context does not support; the message names it.
          TypeError: If the argument is not of the parameter's type.
          ValueError: If parts of the argument are of different numbers of
            clients.
        """
        types = comp.type_signature
        # Out of any graph that the caller may be building.
        with tf.init_scope():
            plan, assemble = self._plan(comp)
            arguments: list[Any] = []
            num_clients = 0
            if arg is not None:
                counts = values.cardinalities(arg, types.parameter)
                num_clients = counts.get(compat.CLIENTS, 0)
                arguments = list(values.flatten_argument(arg, types.parameter))
            results = plan.run(arguments, num_clients, self._executors)
            return assemble(results, None, num_clients)

    def _plan(self, comp: Any) -> tuple[running.RunnablePlan, values.Assembler]:
        with self._lock:
            known = self._known.get(id(comp))
            if known is not None and known[0]() is comp:
                return known[1:]
            proto = tff.framework.serialize_computation(comp)
            digest = hashlib.sha256(proto.SerializeToString(deterministic=True))
            plan = self._plans.get(digest.digest())
            if plan is None:
                plan = running.RunnablePlan(_compile(comp), self._builders)
                self._plans[digest.digest()] = plan
                if len(self._plans) > _CACHED_PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(digest.digest())
            key = id(comp)
            forget = weakref.ref(comp, lambda _: self._known.pop(key, None))
            assemble = values.build_assembler(
                plan.plan.result, comp.type_signature.result
            )
            self._known[key] = (forget, plan, assemble)
            return plan, assemble


def _compile(comp: Any) -> planning.Plan:
    """Replaces intrinsics as TFF's native compiler does, and plans the rest."""
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(comp.to_building_block())
    return planning.build_plan(block)


class AsyncLocalExecutionContext(tff.framework.AsyncContext):
    """`LocalExecutionContext` for `tff.program.NativeFederatedContext`."""

    def __init__(self, context: LocalExecutionContext) -> None:
        self._context = context
        # One thread: computations follow each other in the order of their calls.
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="tff-drift-async"
        )

    @property
    def prefers_lists(self) -> bool:
        """See `LocalExecutionContext.prefers_lists`."""
        return self._context.prefers_lists

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        """See `LocalExecutionContext.prefers_states_at_clients`."""
        return self._context.prefers_states_at_clients(client_bytes, num_clients)

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation, see `LocalExecutionContext.invoke`."""
        if asyncio.iscoroutine(arg):
            arg = await arg
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._context.invoke, comp, arg)


def create_local_execution_context(
    *,
    server_device: str | None = None,
    client_devices: Sequence[str] | None = None,
    max_concurrent_clients: int | None = None,
    batch_clients: bool | None = None,
    dataset_cache_bytes: int = 2**30,
    splice_dataset_loops: bool = True,
) -> LocalExecutionContext:
    """Returns an execution context that runs computations in this process.

    It runs the computations that TFF's native execution context runs, with the
    same results, on the devices that TensorFlow sees here, a GPU included.

    Args:
      server_device: The device of server computations, such as `/GPU:0`. By
        default TensorFlow chooses.
      client_devices: The devices of client computations; the clients of a cohort
        take turns on them. By default TensorFlow chooses.
      max_concurrent_clients: How many clients are trained at a time. By default
        the number of processors this process may use, or, with `client_devices`
        given, the number of these.
      batch_clients: Whether clients are trained many at a time, in one graph that
        multiplies stacks of matrices where that of one client multiplies matrices.
        By default they are where it pays: in large cohorts of clients of like sizes,
        if the model has no convolutions or recurrent layers, and the batches are
        given as lists or as datasets that give the same batches every time. True
        does so whenever it is possible, False never. The results agree to the
        tolerance of floating-point sums. Clients whose computation cannot be
        stacked, such as that of Keras' recurrent layers, run one by one.
      dataset_cache_bytes: The memory that may hold the batches of datasets read for
        clients that are trained many at a time, and the stacked batches of cohorts
        that come again. What is kept are datasets that give the same batches every
        time, for as long as the program holds them.
      splice_dataset_loops: Whether `Dataset.reduce` runs as a loop of the graph,
        which is faster and gives the same results.

    Returns:
      An execution context for `tff.framework.set_default_context`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If there is no such device, `max_concurrent_clients` is below 1, or
        `dataset_cache_bytes` below 0.
    """
    clients: tuple[str, ...] = ()
    if client_devices is not None:
        clients = devices.check_devices("client_devices", client_devices)
    if server_device is not None:
        devices.check_devices("server_device", [server_device])
    if max_concurrent_clients is None:
        max_concurrent_clients = len(clients or os.sched_getaffinity(0))
    checks.check_integer("max_concurrent_clients", max_concurrent_clients, 1)
    checks.check_integer("dataset_cache_bytes", dataset_cache_bytes, 0)
    if batch_clients not in (None, True, False):
        raise TypeError(
            f"batch_clients must be True, False or None, found {batch_clients!r}."
        )
    pool = concurrent.futures.ThreadPoolExecutor(
        max_concurrent_clients, thread_name_prefix="tff-drift-client"
    )
    executors = running.Executors(server_device, clients, max_concurrent_clients, pool)
    rewrites = [splice.splice_dataset_loops] if splice_dataset_loops else []
    graphs = GraphCache([*rewrites, devices.pin_datasets_to_cpu])
    build_cohort = functools.partial(
        cohorts.build_cohort,
        # Where the loops over datasets are taken out, they cannot be told any more.
        graphs=GraphCache(),
        cache=batches.BatchCache(dataset_cache_bytes),
        batch_clients=batch_clients,
    )
    return LocalExecutionContext(executors, running.Builders(graphs, build_cohort))


def set_local_execution_context(**options: Any) -> None:
    """Makes `create_local_execution_context`'s result TFF's default context.

    Args:
      **options: As there.

    Raises:
      TypeError: As there.
      ValueError: As there.
    """
    tff.framework.set_default_context(create_local_execution_context(**options))


def create_async_local_execution_context(
    context: LocalExecutionContext,
) -> AsyncLocalExecutionContext:
    """Returns the context in the form that TFF's program library wants.

    Args:
      context: What `create_local_execution_context` returned.

    Returns:
      A context for `tff.program.NativeFederatedContext`.
    """
    return AsyncLocalExecutionContext(context)
