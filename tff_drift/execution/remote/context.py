"""The execution context that spreads clients over workers on several machines."""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_drift import checks, compat
from tff_drift.execution.local import create_local_execution_context
from tff_drift.execution.remote import addresses as addresses_lib
from tff_drift.execution.remote import partition
from tff_drift.execution.remote.connection import Limits
from tff_drift.execution.remote.workers import Workers


@dataclasses.dataclass(frozen=True)
class _Plan:
    """A computation, prepared.

    Attributes:
      form: Its mergeable form, `None` if it has none.
      clients: What workers compute of it: of the form, all up to the merge, else
        the whole.
      after_merge: What workers compute after the merge, `None` if the server does.
    """

    form: compat.framework.MergeableCompForm | None
    clients: Any
    after_merge: Any = None


def _compile(computation: Any) -> _Plan:
    to_native = tff.backends.native.desugar_and_transform_to_native
    proto = compat.framework.serialize_computation(computation)
    if b"federated_secure_" in proto.SerializeToString():
        raise NotImplementedError(
            "TFF's workers have no secure aggregation, so the remote execution context "
            "does not either. Build the process without it, or simulate it with "
            "tff_drift.execution.set_local_execution_context()."
        )
    try:
        form = tff.backends.native.compile_to_mergeable_comp_form(computation)
    except ValueError as error:
        logging.warning(
            "A computation cannot be spread over workers, because one of its "
            "aggregations depends on another. It runs on one worker. (%s)",
            str(error).splitlines()[0],
        )
        return _Plan(None, to_native(computation))
    after_merge = None
    if partition.mentions_clients(form.after_merge.type_signature.result):
        after_merge = to_native(form.after_merge)
    return _Plan(form, to_native(form.up_to_merge), after_merge)


class RemoteExecutionContext(compat.framework.SyncContext):
    """Runs TFF computations, see `create_remote_execution_context`."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._server = create_local_execution_context()
        # They go with the computations that they are for.
        self._plans: weakref.WeakKeyDictionary[Any, _Plan] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def takes_batches_on_demand(self) -> bool:
        """False: TFF's workers are sent datasets."""
        return False

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        """False: what workers send is merged, so that states are collected.

        Args:
          client_bytes: The size of one client's state, in bytes.
          num_clients: The number of clients in the cohort.
        """
        del client_bytes, num_clients
        return False

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation.

        Args:
          comp: A `tff.Computation`.
          arg: Its argument, `None` if it has none.

        Returns:
          The result, as TFF's native execution context returns it.

        Raises:
          NotImplementedError: If the computation aggregates securely.
          TypeError: If the argument is not of the parameter's type.
          ValueError: If parts of the argument are of different numbers of
            clients.
          WorkerError: If no worker is left, or a part of the clients has lost too
            many.
        """
        # Out of any graph that the caller may be building.
        with self._lock, tf.init_scope():
            parameter = comp.type_signature.parameter
            if not partition.mentions_clients(parameter):
                return self._server.invoke(comp, arg)
            plan = self._plans.get(comp)
            if plan is None:
                plan = self._plans[comp] = _compile(comp)
            if plan.form is None:
                result = self._workers.run(plan.clients, [arg])
                return partition.join(result, comp.type_signature.result)
            parts = partition.split(arg, parameter, len(self._workers))
            merged = functools.reduce(
                functools.partial(self._merge, plan.form),
                self._workers.run(plan.clients, parts),
            )
            return self._after_merge(plan, arg, parts, merged)

    def _merge(
        self, form: compat.framework.MergeableCompForm, one: Any, two: Any
    ) -> Any:
        return self._server.invoke(form.merge, _pair(one, two))

    def _after_merge(
        self, plan: _Plan, argument: Any, parts: Sequence[Any], merged: Any
    ) -> Any:
        assert plan.form is not None
        types = plan.form.after_merge.type_signature
        # TFF's worker cannot return the values of no client.
        has_clients = partition.count_clients(argument, types.parameter[0]) > 0
        if plan.after_merge is None or not has_clients:
            # What does not depend on the clients needs none.
            nobody = partition.take_clients(argument, types.parameter[0], slice(0))
            return self._server.invoke(plan.form.after_merge, _pair(nobody, merged))
        arguments = [_pair(part, merged) for part in parts]
        results = self._workers.run(plan.after_merge, arguments)
        return partition.join(results, types.result)

    def close(self) -> None:
        """Ends the connections to the workers, which go on running."""
        self._workers.close("the context was closed")


def _pair(one: Any, two: Any) -> compat.structure.Struct:
    return compat.structure.Struct.unnamed(one, two)


def create_remote_execution_context(
    addresses: Sequence[str],
    *,
    connect_seconds: float = 30.0,
    heartbeat_seconds: float = 20.0,
    part_seconds: float = 3600.0,
    max_retries: int = 3,
) -> RemoteExecutionContext:
    """Returns an execution context that trains clients on several machines.

    Start a worker on every machine (`python -m tff_drift.execution.start_worker
    --port=8000`) and pass their addresses. The clients of a cohort are dealt to the
    workers in equal numbers, in order. What a worker has aggregated of its clients
    comes back, and this process merges it and does the server's part; a computation
    without clients runs here altogether. It is TFF's own engine on the workers, and
    TFF's own split of computations, its mergeable form.

    Results are those of TFF's native context, up to the rounding of sums that are
    added up in another order. That order depends on the number of addresses alone:
    a run that loses workers on the way gives the same numbers, bit for bit.

    A worker that is lost in the middle of a computation, because it has died, is
    stopped or cannot be reached, is noticed within `2 * heartbeat_seconds`, and its
    clients run again on another worker. It is used again once it is back.

    Connections are neither encrypted nor authenticated, see `docs/remote.md`.

    Args:
      addresses: The workers, as `host:port`.
      connect_seconds: How long to wait for all workers to answer at first, and for
        any, when all were lost.
      heartbeat_seconds: How long a busy worker may take for a sign of life. It is
        asked for one every so many seconds.
      part_seconds: How long a worker may take for its part of a computation, that
        is, for training all of its clients of a round. Longer than the longest
        healthy one.
      max_retries: How often a part of the clients is run again whose worker was
        lost.

    Returns:
      An execution context for `tff.framework.set_default_context`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an address is no `host:port` or there twice, a number of seconds
        is not positive, or `max_retries` is negative.
      WorkerError: If a worker does not answer, or is no worker of TFF.
    """
    checked = addresses_lib.check_addresses(addresses)
    checks.check_positive("connect_seconds", connect_seconds)
    checks.check_positive("heartbeat_seconds", heartbeat_seconds)
    checks.check_positive("part_seconds", part_seconds)
    checks.check_integer("max_retries", max_retries, 0)
    limits = Limits(connect_seconds, heartbeat_seconds, part_seconds)
    return RemoteExecutionContext(Workers(checked, limits, max_retries))


def set_remote_execution_context(addresses: Sequence[str], **options: Any) -> None:
    """Makes `create_remote_execution_context`'s result TFF's default context.

    Args:
      addresses: The workers, as `host:port`.
      **options: The other arguments of `create_remote_execution_context`, by name.

    Raises:
      TypeError: If an argument has the wrong type, or an option is unknown.
      ValueError: If an address is no `host:port` or there twice, a number of seconds
        is not positive, or `max_retries` is negative.
      WorkerError: If a worker does not answer, or is no worker of TFF.
    """
    compat.framework.set_default_context(
        create_remote_execution_context(addresses, **options)
    )
