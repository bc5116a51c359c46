"""The clients of a cohort, trained many at a time: whether, and in which chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tff_drift.execution.local import batches, sequences
from tff_drift.execution.local.batches import Batches
from tff_drift.execution.local.cutting import ClientGraph
from tff_drift.execution.local.graphs import GraphCache
from tff_drift.execution.local.phase_functions import PhaseFunction
from tff_drift.execution.local.planning import Leaf, Operation
from tff_drift.execution.local.stacking import StackedClient, chunk_unit
from tff_drift.execution.local.turns import InTurns
from tff_drift.execution.local.variables import UnsupportedGraphError
from tff_drift.execution.local.whole import AsWhole

# The states of the clients that are trained at a time take at most this, so that they
# stay in the processor's cache.
_STACK_BYTES = 10 * 2**20
# Where that leaves fewer clients than this, there may be as many, within more memory.
_FEW_CLIENTS = 8
_MANY_CLIENTS = 256
_MOST_STACK_BYTES = 2**27
# A step of a stack takes about as long as this many steps of single clients, if the
# model is small; benchmarks/rounds.py measures it.
_STEPS_PER_TURN = 8


class Cohort:
    """A client's computation, for many clients at a time.

    Args:
      client: The stacked computation.
      function: The computation.
      cache: Holds the batches of datasets.
      always: Whether every cohort is to be trained so.
    """

    def __init__(
        self,
        client: StackedClient,
        function: PhaseFunction,
        cache: batches.BatchCache,
        always: bool,
    ) -> None:
        self._client = client
        self._function = function
        self._cache = cache
        self._always = always
        self._unsupported = False
        of_client = max(1, client.client_bytes)
        most = max(_FEW_CLIENTS, min(_MANY_CLIENTS, _STACK_BYTES // of_client))
        self._most = max(1, min(most, _MOST_STACK_BYTES // of_client))

    def suits(
        self, values: Mapping[Leaf, Any], chunks: Sequence[Sequence[int]]
    ) -> bool:
        """Whether a cohort is to be trained so.

        It is if its clients take many steps together, which is a matter of the shapes
        of their batches, and if its batches need not be read anew in every round.

        Args:
          values: The values of the leaves that the computation takes.
          chunks: The clients, see `chunks`.
        """
        if self._unsupported or not chunks:
            return False
        if not self._always:
            for leaf in self._sequences():
                if not all(_is_repeatable(value) for value in values[leaf]):
                    return False
                own = [self._batches(value, leaf) for value in values[leaf]]
                turns = sum(
                    self._client.num_turns([own[c] for c in chunk]) for chunk in chunks
                )
                if sum(map(len, own)) < _STEPS_PER_TURN * turns:
                    return False
        return self._built({len(chunk) for chunk in chunks})

    def _built(self, sizes: Iterable[int]) -> bool:
        """Builds the functions; returns whether it can be done."""
        try:
            for size in sizes:
                self._client.build(size)
        except UnsupportedGraphError as error:
            logging.debug("Clients are trained one by one: %s.", error)
            self._unsupported = True
        return not self._unsupported

    def _sequences(self) -> list[Leaf]:
        return [
            leaf
            for leaf in self._function.inputs
            if sequences.is_sequence(leaf.type_signature)
        ]

    def chunks(self, num_clients: int, at_least: int) -> list[range]:
        """Returns the clients in parts of about one size, to be trained in turn.

        Args:
          num_clients: The number of clients.
          at_least: The number of parts, if there are as many clients.
        """
        if not num_clients:
            return []
        parts = max(-(-num_clients // self._most), min(at_least, num_clients))
        unit = min(chunk_unit(-(-num_clients // parts)), self._most)
        units = num_clients // unit
        parts = max(-(-units // (self._most // unit)), min(at_least, units))
        bounds = [units * part // parts * unit for part in range(parts)]
        bounds.append(units * unit)
        if bounds[-1] < num_clients:
            bounds.append(num_clients)
        return [range(*pair) for pair in zip(bounds, bounds[1:])]

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
        results = self._client.run(inputs, datasets, len(clients))
        return dict(zip(self._function.outputs, results))

    def _batches(self, value: Any, leaf: Leaf) -> Batches:
        if isinstance(value, batches.ClientSequence):
            return value.batches(self._cache)
        return batches.read_batches(value, leaf.type_signature.element)


def build_cohort(
    steps: Sequence[Operation],
    wanted: Iterable[Leaf],
    graphs: GraphCache,
    cache: batches.BatchCache,
    batch_clients: bool | None,
) -> Cohort | None:
    """Vectorizes the operations of every client, if that is possible and pays.

    Args:
      steps: The operations.
      wanted: The leaves wanted.
      graphs: Where graphs come from, with `Dataset.reduce` in its first form.
      cache: Holds the batches of datasets.
      batch_clients: False: never; True: whenever possible; None: if it pays.

    Returns:
      A `Cohort`, or None.
    """
    if batch_clients is False or not any(
        sequences.is_sequence(leaf.type_signature) and leaf.at_clients
        for step in steps
        for leaf in step.inputs
    ):
        return None
    function = PhaseFunction(steps, wanted, graphs)
    client = _stack(function, cache)
    if client is None or (batch_clients is None and not client.pays):
        return None
    return Cohort(client, function, cache, always=bool(batch_clients))


def _stack(function: PhaseFunction, cache: batches.BatchCache) -> StackedClient | None:
    builders: list[Callable[[ClientGraph], StackedClient]] = [
        lambda graph: InTurns(graph, cache),
        AsWhole,
    ]
    for build in builders:
        try:
            return build(_client_graph(function))
        except UnsupportedGraphError as error:
            logging.debug(
                "Clients are trained one by one, unless as a whole: %s.", error
            )
    return None


def _is_repeatable(value: Any) -> bool:
    return isinstance(value, batches.ClientSequence) and value.is_repeatable()


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
