"""What the ways to train many clients at a time have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift.execution.local.policy import TurnSize
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.client_batches import Batches


class StackedComputation(abc.ABC):
    """A client's computation, for many clients at a time.

    Attributes:
      manner: How clients go along, for people to read.
      has_convolution: Whether there is a convolution among its operations.
      client_bytes: About the bytes that the state of a client takes.
    """

    manner: str
    has_convolution: bool
    client_bytes: int

    @abc.abstractmethod
    def build(self, num_clients: int) -> None:
        """Builds the functions for a number of clients, unless it has been done.

        Args:
          num_clients: The number of clients.

        Raises:
          variables.UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """

    @abc.abstractmethod
    def turns(self, batches: Sequence[Batches]) -> list[TurnSize]:
        """Returns who would take steps together, turn by turn.

        Args:
          batches: The batches of every client.
        """

    @abc.abstractmethod
    def run(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> TensorList:
        """Runs the computation for several clients.

        Args:
          inputs: A value for each of its inputs, stacked if each client has its own;
            None for a dataset.
          datasets: By the position of the input, the batches of every client.
          num_clients: The number of clients, at least 1.

        Returns:
          The results, stacked.
        """
