"""The clients of a cohort, trained many at a time: whether, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import policy
from tff_drift.execution.local.graphs import functions
from tff_drift.execution.local.graphs.phase_functions import PhaseFunction
from tff_drift.execution.local.graphs.prepare import GraphCache
from tff_drift.execution.local.plans.plan import Leaf, Operation, distinct
from tff_drift.execution.local.policy import TurnSize
from tff_drift.execution.local.pure.client_graph import ClientGraph
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.in_lockstep import InLockstep
from tff_drift.execution.local.stacked.in_turns import InTurns
from tff_drift.execution.local.stacked.interface import StackedComputation
from tff_drift.execution.local.values import sequences
from tff_drift.execution.local.values.client_batches import (
    BatchCache,
    Batches,
    ClientSequence,
    read_batches,
)


class NotStackedError(Exception):
    """The clients of a computation are not stacked; the message is the reason."""


class Route(NamedTuple):
    """How a cohort is trained.

    Attributes:
      chunks: The clients of each stack; none if they are trained one by one.
      reason: Why so, for people to read.
    """

    chunks: Sequence[range]
    reason: str


class StackedClients:
    """A client's computation, run for the clients of a cohort many at a time.

    Args:
      computation: The stacked computation.
      function: The computation of one client.
      accumulated: What is accumulated of clients, given or computed.
      cache: Holds the batches of datasets.
      always: Whether every cohort is to be trained so.
    """

    def __init__(
        self,
        computation: StackedComputation,
        function: PhaseFunction,
        accumulated: Iterable[Leaf],
        cache: BatchCache,
        always: bool,
    ) -> None:
        self._computation = computation
        self._function = function
        self._cache = cache
        self._always = always
        self._impossible: str | None = None
        self._datasets = [
            leaf
            for leaf in function.inputs
            if sequences.is_sequence(leaf.type_signature)
        ]
        # What the clients bring besides, and may be of another shape for each.
        self._of_any_shape = [
            leaf
            for leaf in distinct([*function.inputs, *accumulated])
            if leaf.at_clients
            and leaf not in function.outputs
            and not functions.leaf_spec(leaf.type_signature).shape.is_fully_defined()
        ]

    @property
    def manner(self) -> str:
        """How clients go along together, for people to read."""
        return self._computation.manner

    @property
    def condition(self) -> str:
        """Which cohorts are trained so, for people to read."""
        return self._impossible or policy.when_stacked(self._always)

    def decide(
        self, values: Mapping[Leaf, Any], num_clients: int, at_least: int
    ) -> Route:
        """Decides how a cohort is to be trained, and builds nothing.

        It is stacked if its clients take many steps together, which is a matter of
        the shapes of their batches, and if its batches need not be read anew in every
        round.

        Args:
          values: The values of the leaves that the computation takes.
          num_clients: The number of clients.
          at_least: The number of chunks, if there are as many clients.
        """
        if self._impossible is not None:
            return Route((), self._impossible)
        chunks = policy.chunks(num_clients, at_least, self._computation.client_bytes)
        if not chunks:
            return Route((), "the cohort is empty")
        for leaf in self._of_any_shape:
            if len({tuple(value.shape) for value in values.get(leaf, ())}) > 1:
                return Route((), "the clients bring tensors of different shapes")
        reason = "batch_clients is True"
        if not self._always:
            for leaf in self._datasets:
                if not all(map(_is_repeatable, values.get(leaf, (None,)))):
                    return Route((), "a dataset gives other batches every time")
                turns = self.turns(values[leaf], leaf, chunks)
                enough, reason = policy.steps_come_together(turns)
                if not enough:
                    return Route((), reason)
        return Route(chunks, reason)

    def build(self, chunks: Iterable[range]) -> bool:
        """Builds the functions for some chunks; returns whether it can be done."""
        try:
            for size in {len(chunk) for chunk in chunks}:
                self._computation.build(size)
        except UnsupportedGraphError as error:
            self._impossible = f"TensorFlow cannot vectorize it: {error}"
        return self._impossible is None

    def route(
        self, values: Mapping[Leaf, Any], num_clients: int, at_least: int
    ) -> Route:
        """Decides as `decide` does, and builds what the decision needs."""
        route = self.decide(values, num_clients, at_least)
        if route.chunks and not self.build(route.chunks):
            return self.decide(values, num_clients, at_least)
        return route

    def knows_batches(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether the datasets are there, and not yet to be computed.

        Args:
          values: The values of leaves.
        """
        return all(leaf in values for leaf in self._datasets)

    def turns(
        self, sequence_of: Sequence[Any], leaf: Leaf, chunks: Iterable[range]
    ) -> list[TurnSize]:
        """Returns who takes steps together over one dataset, chunk by chunk.

        Args:
          sequence_of: The clients' sequences.
          leaf: The leaf that they are values of.
          chunks: The clients of each stack.
        """
        own = [self._batches(value, leaf) for value in sequence_of]
        return [
            turn
            for chunk in chunks
            for turn in self._computation.turns([own[client] for client in chunk])
        ]

    def turns_over_datasets(
        self, values: Mapping[Leaf, Any], chunks: Iterable[range]
    ) -> list[list[TurnSize]]:
        """Returns `turns` over each dataset."""
        return [self.turns(values[leaf], leaf, chunks) for leaf in self._datasets]

    def run(
        self, values: Mapping[Leaf, Any], clients: Sequence[int]
    ) -> dict[Leaf, tf.Tensor]:
        """Runs the computation for some clients.

        Args:
          values: The values of the leaves that the computation takes.
          clients: The numbers of the clients.

        Returns:
          The stacked results.
        """
        inputs: list[Any] = []
        datasets: dict[int, Sequence[Batches]] = {}
        for position, leaf in enumerate(self._function.inputs):
            value = values[leaf]
            if sequences.is_sequence(leaf.type_signature):
                inputs.append(None)
                datasets[position] = [
                    self._batches(value[client], leaf) for client in clients
                ]
            elif leaf.at_clients:
                inputs.append(tf.stack([value[client] for client in clients]))
            else:
                inputs.append(value)
        results = self._computation.run(inputs, datasets, len(clients))
        return dict(zip(self._function.outputs, results))

    def _batches(self, value: Any, leaf: Leaf) -> Batches:
        if isinstance(value, ClientSequence):
            return value.batches(self._cache)
        return read_batches(value, leaf.type_signature.element)


@dataclasses.dataclass(frozen=True)
class Stacking:
    """What stacked computations are built with.

    Attributes:
      graphs: Where graphs come from, with `Dataset.reduce` in its first form: where
        the loops over datasets are taken out, they cannot be told any more.
      cache: Holds the batches of datasets.
      batch_clients: False: never stack; True: whenever possible; None: if it pays.
    """

    graphs: GraphCache
    cache: BatchCache
    batch_clients: bool | None

    def build(
        self,
        steps: Sequence[Operation],
        wanted: Iterable[Leaf],
        accumulated: Iterable[Leaf],
        one_at_a_time: bool,
    ) -> StackedClients:
        """Stacks the operations of every client, if that is possible and may pay.

        Args:
          steps: The operations.
          wanted: The leaves wanted of what they compute, among others.
          accumulated: What is accumulated of clients, given or computed.
          one_at_a_time: Whether calls have to keep their order.

        Returns:
          The stacked clients, without functions yet.

        Raises:
          NotStackedError: If they are not to be stacked.
        """
        has_datasets = any(
            sequences.is_sequence(leaf.type_signature) and leaf.at_clients
            for step in steps
            for leaf in step.inputs
        )
        _require(
            policy.stacking_asked_for(self.batch_clients, has_datasets, one_at_a_time)
        )
        function = PhaseFunction(steps, wanted, self.graphs)
        computation = self._stack(function)
        _require(
            policy.stacking_may_pay(self.batch_clients, computation.has_convolution)
        )
        return StackedClients(
            computation,
            function,
            accumulated,
            self.cache,
            always=bool(self.batch_clients),
        )

    def _stack(self, function: PhaseFunction) -> StackedComputation:
        ways: dict[str, Callable[[ClientGraph], StackedComputation]] = {
            InTurns.manner: lambda graph: InTurns(graph, self.cache),
            InLockstep.manner: InLockstep,
        }
        obstacles = []
        for manner, build in ways.items():
            try:
                return build(_client_graph(function))
            except UnsupportedGraphError as error:
                obstacles.append(f"not {manner}, {error}")
        raise NotStackedError("it cannot be stacked: " + "; ".join(obstacles))


def _require(decision: policy.Decision) -> None:
    if not decision.holds:
        raise NotStackedError(decision.reason)


def _is_repeatable(value: Any) -> bool:
    return isinstance(value, ClientSequence) and value.is_repeatable()


def _client_graph(function: PhaseFunction) -> ClientGraph:
    graph = function.function.graph
    for leaf in function.inputs:
        if sequences.is_sequence(leaf.type_signature) and not leaf.at_clients:
            raise UnsupportedGraphError("its clients share a sequence")
    if any(sequences.is_sequence(leaf.type_signature) for leaf in function.outputs):
        raise UnsupportedGraphError("it makes a sequence")
    return ClientGraph(
        graph_def=graph.as_graph_def(),
        inputs=tuple(tensor.op.name for tensor in function.function.inputs),
        specs=tuple(
            tf.nest.flatten(sequences.element_spec(leaf.type_signature.element))
            if sequences.is_sequence(leaf.type_signature)
            else tf.TensorSpec(leaf.type_signature.shape, leaf.type_signature.dtype)
            for leaf in function.inputs
        ),
        each=tuple(leaf.at_clients for leaf in function.inputs),
        outputs=tuple(tensor.name for tensor in function.function.outputs),
    )
