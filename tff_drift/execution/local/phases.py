"""Plans as they run: their phases' functions, made once and kept.

`PlanCache` has the plan of each computation, a `RunnablePlan` of `RunnablePhase`s.
"""

from __future__ import annotations

import collections
import hashlib
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tff_drift import aligned_memory, compat
from tff_drift.execution.local import language
from tff_drift.execution.local.aggregation import Accumulator, Aggregator
from tff_drift.execution.local.data.client_data import ClientData, as_tensor
from tff_drift.execution.local.data.conversion import Assembler, build_assembler
from tff_drift.execution.local.data.stacks import StackedValues
from tff_drift.execution.local.graphs.functions import PhaseFunction
from tff_drift.execution.local.graphs.import_graph import GraphCache
from tff_drift.execution.local.options import Options
from tff_drift.execution.local.planner import Leaf, Phase, Plan, build_plan
from tff_drift.execution.local.runners.clients import ManyClients, many_clients
from tff_drift.execution.local.runners.sequential import SequentialRunner
from tff_drift.execution.local.tensors import give_back_attributes

# What a leaf is in one run: a tensor or a sequence, or a list of one for each
# client.
LeafValues = dict[Leaf, Any]

# From such a duration of the clients' training on advice is worth a line.
_SLOW_SECONDS = 1.0


class RunnablePhase:
    """A phase, with its functions.

    Args:
      phase: The phase.
      later: The leaves that later phases need, or the result.
      result: The leaves of the result.
      graphs: Where the graphs of compiled computations come from.
      options: How it runs.

    Attributes:
      phase: The phase.
      server: Runs the server's operations, None if it has nothing to do.
      clients: Runs those of one client, None if they have nothing to do.
      vectorized: The clients' program for many at a time, None if they never are.
      why_one_by_one: The reason, if they never are.
      aggregator: The aggregations.
    """

    def __init__(
        self,
        phase: Phase,
        later: set[Leaf],
        result: set[Leaf],
        graphs: GraphCache,
        options: Options,
    ) -> None:
        self.phase = phase
        self._placement = options.placement
        aggregations = phase.aggregations
        zeros = [leaf for step in aggregations for leaf in step.zeros]
        accumulated = [leaf for step in aggregations for leaf in step.inputs]
        at_clients = [leaf for step in phase.clients for leaf in step.inputs]
        self.server: SequentialRunner | None = None
        self.clients: SequentialRunner | None = None
        self.vectorized: ManyClients | None = None
        self.why_one_by_one = ""
        self._kept: frozenset[Leaf] = frozenset()
        self._result = result
        self._has_run = False
        if phase.server:
            wanted = later.union(zeros, accumulated, at_clients)
            function = PhaseFunction(phase.server, wanted, graphs)
            function.build()
            self.server = SequentialRunner(function, options.functionalize)
        of_clients = later.union(accumulated)
        computed: frozenset[Leaf] = frozenset()
        if phase.clients:
            function = PhaseFunction(phase.clients, of_clients, graphs)
            self.clients = SequentialRunner(function, options.functionalize)
            computed = frozenset(function.outputs)
            self._kept = computed & later
        self.aggregator = Aggregator(aggregations, graphs, computed - later)
        if self.clients is not None:
            summed = self.aggregator.summed_before
            found = many_clients(function, accumulated, summed, options)
            if isinstance(found, ManyClients):
                self.vectorized = found
            else:
                self.why_one_by_one = found
                # A graph that cannot run fails at once, as a vectorized one does.
                function.build()

    def run(self, values: LeafValues, num_clients: int) -> None:
        """Runs the phase, adding to `values` what later phases need."""
        if self.server is not None:
            function = self.server.function
            tensors = _tensors(values, function.inputs, 0)
            computed = self.server(tensors, self._placement.server_device)
            values.update(zip(function.outputs, computed, strict=True))
        groups: Sequence[Any] = ()
        if self.vectorized is not None:
            groups = self.vectorized.route(values, num_clients).groups
        start = time.perf_counter()
        values.update(self._run_clients(values, groups, num_clients))
        # The first time, TensorFlow's functions are built and optimized.
        if self._has_run and time.perf_counter() - start > _SLOW_SECONDS:
            advice = self.advice(num_clients, len(groups))
            if advice is not None:
                logging.log_first_n(logging.WARNING, "A faster round: %s.", 1, advice)
        self._has_run = True

    def advice(self, num_clients: int, num_groups: int) -> str | None:
        """See `Placement.advice`: None for clients that pass over no datasets."""
        inputs = [leaf for step in self.phase.clients for leaf in step.inputs]
        if not any(leaf.is_sequence for leaf in inputs):
            return None
        return self._placement.advice(num_clients, num_groups)

    def _run_clients(
        self, values: LeafValues, groups: Sequence[Any], num_clients: int
    ) -> LeafValues:
        """Returns what later phases need, of clients in groups if there are any."""
        if not groups:
            return self._run_one_by_one(values, num_clients)
        try:
            return self._run_groups(values, groups, num_clients)
        except tf.errors.OpError as error:
            failure = error
        # Where clients fail one by one, too, that error is the one to raise.
        results = self._run_one_by_one(values, num_clients)
        assert self.vectorized is not None
        self.vectorized.give_up(failure)
        return results

    def _run_groups(
        self,
        values: LeafValues,
        groups: Sequence[Any],
        num_clients: int,
    ) -> LeafValues:
        """Returns what later phases need, of vectorized clients."""
        accumulator = Accumulator(self.aggregator, values)
        rows: LeafValues = {
            leaf: [None] * num_clients for leaf in self._kept & self._result
        }
        # What is for later phases alone stays in stacks.
        stacked = {
            leaf: StackedValues(num_clients) for leaf in self._kept - self._result
        }
        by_group = self._vectorized_results(values, groups)
        if self.aggregator.in_turn:
            by_group = _in_order_of_clients(by_group)
        for clients, stacks in by_group:
            for leaf, per_client in rows.items():
                for client, row in zip(clients, _rows(stacks[leaf]), strict=False):
                    per_client[client] = row
            for leaf, values_of_clients in stacked.items():
                values_of_clients.add(clients, stacks[leaf])
            accumulator.add_stack(clients, stacks, self._placement.server_device)
        return {**rows, **stacked, **accumulator.results()}

    def _run_one_by_one(self, values: LeafValues, num_clients: int) -> LeafValues:
        """Returns what later phases need, of one client after the other."""
        accumulator = Accumulator(self.aggregator, values)
        kept: LeafValues = {leaf: [None] * num_clients for leaf in self._kept}
        for client, results in enumerate(self._client_results(values, num_clients)):
            for leaf, per_client in kept.items():
                per_client[client] = results[leaf]
            accumulator.add(client, results, self._placement.server_device)
        return {**kept, **accumulator.results()}

    def _client_results(
        self, values: LeafValues, num_clients: int
    ) -> Iterator[dict[Leaf, tf.Tensor]]:
        """Yields the results of every client, in the order of the clients."""
        runner, placement = self.clients, self._placement
        if runner is None:
            yield from ({} for _ in range(num_clients))
            return
        # Before threads ask for it.
        runner.build()
        function = runner.function

        def run(client: int) -> dict[Leaf, tf.Tensor]:
            tensors = _tensors(values, function.inputs, client)
            results = runner(tensors, placement.client_device(client))
            self._release(values, [client])
            return dict(zip(function.outputs, results, strict=True))

        alone = function.one_at_a_time
        yield from placement.in_order(run, num_clients, one_at_a_time=alone)

    def _release(self, values: LeafValues, clients: Sequence[int]) -> None:
        """Releases the batches of clients that are finished."""
        assert self.clients is not None
        for leaf in self.clients.function.inputs:
            if leaf.is_sequence and leaf.at_clients:
                for client in clients:
                    if isinstance(values[leaf][client], ClientData):
                        values[leaf][client].release()

    def _vectorized_results(
        self, values: LeafValues, groups: Sequence[Any]
    ) -> Iterator[tuple[Sequence[int], dict[Leaf, tf.Tensor]]]:
        """Yields clients and their results, stacked or summed, group by group."""
        vectorized, placement = self.vectorized, self._placement
        assert vectorized is not None

        def run(number: int) -> tuple[Sequence[int], dict[Leaf, tf.Tensor]]:
            clients = groups[number].clients
            with tf.device(placement.client_device(number)):
                results = vectorized.run(values, groups[number])
            self._release(values, clients)
            return clients, results

        yield from placement.in_order(run, len(groups))


def _in_order_of_clients(
    results: Iterator[tuple[Sequence[int], dict[Leaf, tf.Tensor]]],
) -> Iterator[tuple[Sequence[int], dict[Leaf, tf.Tensor]]]:
    """Yields the results of all groups as one, since their order matters."""
    groups, stacks = zip(*results, strict=True)
    order = [client for clients in groups for client in clients]
    if order == sorted(order):
        yield from zip(groups, stacks, strict=True)
        return
    places = np.argsort(order)
    yield (
        range(len(order)),
        {
            leaf: tf.gather(tf.concat([stack[leaf] for stack in stacks], 0), places)
            for leaf in stacks[0]
        },
    )


def _tensors(
    values: LeafValues, inputs: Sequence[Leaf], client: int
) -> list[tf.Tensor]:
    """Returns a tensor for each input; a client's number says whose they are.

    Of a dataset that draws random numbers each is another one, which starts over.
    """
    made: dict[Leaf, tf.Tensor] = {}
    tensors = []
    for leaf in inputs:
        value = values[leaf][client] if leaf.at_clients else values[leaf]
        draws = isinstance(value, ClientData) and value.draws_random_numbers()
        if draws or leaf not in made:
            made[leaf] = as_tensor(value)
        tensors.append(made[leaf])
    return tensors


def _rows(stack: tf.Tensor) -> list[tf.Tensor]:
    """Copies the rows, so that keeping one frees the stack."""
    rows = tf.unstack(stack)
    give_back_attributes(rows)
    if stack.shape[1:].num_elements() * stack.dtype.size % aligned_memory.BOUNDARY:
        return rows
    # Rows that all start at a boundary are no copies, but parts of the stack.
    copies = [tf.raw_ops.DeepCopy(x=row) for row in rows]
    give_back_attributes(copies)
    return copies


class RunnablePlan:
    """A plan whose functions are built at its first run.

    Args:
      plan: The plan.
      options: How it runs.

    Attributes:
      plan: The same.
      options: The same.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.options = options
        # The graphs belong to the plan, and go with it.
        self._graphs = GraphCache()
        self._phases: list[RunnablePhase] | None = None
        self._lock = threading.Lock()

    def phases(self) -> list[RunnablePhase]:
        """Returns the phases, with their functions."""
        with self._lock:
            if self._phases is None:
                phases = []
                result = set(language.leaves(self.plan.result))
                later = result
                for phase in reversed(self.plan.phases):
                    phases.append(
                        RunnablePhase(phase, later, result, self._graphs, self.options)
                    )
                    later = later.union(phase.needs())
                self._phases = phases[::-1]
            return self._phases

    def run(self, arguments: Sequence[Any], num_clients: int) -> LeafValues:
        """Runs the plan.

        Args:
          arguments: A tensor, or a list of one for each client, for each of the
            plan's parameters.
          num_clients: The number of clients.

        Returns:
          The values of, among others, the leaves of the result.
        """
        values: LeafValues = dict(zip(self.plan.parameters, arguments, strict=True))
        for phase in self.phases():
            phase.run(values, num_clients)
        return values


class PlanCache:
    """Plans every computation once.

    A plan, with its functions and what TensorFlow holds for them, threads included,
    lives as long as a computation that it is for. Equal computations share one; for
    programs that make them again and again, a few of those used last live on.

    Args:
      options: How the plans run.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        # By the content of the computation.
        self._plans: weakref.WeakValueDictionary[bytes, RunnablePlan] = (
            weakref.WeakValueDictionary()
        )
        self._recent: collections.OrderedDict[bytes, RunnablePlan] = (
            collections.OrderedDict()
        )
        # By the computation itself, whose content takes long to look at.
        self._known: dict[int, tuple[Any, RunnablePlan, Assembler]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Returns the number of plans that are alive."""
        return len(self._plans)

    def get(self, computation: Any) -> tuple[RunnablePlan, Assembler]:
        """Returns a computation's plan, and what assembles its result.

        Args:
          computation: A `tff.Computation`.

        Raises:
          NotImplementedError: If it holds something that is not supported.
        """
        with self._lock:
            known = self._known.get(id(computation))
            if known is not None and known[0]() is computation:
                return known[1:]
            proto = compat.framework.serialize_computation(computation)
            serialized = proto.SerializeToString(deterministic=True)
            content = hashlib.sha256(serialized).digest()
            plan = self._plans.get(content)
            if plan is None:
                plan = RunnablePlan(build_plan(computation), self._options)
                self._plans[content] = plan
            self._recent[content] = plan
            self._recent.move_to_end(content)
            if len(self._recent) > self._options.limits.plans:
                self._recent.popitem(last=False)
            key = id(computation)
            forget = weakref.ref(computation, lambda _: self._known.pop(key, None))
            assemble = build_assembler(
                plan.plan.result, computation.type_signature.result
            )
            self._known[key] = (forget, plan, assemble)
            return plan, assemble
