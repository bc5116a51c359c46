"""Clients that take steps together without keeping step, see `turns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift.execution.local import patterns
from tff_drift.execution.local.policy import TurnSize
from tff_drift.execution.local.pure.client_graph import ClientGraph, CutClient
from tff_drift.execution.local.stacked.functions import num_bytes
from tff_drift.execution.local.stacked.interface import StackedComputation
from tff_drift.execution.local.stacked.stepwise import VectorizedParts
from tff_drift.execution.local.stacked.turns import (
    States,
    only_turn,
    take_rows,
    take_turns,
)
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.client_batches import (
    BatchCache,
    Batches,
    stack_batches,
)


class InTurns(StackedComputation):
    """A computation that takes a step for every batch of its datasets.

    Args:
      graph: The computation of one client.
      cache: Keeps the stacks of cohorts that come again.

    Raises:
      variables.UnsupportedGraphError: If it is of another kind.
    """

    manner = "step by step"

    def __init__(self, graph: ClientGraph, cache: BatchCache) -> None:
        client = CutClient(graph)
        self._cache = cache
        self._parts = VectorizedParts(client)
        self.client_bytes = max(num_bytes(loop.state_specs) for loop in client.loops)
        self.has_convolution = any(
            patterns.has_convolution(loop.operations) for loop in client.loops
        )

    def build(self, num_clients: int) -> None:
        """See `StackedComputation.build`."""
        self._parts.build(num_clients)

    def turns(self, batches: Sequence[Batches]) -> list[TurnSize]:
        """See `StackedComputation.turns`."""
        turns = take_turns(batches, States(len(batches), []))
        return [TurnSize(len(turn.clients), turn.num_steps) for turn in turns]

    def run(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> TensorList:
        """See `StackedComputation.run`."""
        loops = self._parts.client.loops
        only = [only_turn(datasets[loop.dataset]) for loop in loops]
        together = [turn for turn in only if turn is not None]
        if len(together) == len(loops):
            elements = [
                self._cache.stack(datasets[loop.dataset], turn.batches())
                for loop, turn in zip(loops, together)
            ]
            steps = [turn.num_steps for turn in together]
            return self._parts.run(inputs, num_clients, steps, elements)
        return self._run_in_turns(inputs, datasets, num_clients)

    def _run_in_turns(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> TensorList:
        done: list[TensorList] = []
        for number, loop in enumerate(self._parts.client.loops):
            state, arguments = self._parts.start(number, inputs, num_clients, done)
            states = States(num_clients, state)
            batches = datasets[loop.dataset]
            for turn in take_turns(batches, states):
                state = self._parts.take_steps(
                    number,
                    turn.num_steps,
                    states.get(turn.clients),
                    take_rows(arguments, turn.clients),
                    stack_batches(batches, turn.batches()),
                    num_clients if len(turn.clients) == num_clients else None,
                )
                states.set(turn.clients, state)
            done.append(states.get_all())
        return self._parts.finish(inputs, num_clients, done)
