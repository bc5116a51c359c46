"""What the ways to train many clients at a time have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift.execution.local.placement import Placement
from tff_drift.execution.local.policy import TurnSize
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.batches import Batches


@dataclasses.dataclass(frozen=True)
class Group:
    """Clients that are trained in one stack.

    Attributes:
      clients: Their numbers in the cohort.
      turns: How many of them take steps together, turn by turn.
    """

    clients: Sequence[int]
    turns: Sequence[TurnSize]


class StackedComputation(abc.ABC):
    """A client's computation, for many clients at a time.

    Attributes:
      manner: How clients go along, for people to read.
      has_convolution: Whether there is a convolution among its operations.
      state_bytes: The size of what a client's steps change, in bytes.
      passes: How often at most it passes over a dataset.
      goes_back: Whether it gathers its batches, and passes over them there and back.
    """

    manner: str
    has_convolution: bool
    state_bytes: int
    passes: int
    goes_back: bool

    @abc.abstractmethod
    def groups(
        self, datasets: Mapping[int, Sequence[Batches]], placement: Placement
    ) -> list[Group]:
        """Divides a cohort into groups, which are trained one after the other.

        Args:
          datasets: By the position of the input, the batches of every client.
          placement: Where clients run: on several devices if there are as many.

        Raises:
          variables.UnsupportedGraphError: If clients with such batches cannot be
            stacked.
        """

    @abc.abstractmethod
    def build(self, group: Group) -> None:
        """Builds the functions for a group, unless it has been done.

        Args:
          group: One of `groups`.

        Raises:
          variables.UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """

    @abc.abstractmethod
    def run(self, inputs: Sequence[Any], group: Group) -> TensorList:
        """Runs the computation for a group.

        Args:
          inputs: A value for each of its inputs, a list of one for each client of the
            group if they have their own; None for a dataset.
          group: One of `groups`.

        Returns:
          The results, stacked in the order of the group, or summed, as
          `ClientGraph.summed` has it.
        """
