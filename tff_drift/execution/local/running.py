"""Plans turned into TensorFlow functions, and the running of these."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from tff_drift.execution.local import cohorts, evaluation
from tff_drift.execution.local.accumulation import Accumulation
from tff_drift.execution.local.batches import ClientSequence
from tff_drift.execution.local.graphs import GraphCache
from tff_drift.execution.local.phase_functions import PhaseFunction
from tff_drift.execution.local.planning import Leaf, Operation, Phase, Plan

# What a leaf is in one run: a tensor or a sequence, or a list of one for each
# client.
Values = dict[Leaf, Any]


@dataclasses.dataclass(frozen=True)
class Executors:
    """Where and how computations run.

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


@dataclasses.dataclass(frozen=True)
class Builders:
    """What the functions of a plan are built with.

    Attributes:
      graphs: Where the graphs of compiled computations come from.
      build_cohort: Of the operations of every client and of the leaves wanted, to
        what trains many clients at a time, None if they are not to be.
    """

    graphs: GraphCache
    build_cohort: Callable[
        [Sequence[Operation], Iterable[Leaf]],
        Optional[cohorts.Cohort],  # noqa: UP045
    ]


class _RunnablePhase:
    """A phase, with its functions."""

    def __init__(self, phase: Phase, later: set[Leaf], builders: Builders) -> None:
        aggregations = phase.aggregations
        zeros = [leaf for step in aggregations for leaf in step.zeros]
        accumulated = [leaf for step in aggregations for leaf in step.inputs]
        at_clients = [leaf for step in phase.clients for leaf in step.inputs]
        self.server = self.clients = self.cohort = None
        self.kept: frozenset[Leaf] = frozenset()
        if phase.server:
            wanted = later.union(zeros, accumulated, at_clients)
            self.server = PhaseFunction(phase.server, wanted, builders.graphs)
        if phase.clients:
            wanted = later.union(accumulated)
            self.clients = PhaseFunction(phase.clients, wanted, builders.graphs)
            self.kept = frozenset(self.clients.outputs) & later
            if not self.clients.one_at_a_time:
                self.cohort = builders.build_cohort(phase.clients, wanted)
        self.accumulation = Accumulation(aggregations, builders.graphs)

    def run(self, values: Values, num_clients: int, executors: Executors) -> None:
        """Runs the phase, adding to `values` what later phases need."""
        if self.server is not None:
            tensors = [_tensor(values[leaf]) for leaf in self.server.inputs]
            computed = self.server(tensors, executors.server_device)
            values.update(zip(self.server.outputs, computed))
        running = self.accumulation.begin(values)
        kept: Values = {leaf: [] for leaf in self.kept}
        device = executors.server_device
        chunks: Sequence[range] = ()
        if self.cohort is not None:
            chunks = self.cohort.chunks(num_clients, len(executors.client_devices))
        if self.cohort is not None and self.cohort.suits(values, chunks):
            for clients, stacks in self._stacked_results(values, chunks, executors):
                for leaf, per_client in kept.items():
                    per_client.extend(_rows(stacks[leaf]))
                running.add_stack(clients, stacks, device)
        else:
            for client, results in enumerate(
                self._client_results(values, num_clients, executors)
            ):
                for leaf, per_client in kept.items():
                    per_client.append(results[leaf])
                running.add(client, results, device)
        values.update(kept)
        values.update(running.results())

    def _client_results(
        self, values: Values, num_clients: int, executors: Executors
    ) -> Iterator[dict[Leaf, tf.Tensor]]:
        """Yields the results of every client, in the order of the clients."""
        function = self.clients
        if function is None:
            yield from ({} for _ in range(num_clients))
            return

        def run(client: int) -> dict[Leaf, tf.Tensor]:
            tensors = [_of_client(values, leaf, client) for leaf in function.inputs]
            results = function(tensors, executors.client_device(client))
            return dict(zip(function.outputs, results))

        if executors.max_concurrent_clients == 1 or function.one_at_a_time:
            yield from map(run, range(num_clients))
            return
        yield from _in_order(run, num_clients, executors)

    def _stacked_results(
        self, values: Values, chunks: Sequence[range], executors: Executors
    ) -> Iterator[tuple[Sequence[int], dict[Leaf, tf.Tensor]]]:
        """Yields clients and their results, stacked, in the order of the clients."""
        cohort = self.cohort
        assert cohort is not None

        def run(number: int) -> tuple[Sequence[int], dict[Leaf, tf.Tensor]]:
            with tf.device(executors.client_device(number)):
                return chunks[number], cohort.run(values, chunks[number])

        if len(chunks) == 1 or executors.max_concurrent_clients == 1:
            yield from map(run, range(len(chunks)))
            return
        yield from _in_order(run, len(chunks), executors)


def _tensor(value: Any) -> tf.Tensor:
    return value.variant() if isinstance(value, ClientSequence) else value


def _of_client(values: Values, leaf: Leaf, client: int) -> tf.Tensor:
    return _tensor(values[leaf][client] if leaf.at_clients else values[leaf])


def _rows(stack: tf.Tensor) -> list[tf.Tensor]:
    """Returns the rows, in memory of their own: one does not keep all of them."""
    return [tf.raw_ops.DeepCopy(x=row) for row in tf.unstack(stack)]


def _in_order(run: Any, num_clients: int, executors: Executors) -> Iterator[Any]:
    """Yields `run(0)`, `run(1)`, ..., a few of them running at a time."""
    running: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    try:
        for client in range(num_clients):
            # One more than there are threads: none waits for the accumulation.
            if len(running) > executors.max_concurrent_clients:
                yield running.popleft().result()
            running.append(executors.pool.submit(run, client))
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
        concurrent.futures.wait(running)


class RunnablePlan:
    """A plan whose functions are built at its first run.

    Args:
      plan: The plan.
      builders: What builds the functions.
    """

    def __init__(self, plan: Plan, builders: Builders) -> None:
        self.plan = plan
        self._builders = builders
        self._phases: list[_RunnablePhase] | None = None
        self._lock = threading.Lock()

    def _built(self) -> list[_RunnablePhase]:
        with self._lock:
            if self._phases is None:
                phases = []
                later = set(evaluation.leaves(self.plan.result))
                for phase in reversed(self.plan.phases):
                    phases.append(_RunnablePhase(phase, later, self._builders))
                    later = later.union(_needs(phase))
                self._phases = phases[::-1]
            return self._phases

    def run(
        self, arguments: Sequence[Any], num_clients: int, executors: Executors
    ) -> Values:
        """Runs the plan.

        Args:
          arguments: A tensor, or a list of one for each client, for each of the
            plan's parameters.
          num_clients: The number of clients.
          executors: Where to run.

        Returns:
          The values of, among others, the leaves of the result.
        """
        values: Values = dict(zip(self.plan.parameters, arguments))
        for phase in self._built():
            phase.run(values, num_clients, executors)
        return values


def _needs(phase: Phase) -> Iterator[Leaf]:
    for operation in (*phase.server, *phase.clients):
        yield from operation.inputs
    for aggregation in phase.aggregations:
        yield from aggregation.inputs
        yield from aggregation.zeros
