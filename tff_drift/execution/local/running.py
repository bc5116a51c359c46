"""Plans turned into TensorFlow functions, and the running of these."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

import tensorflow as tf

from tff_drift.execution.local import evaluation, tracing
from tff_drift.execution.local.graphs import GraphCache
from tff_drift.execution.local.planning import (
    Aggregation,
    Leaf,
    Operation,
    Phase,
    Plan,
)

Step = Union[Operation, Aggregation]
# What a leaf is in one run: a tensor, or a list of one for each client.
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


class _Function:
    """The steps of a phase at one place, as one TensorFlow function.

    Attributes:
      inputs: The leaves that it takes.
      outputs: The leaves that it returns.
      one_at_a_time: See `graphs.PreparedGraph`.
    """

    def __init__(
        self, steps: Sequence[Step], wanted: Iterable[Leaf], graphs: GraphCache
    ) -> None:
        made = dict.fromkeys(leaf for step in steps for leaf in step.outputs)
        wanted = set(wanted)
        self.outputs = tuple(leaf for leaf in made if leaf in wanted)
        self.inputs = tuple(
            dict.fromkeys(
                leaf for step in steps for leaf in _arguments(step) if leaf not in made
            )
        )
        builder = tracing.GraphBuilder(graphs)

        def body(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            values = dict(zip(self.inputs, tensors))
            for step in steps:
                results = builder.call(*_call(step, values))
                values.update(zip(step.outputs, evaluation.leaves(results)))
            return [values[leaf] for leaf in self.outputs]

        types = [leaf.type_signature for leaf in self.inputs]
        self._function = tracing.build_function(body, types)
        self.one_at_a_time = builder.one_at_a_time

    def __call__(
        self, tensors: Iterable[tf.Tensor], device: str | None
    ) -> Sequence[tf.Tensor]:
        """Runs the function on a device."""
        if device is None:
            return self._function(*tensors)
        with tf.device(device):
            return self._function(*tensors)


def _arguments(step: Step) -> tuple[Leaf, ...]:
    if isinstance(step, Aggregation):
        return (*step.accumulators, *step.inputs)
    return step.inputs


def _call(step: Step, values: dict[Leaf, tf.Tensor]) -> tuple[Any, Any]:
    """Returns the function and the argument of a step, with tensors as leaves."""
    function = evaluation.substitute(step.function, values)
    if isinstance(step, Aggregation):
        state = evaluation.substitute(step.state, values)
        value = evaluation.substitute(step.value, values)
        return function, evaluation.pair(state, value)
    return function, evaluation.substitute(step.argument, values)


class _RunnablePhase:
    """A phase, with its functions."""

    def __init__(self, phase: Phase, later: set[Leaf], graphs: GraphCache) -> None:
        aggregations = phase.aggregations
        zeros = [leaf for step in aggregations for leaf in step.zeros]
        accumulated = [leaf for step in aggregations for leaf in step.inputs]
        at_clients = [leaf for step in phase.clients for leaf in step.inputs]
        self.aggregations = aggregations
        self.server = self.clients = self.accumulate = None
        self.kept: frozenset[Leaf] = frozenset()
        if phase.server:
            wanted = later.union(zeros, accumulated, at_clients)
            self.server = _Function(phase.server, wanted, graphs)
        if phase.clients:
            self.clients = _Function(phase.clients, later.union(accumulated), graphs)
            self.kept = frozenset(self.clients.outputs) & later
        if aggregations:
            outputs = [leaf for step in aggregations for leaf in step.outputs]
            self.accumulate = _Function(aggregations, outputs, graphs)

    def run(self, values: Values, num_clients: int, executors: Executors) -> None:
        """Runs the phase, adding to `values` what later phases need."""
        if self.server is not None:
            tensors = [values[leaf] for leaf in self.server.inputs]
            results = self.server(tensors, executors.server_device)
            values.update(zip(self.server.outputs, results))
        if self.clients is not None or self.accumulate is not None:
            self._run_clients(values, num_clients, executors)

    def _run_clients(
        self, values: Values, num_clients: int, executors: Executors
    ) -> None:
        state: Sequence[tf.Tensor] = [
            values[leaf] for step in self.aggregations for leaf in step.zeros
        ]
        kept: Values = {leaf: [] for leaf in self.kept}
        for client, results in enumerate(
            self._client_results(values, num_clients, executors)
        ):
            for leaf, per_client in kept.items():
                per_client.append(results[leaf])
            if self.accumulate is not None:
                state = self._accumulated(state, values, client, results, executors)
        values.update(kept)
        outputs = [leaf for step in self.aggregations for leaf in step.outputs]
        values.update(zip(outputs, state))

    def _accumulated(
        self,
        state: Sequence[tf.Tensor],
        values: Values,
        client: int,
        results: dict[Leaf, tf.Tensor],
        executors: Executors,
    ) -> Sequence[tf.Tensor]:
        assert self.accumulate is not None
        accumulators = [
            leaf for step in self.aggregations for leaf in step.accumulators
        ]
        current = {**results, **dict(zip(accumulators, state))}
        tensors = [
            current[leaf] if leaf in current else _of_client(values, leaf, client)
            for leaf in self.accumulate.inputs
        ]
        return self.accumulate(tensors, executors.server_device)

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


def _of_client(values: Values, leaf: Leaf, client: int) -> tf.Tensor:
    return values[leaf][client] if leaf.at_clients else values[leaf]


def _in_order(
    run: Any, num_clients: int, executors: Executors
) -> Iterator[dict[Leaf, tf.Tensor]]:
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
      graphs: Where the graphs of compiled computations come from.
    """

    def __init__(self, plan: Plan, graphs: GraphCache) -> None:
        self.plan = plan
        self._graphs = graphs
        self._phases: list[_RunnablePhase] | None = None
        self._lock = threading.Lock()

    def _built(self) -> list[_RunnablePhase]:
        with self._lock:
            if self._phases is None:
                phases = []
                later = set(evaluation.leaves(self.plan.result))
                for phase in reversed(self.plan.phases):
                    phases.append(_RunnablePhase(phase, later, self._graphs))
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
