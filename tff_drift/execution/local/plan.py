"""Plans: what a federated computation does, on whom and in what order.

Moving data around (broadcast, zip, selection) only rearranges leaves and costs
nothing. Local computations, the operations, fall into phases:

    server function  ->  client function, for every client  ->  accumulation

All server operations of a phase become one TensorFlow function, and so do all
client operations and all accumulations. Most learning processes have a single
client phase, followed by a last server function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from tff_drift import compat
from tff_drift.execution.local import language


@dataclasses.dataclass(eq=False)
class Leaf:
    """A tensor or sequence in the plan.

    Attributes:
      type_signature: Its type, a `tff.TensorType` or a `tff.SequenceType`.
      at_clients: Whether every client has its own. Otherwise there is one; what
        is equal at all clients counts as that.
      phase: The phase that computes it, 0 for arguments.
    """

    type_signature: compat.Type
    at_clients: bool
    phase: int


@dataclasses.dataclass(eq=False)
class Operation:
    """A local computation, of the server or of every client.

    Attributes:
      at_clients: Whether every client runs it.
      phase: The phase in which it runs.
      function: What runs, a function value whose free names have values with
        leaves among `inputs`.
      argument: The argument, a tree with leaves among `inputs`, or None.
      inputs: The leaves that it needs.
      outputs: The leaves that it computes.
    """

    at_clients: bool
    phase: int
    function: language.Function
    argument: Any
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]


@dataclasses.dataclass(eq=False)
class Aggregation:
    """The accumulation of client values, in the order of the clients.

    Attributes:
      phase: The phase whose client values are accumulated. The result belongs to
        the next one.
      function: From accumulator and client value to accumulator.
      state: The accumulator as an argument of `function`, a tree of the leaves
        `accumulators`.
      value: The client value, a tree with leaves among `inputs`.
      zeros: The leaves with the first accumulator.
      inputs: The leaves that an accumulation needs besides the accumulator.
      accumulators: Stand for the accumulator before an accumulation.
      outputs: The accumulator in the end.
    """

    phase: int
    function: language.Function
    state: Any
    value: Any
    zeros: tuple[Leaf, ...]
    inputs: tuple[Leaf, ...]
    accumulators: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]


@dataclasses.dataclass(frozen=True)
class Phase:
    """The work between two exchanges of server and clients.

    Attributes:
      server: Operations of the server, which come first.
      clients: Operations of every client.
      aggregations: Accumulations of client values.
    """

    server: tuple[Operation, ...]
    clients: tuple[Operation, ...]
    aggregations: tuple[Aggregation, ...]

    def needs(self) -> Iterator[Leaf]:
        """Yields the leaves that have to be there for some part of the phase."""
        for operation in (*self.server, *self.clients):
            yield from operation.inputs
        for aggregation in self.aggregations:
            yield from aggregation.inputs
            yield from aggregation.zeros


@dataclasses.dataclass(frozen=True)
class Plan:
    """A federated computation.

    Attributes:
      parameters: The leaves of the argument.
      result: The result, a tree of leaves.
      phases: The phases, in their order.
    """

    parameters: tuple[Leaf, ...]
    result: Any
    phases: tuple[Phase, ...]


def distinct(leaves: Iterable[Leaf]) -> tuple[Leaf, ...]:
    """Returns leaves, each once, in the order of their first occurrence."""
    return tuple(dict.fromkeys(leaves))
