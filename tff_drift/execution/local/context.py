"""The execution context that runs TFF computations in this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from tff_drift import checks, compat, signatures, tensors
from tff_drift.execution import containers
from tff_drift.execution.local import policy
from tff_drift.execution.local.data.batch_cache import BatchCache
from tff_drift.execution.local.data.conversion import ArgumentReader
from tff_drift.execution.local.explain import explain_plan
from tff_drift.execution.local.graphs.saved_functions import SavedFunctions
from tff_drift.execution.local.options import (
    Limits,
    Options,
    Placement,
    check_devices,
    function_options,
    set_operation_threads,
)
from tff_drift.execution.local.phases import PlanCache
from tff_drift.execution.round_runner import RoundRunner


class LocalExecutionContext(RoundRunner, compat.framework.SyncContext):
    """Runs TFF computations in this process, see `create_local_execution_context`."""

    def __init__(self, options: Options, default_num_clients: int = 0) -> None:
        self._plans = PlanCache(options)
        self._limits = options.limits
        self._reader = ArgumentReader()
        self._default_num_clients = default_num_clients

    def run_round(self, process: Any, server_state: Any, cohort: Any) -> Any:
        """Runs a round, see `RoundRunner.run_round`.

        The batches of clients are made when they train. Clients' states of more than
        1 MiB each, which take long to copy, are returned one by one.

        Args:
          process: The process.
          server_state: The server state.
          cohort: The clients, a `tff_drift.simulation.Cohort`.

        Returns:
          The output of the round, without the clients' states.
        """
        stay = cohort.state_nbytes > self._limits.collected_state_bytes
        return cohort.run(process, server_state, cohort.batches(), states_stay=stay)

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
          tf.errors.OpError: If an operation fails, such as an assertion of the
            computation.
        """
        # Out of any graph that the caller may be building.
        return tensors.eagerly(lambda: self._invoke(comp, arg))

    def _invoke(self, comp: Any, arg: Any) -> Any:
        plan, assemble = self._plans.get(comp)
        if arg is None and plan.plan.parameters:
            raise TypeError(
                f"Expected an argument of type {comp.type_signature.parameter}, "
                "found None."
            )
        arguments, num_clients = self._read(comp, arg)
        with function_options():
            results = plan.run(arguments, num_clients)
        return assemble(results, None, num_clients)

    def explain(self, computation: Any, argument: Any = None) -> str:
        """Says what a computation does here, and why, without running it.

        It names the phases of the computation; for each, what runs on the server and
        on the clients, and on which devices; whether clients train one by one or many
        at a time, vectorized, with the reason; and how each aggregation is done: summed
        or collected for many clients at once, or added one client after the other.

        The functions that a run needs are built, and stay for the run. The text is
        for people and may change between versions.

        Args:
          computation: A `tff.Computation`.
          argument: An argument as `computation` takes it, a tuple if it takes
            several. Without one, what depends on the cohort is reported as a condition.

        Returns:
          The explanation, several lines of text.

        Raises:
          NotImplementedError: If the computation holds something that this
            context does not support; the message names it.
          TypeError: If `computation` is not a computation, or the argument is not of
            the parameter's type.
          ValueError: If parts of the argument are of different numbers of
            clients.
        """
        checks.check_instance("computation", computation, compat.Computation)
        return tensors.eagerly(lambda: self._explain(computation, argument))

    def _explain(self, computation: Any, argument: Any) -> str:
        plan, _ = self._plans.get(computation)
        arguments: list[Any] | None = None
        num_clients = self._default_num_clients
        if argument is not None or computation.type_signature.parameter is None:
            arguments, num_clients = self._read(computation, argument)
        return "\n".join(explain_plan(plan, arguments, num_clients))

    def _read(self, comp: Any, arg: Any) -> tuple[list[Any], int]:
        """Returns the values of the parameter's leaves, and the number of clients."""
        if arg is None:
            return [], self._default_num_clients
        parameter = comp.type_signature.parameter
        counts = containers.cardinalities(arg, parameter)
        arguments = list(self._reader.read(arg, parameter))
        return arguments, counts.get(compat.CLIENTS, self._default_num_clients)


class AsyncLocalExecutionContext(RoundRunner, compat.framework.AsyncContext):
    """`LocalExecutionContext` for asynchronous programs, such as `tff.program`'s."""

    def __init__(self, context: LocalExecutionContext) -> None:
        self._context = context
        # One thread: computations follow each other in the order of their calls.
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="tff-drift-async"
        )

    def run_round(self, process: Any, server_state: Any, cohort: Any) -> Any:
        """See `LocalExecutionContext.run_round`; returns an awaitable."""
        return self._context.run_round(process, server_state, cohort)

    def explain(self, computation: Any, argument: Any = None) -> str:
        """See `LocalExecutionContext.explain`."""
        return self._context.explain(computation, argument)

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation, see `LocalExecutionContext.invoke`."""
        if asyncio.iscoroutine(arg):
            arg = await arg
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._context.invoke, comp, arg)


@signatures.suggesting_names(
    vectorized="batch_clients",
    max_concurrent_computation_calls="max_concurrent_clients",
)
def create_local_execution_context(
    *,
    server_device: str | None = None,
    client_devices: Sequence[str] | None = None,
    max_concurrent_clients: int | None = None,
    batch_clients: bool | None = None,
    dataset_cache_bytes: int = 2**30,
    functionalize_clients: bool = True,
    default_num_clients: int = 0,
    operation_threads: int | None = None,
    functions_folder: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
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
        two more than the processors this process may use, or, with `client_devices`
        given, the number of these.
      batch_clients: Whether clients are trained many at a time, in one graph that
        multiplies stacks of matrices where that of one client multiplies matrices.
        By default they are where it pays: if the model has no convolutions or
        recurrent layers, and enough clients take steps together. Clients of unequal
        sizes train side by side, each on exactly its own batches: one that is through
        is masked, its state held. Their datasets are read once in a round, a few at a
        time. True does so whenever it is possible, False never. The results
        agree to the tolerance of floating-point sums. Clients whose computation
        cannot be vectorized, such as that of Keras' recurrent layers, run one by one.
      dataset_cache_bytes: The RAM that may hold the batches of datasets read for
        clients that are trained many at a time, and the stacked batches of cohorts
        that come again. What is kept are datasets that give the same batches every
        time, for as long as the program holds them.
      functionalize_clients: Whether clients that train one by one run as programs of
        tensors, with a loop over their batches, where that is possible: it is faster
        and gives the same results. False runs them as the graphs that TFF makes.
      default_num_clients: The number of clients of a computation whose argument does
        not say how many there are, because it takes nothing at clients, or the same
        value for all; 0 as in TFF's own contexts.
      operation_threads: The threads among which TensorFlow splits a single operation,
        in this whole process and for good. By default as many as there are processors,
        which many small operations side by side lose time by: try 1 for models with
        attention, and for large cohorts of small models. TensorFlow takes it before
        its first operation alone.
      functions_folder: A folder in which functions that train many clients at a time
        are kept for later programs, which load them sooner than they would build them.
        Nobody else must be able to write to it: what is there is run. By default there
        is none.
      limits: The numbers by which it decides which clients are trained many at a time,
        and how many, to be tuned to a machine. By default those of `Limits()`.

    Returns:
      An execution context for `tff.framework.set_default_context`.

    Raises:
      TypeError: If an argument has the wrong type.
      RuntimeError: If TensorFlow has run operations already with another number of
        `operation_threads`.
      ValueError: If there is no such device, `max_concurrent_clients` or
        `operation_threads` is below 1, or `dataset_cache_bytes` or
        `default_num_clients` below 0.
    """
    if operation_threads is not None:
        # Before anything that starts TensorFlow, such as a look at its devices.
        set_operation_threads(operation_threads)
    clients: tuple[str, ...] = ()
    if client_devices is not None:
        clients = check_devices("client_devices", client_devices)
    if server_device is not None:
        check_devices("server_device", [server_device])
    if max_concurrent_clients is None:
        max_concurrent_clients = policy.concurrent_clients(clients)
    checks.check_integer("max_concurrent_clients", max_concurrent_clients, 1)
    checks.check_integer("dataset_cache_bytes", dataset_cache_bytes, 0)
    if batch_clients not in (None, True, False):
        raise TypeError(
            "batch_clients must be True, False or None, found "
            f"{checks.shown(batch_clients)}."
        )
    checks.check_flag("functionalize_clients", functionalize_clients)
    checks.check_integer("default_num_clients", default_num_clients, 0)
    limits = Limits() if limits is None else limits
    checks.check_instance("limits", limits, Limits)
    saved: SavedFunctions | None = None
    if functions_folder is not None:
        checks.check_path("functions_folder", functions_folder)
        saved = SavedFunctions(pathlib.Path(functions_folder))
    pool = concurrent.futures.ThreadPoolExecutor(
        max_concurrent_clients, thread_name_prefix="tff-drift-client"
    )
    placement = Placement(server_device, clients, max_concurrent_clients, pool)
    batches = BatchCache(dataset_cache_bytes, limits.cohorts)
    return LocalExecutionContext(
        Options(
            limits, placement, batch_clients, functionalize_clients, batches, saved
        ),
        int(default_num_clients),
    )


@signatures.with_options_of(create_local_execution_context)
def set_local_execution_context(**options: Any) -> None:
    """Makes `create_local_execution_context`'s result TFF's default context.

    Args:
      **options: Those of `create_local_execution_context`, by name.

    Raises:
      TypeError: If an option is unknown or has the wrong type.
      ValueError: If an option is out of its range, or names a device that is not
        there.
    """
    compat.set_default_context(create_local_execution_context(**options))


@signatures.with_options_of(create_local_execution_context)
def create_async_local_execution_context(**options: Any) -> AsyncLocalExecutionContext:
    """Returns the local context in the form that asynchronous programs want.

    It is what `tff.program.NativeFederatedContext` wraps, as it does the results of
    TFF's own `create_async_*_context` functions:

        context = tff_drift.execution.create_async_local_execution_context()
        context = tff.program.NativeFederatedContext(context)
        with tff.framework.get_context_stack().install(context):
            asyncio.run(tff.learning.programs.train_model(...))

    Computations run one after the other, in the order of their calls.

    Args:
      **options: Those of `create_local_execution_context`, by name, all of them
        optional.

    Returns:
      A context whose `invoke` is a coroutine function.

    Raises:
      TypeError: If an option is unknown or has the wrong type.
      ValueError: If an option is out of its range, or names a device that is not
        there.
    """
    return AsyncLocalExecutionContext(create_local_execution_context(**options))
