"""The schedule of a group of clients: common steps and steps of one client.

Clients of any sizes train side by side on exactly their own batches. Most batches of
a group have one shape, mostly the full one: these are taken together, and a client
that has no more of them is masked, its state held, until the others are through.
Batches of other shapes, such as the short last ones, are taken alone, client by client,
and so are the last ones of the few clients that have the most. Where a client goes on
with full batches after a short one, as in its next epoch, the others do too: both parts
alternate.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_drift.execution.local.data.client_data import ClientData
from tff_drift.execution.local.policy import LockstepSteps


class Schedule(NamedTuple):
    """The steps of a group of clients.

    Attributes:
      takes_part: Who takes each of the common steps, `bool[steps, clients]`.
      owners: Of whom the batch is that a client is given in each common step: of
        itself, or, so that there is one, of another client while it is masked.
      numbers: Which of the owner's batches that is.
      common_ends: For each part, the number of common steps up to its end.
      alone: Client and number of each batch that is taken alone, in their order.
      alone_ends: For each part, the number of steps alone up to its end.
    """

    takes_part: np.ndarray
    owners: np.ndarray
    numbers: np.ndarray
    common_ends: np.ndarray
    alone: list[tuple[int, int]]
    alone_ends: np.ndarray

    @property
    def masked(self) -> bool:
        """Whether a client is ever masked, or takes a step alone."""
        return bool(self.alone) or not self.takes_part.all()

    def padded(self, size: int) -> Schedule:
        """Returns the schedule with more clients, who do what the last one does.

        They take no steps alone: their results are dropped.

        Args:
          size: The number of clients with the padding.
        """
        clients = self.takes_part.shape[1]
        if size == clients:
            return self
        absent = [(0, 0), (0, size - clients)]
        return self._replace(
            takes_part=np.pad(self.takes_part, absent, "edge"),
            owners=np.pad(self.owners, absent, "edge"),
            numbers=np.pad(self.numbers, absent, "edge"),
        )

    def lockstep_steps(self) -> list[LockstepSteps]:
        """Returns how many clients take steps together."""
        together = collections.Counter(self.takes_part.sum(axis=1).tolist())
        turns = [LockstepSteps(clients, steps) for clients, steps in together.items()]
        return turns + [LockstepSteps(1, len(self.alone))] * bool(self.alone)


def build_schedule(batches: Sequence[ClientData], shape: Any, few: int) -> Schedule:
    """Builds the schedule of a group.

    Args:
      batches: The batches of every client.
      shape: The shapes of the batches that are taken together.
      few: Steps that no more clients than this would take together are taken alone.

    Returns:
      The schedule.
    """
    clients = len(batches)
    counts = np.array([len(own) for own in batches])
    position = np.zeros(clients, int)
    # The last batch of that shape of each client, which it is given while masked.
    last = np.full(clients, -1)
    takes_part = [np.zeros([0, clients], bool)]
    numbers = [np.zeros([0, clients], int)]
    alone: list[tuple[int, int]] = []
    common_ends: list[int] = [0]
    alone_ends: list[int] = []
    while (position < counts).any():
        runs = np.array(
            [_run(own, at, shape) for own, at in zip(batches, position, strict=True)]
        )
        ends = position + runs
        # How many steps more than a few clients take.
        runs = np.minimum(runs, np.sort(runs)[-1 - few])
        steps = np.arange(runs.max())[:, np.newaxis]
        takes_part.append(steps < runs)
        own_number = position + np.minimum(steps, runs - 1)
        numbers.append(np.where(runs, own_number, last))
        position += runs
        last = np.where(runs, position - 1, last)
        for client, own in enumerate(batches):
            end = int(ends[client])
            while end < counts[client] and not _run(own, end, shape):
                end += 1
            alone += [(client, number) for number in range(position[client], end)]
            position[client] = end
        common_ends.append(common_ends[-1] + len(steps))
        alone_ends.append(len(alone))
    given = np.concatenate(numbers)
    owners = np.broadcast_to(np.arange(clients), given.shape)
    missing = given < 0
    if missing.any():
        # Clients that have had none are given that of one who has.
        giver = int(np.argmax(given[0] >= 0))
        owners = np.where(missing, giver, owners)
        given = np.where(missing, given[0, giver], given)
    return Schedule(
        np.concatenate(takes_part),
        owners,
        given,
        np.array(common_ends[1:], np.int32),
        alone,
        np.array(alone_ends, np.int32),
    )


def _run(batches: ClientData, position: int, shape: Any) -> int:
    """Returns how many batches of a shape follow each other from a position on."""
    if position < len(batches) and batches.shapes[position] == shape:
        return batches.run_lengths[position]
    return 0


def most_frequent_shape(batches: Sequence[ClientData]) -> Any:
    """Returns the shapes that most batches have; None if there are no batches."""
    counts = collections.Counter(shape for own in batches for shape in own.shapes)
    return max(counts, key=counts.__getitem__, default=None)
