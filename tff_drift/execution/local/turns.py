"""Clients that take steps together without keeping step.

The clients of a cohort are independent of each other, so they need not keep step:
in every turn, those whose next batches are of one shape, and are the most, take
steps together. Clients of any sizes thus train on exactly their own batches; nothing
is padded.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_drift.execution.local.batches import BatchCache, Batches, stack_batches
from tff_drift.execution.local.cutting import ClientGraph, CutClient, Tensors
from tff_drift.execution.local.stacking import StackedClient, num_bytes
from tff_drift.execution.local.vectorizing import VectorizedClient

# The batches that are read for a turn take at most this.
_ELEMENT_BYTES = 2**24


class InTurns(StackedClient):
    """A computation that takes a step for every batch of its datasets.

    Args:
      graph: The computation of one client.
      cache: Keeps the stacks of cohorts that come again.

    Raises:
      variables.UnsupportedGraphError: If it is of another kind.
    """

    def __init__(self, graph: ClientGraph, cache: BatchCache) -> None:
        client = CutClient(graph)
        self._cache = cache
        self._client = VectorizedClient(client)
        self.client_bytes = max(num_bytes(loop.state_specs) for loop in client.loops)
        # Filters of the clients' own are applied one client after the other.
        self.pays = not any(
            "Conv" in operation
            for loop in client.loops
            for operation in loop.operations
        )

    def build(self, num_clients: int) -> None:
        """See `StackedClient.build`."""
        self._client.build(num_clients)

    def num_turns(self, batches: Sequence[Batches]) -> int:
        """See `StackedClient.num_turns`."""
        turns = _turns(batches, _States(len(batches), []))
        return sum(turn.num_steps for turn in turns)

    def run(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> Tensors:
        """See `StackedClient.run`."""
        loops = self._client.client.loops
        only = [_only_turn(datasets[loop.dataset]) for loop in loops]
        together = [turn for turn in only if turn is not None]
        if len(together) == len(loops):
            elements = [
                self._cache.stack(datasets[loop.dataset], turn.batches())
                for loop, turn in zip(loops, together)
            ]
            steps = [turn.num_steps for turn in together]
            return self._client.run(inputs, num_clients, steps, elements)
        return self._run_in_turns(inputs, datasets, num_clients)

    def _run_in_turns(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> Tensors:
        done: list[Tensors] = []
        for number, loop in enumerate(self._client.client.loops):
            state, arguments = self._client.start(number, inputs, num_clients, done)
            states = _States(num_clients, state)
            batches = datasets[loop.dataset]
            for turn in _turns(batches, states):
                state = self._client.take_steps(
                    number,
                    turn.num_steps,
                    states.get(turn.clients),
                    _rows(arguments, turn.clients),
                    stack_batches(batches, turn.batches()),
                    num_clients if len(turn.clients) == num_clients else None,
                )
                states.set(turn.clients, state)
            done.append(states.get_all())
        return self._client.finish(inputs, num_clients, done)


class _States:
    """The states of clients that take steps in changing groups.

    The result of a group's step stays one stack of tensors. A client's state is a
    row of the stack that its last step gave: rows are copied only if the next group
    is another one.
    """

    def __init__(self, num_clients: int, state: Tensors) -> None:
        self._stacks: dict[int, Tensors] = {0: list(state)}
        self._place = [(0, row) for row in range(num_clients)]
        self._num_stacks = 1

    def in_order(self, group: Sequence[int]) -> list[int]:
        """Returns the clients of a group in the order that is quickest to `get`."""
        return sorted(group, key=self._place.__getitem__)

    def get(self, group: Sequence[int]) -> Tensors:
        """Returns the states of a group, stacked, given a group in order."""
        rows_of: dict[int, list[int]] = {}
        for stack, row in (self._place[client] for client in group):
            rows_of.setdefault(stack, []).append(row)
        parts = [_rows(self._stacks[stack], rows) for stack, rows in rows_of.items()]
        if len(parts) == 1:
            return parts[0]
        return [tf.concat(tensors, axis=0) for tensors in zip(*parts)]

    def set(self, group: Sequence[int], state: Tensors) -> None:
        """Replaces the states of a group."""
        self._stacks[self._num_stacks] = list(state)
        for row, client in enumerate(group):
            self._place[client] = (self._num_stacks, row)
        self._num_stacks += 1
        in_use = {stack for stack, _ in self._place}
        for stack in [stack for stack in self._stacks if stack not in in_use]:
            del self._stacks[stack]

    def get_all(self) -> Tensors:
        """Returns the states of all clients in the order of the clients."""
        order = self.in_order(range(len(self._place)))
        state = self.get(order)
        return _rows(state, list(np.argsort(order)))


def _rows(tensors: Sequence[tf.Tensor], rows: Sequence[int]) -> Tensors:
    """Returns some rows of stacked tensors, without copying if that is all."""
    if not tensors or list(rows) == list(range(tensors[0].shape[0])):
        return list(tensors)
    return [tf.gather(tensor, rows) for tensor in tensors]


class _Turn(NamedTuple):
    """Steps that clients take together.

    Attributes:
      clients: The clients.
      positions: How many batches each of all clients has behind it.
      num_steps: The number of steps.
    """

    clients: list[int]
    positions: list[int]
    num_steps: int

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yields client and number of the batches, step by step, client by client."""
        for step in range(self.num_steps):
            for client in self.clients:
                yield client, self.positions[client] + step


def _turns(batches: Sequence[Batches], states: _States) -> Iterator[_Turn]:
    """Yields who takes steps together."""
    positions = [0] * len(batches)
    while True:
        waiting: dict[Any, list[int]] = collections.defaultdict(list)
        for client, (own, position) in enumerate(zip(batches, positions)):
            if position < len(own):
                waiting[own.shapes[position]].append(client)
        if not waiting:
            return
        group = states.in_order(max(waiting.values(), key=len))
        # While all of them go on with batches of that shape, no others are more.
        num_steps = min(batches[c].run_lengths[positions[c]] for c in group)
        num_bytes = sum(batches[c].num_bytes[positions[c]] for c in group)
        num_steps = min(num_steps, max(1, _ELEMENT_BYTES // max(1, num_bytes)))
        yield _Turn(group, positions, num_steps)
        for client in group:
            positions[client] += num_steps


def _only_turn(batches: Sequence[Batches]) -> _Turn | None:
    """Returns the turn of clients who take all their steps together, or None."""
    turn = next(_turns(batches, _States(len(batches), [])), None)
    if turn is None or any(len(own) != turn.num_steps for own in batches):
        return None
    return turn
