"""Who takes steps together, and where the states of clients are between turns.

The clients of a cohort are independent of each other, so they need not keep step:
in every turn, those whose next batches are of one shape, and are the most, take
steps together. Clients of any sizes thus train on exactly their own batches; nothing
is padded.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_drift.execution.local import policy
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.client_batches import Batches


class States:
    """The states of clients that take steps in changing groups.

    The result of a group's step stays one stack of tensors. A client's state is a
    row of the stack that its last step gave: rows are copied only if the next group
    is another one.
    """

    def __init__(self, num_clients: int, state: TensorList) -> None:
        self._stacks: dict[int, TensorList] = {0: list(state)}
        self._place = [(0, row) for row in range(num_clients)]
        self._num_stacks = 1

    def in_order(self, group: Sequence[int]) -> list[int]:
        """Returns the clients of a group in the order that is quickest to `get`."""
        return sorted(group, key=self._place.__getitem__)

    def get(self, group: Sequence[int]) -> TensorList:
        """Returns the states of a group, stacked, given a group in order."""
        rows_of: dict[int, list[int]] = {}
        for stack, row in (self._place[client] for client in group):
            rows_of.setdefault(stack, []).append(row)
        parts = [
            take_rows(self._stacks[stack], rows) for stack, rows in rows_of.items()
        ]
        if len(parts) == 1:
            return parts[0]
        return [tf.concat(tensors, axis=0) for tensors in zip(*parts)]

    def set(self, group: Sequence[int], state: TensorList) -> None:
        """Replaces the states of a group."""
        self._stacks[self._num_stacks] = list(state)
        for row, client in enumerate(group):
            self._place[client] = (self._num_stacks, row)
        self._num_stacks += 1
        in_use = {stack for stack, _ in self._place}
        for stack in [stack for stack in self._stacks if stack not in in_use]:
            del self._stacks[stack]

    def get_all(self) -> TensorList:
        """Returns the states of all clients in the order of the clients."""
        order = self.in_order(range(len(self._place)))
        state = self.get(order)
        return take_rows(state, list(np.argsort(order)))


def take_rows(tensors: Sequence[tf.Tensor], rows: Sequence[int]) -> TensorList:
    """Returns some rows of stacked tensors, without copying if that is all."""
    if not tensors or list(rows) == list(range(tensors[0].shape[0])):
        return list(tensors)
    return [tf.gather(tensor, rows) for tensor in tensors]


class Turn(NamedTuple):
    """Steps that clients take together.

    Attributes:
      clients: The clients.
      positions: How many batches each of all clients has behind it, until the next
        turn is asked for.
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


def take_turns(batches: Sequence[Batches], states: States) -> Iterator[Turn]:
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
        num_steps = policy.steps_in_turn(num_steps, num_bytes)
        yield Turn(group, positions, num_steps)
        for client in group:
            positions[client] += num_steps


def only_turn(batches: Sequence[Batches]) -> Turn | None:
    """Returns the turn of clients who take all their steps together, or None."""
    turn = next(take_turns(batches, States(len(batches), [])), None)
    if turn is None or any(len(own) != turn.num_steps for own in batches):
        return None
    return turn
