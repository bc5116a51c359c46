"""Clients without datasets, many at a time: on the stacks that training left.

A second exchange in a round, such as FedNova's, works on what vectorized clients have
just computed. It is in stacks of a group's clients, and need not be taken apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import policy
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.variables import UnsupportedGraphError
from tff_drift.execution.local.data.stacks import StackedValues
from tff_drift.execution.local.graphs.functions import PhaseFunction
from tff_drift.execution.local.plan.plan import Leaf, distinct
from tff_drift.execution.local.policy import LockstepSteps
from tff_drift.execution.local.runners.clients import (
    NotVectorizedError,
    Route,
    client_graph,
    require,
    warn_of_failure,
)
from tff_drift.execution.local.runners.functions import VectorizedFunctions
from tff_drift.execution.local.runners.options import Options
from tff_drift.execution.local.runners.vectorized_loop import FunctionKey

# For any number of clients.
_KEY = FunctionKey(None, False)


class StackedGroup(NamedTuple):
    """Clients whose values are in one stack.

    Attributes:
      clients: Their numbers in the cohort.
      lockstep_steps: The steps that they take together: none.
    """

    clients: Sequence[int]
    lockstep_steps: Sequence[LockstepSteps] = ()


class StackedClients:
    """A client's computation on values of earlier phases, run on stacks of these.

    Args:
      function: The computation of one client.
      accumulated: What is accumulated of clients, given or computed.
      summed: Of what they compute, that of which no more is wanted than the sum over
        clients.
      options: How computations run.

    Raises:
      NotVectorizedError: If clients are not to be vectorized.
    """

    def __init__(
        self,
        function: PhaseFunction,
        accumulated: Iterable[Leaf],
        summed: Collection[Leaf],
        options: Options,
    ) -> None:
        self._function = function
        self._own = [
            leaf
            for leaf in distinct([*function.inputs, *accumulated])
            if leaf.at_clients and leaf not in function.outputs
        ]
        # In the first phase nothing is in stacks.
        later = bool(self._own) and function.steps[0].phase > 0
        in_turn = later and function.one_at_a_time
        require(policy.vectorizing_asked_for(options.batch_clients, later, in_turn))
        try:
            program = ClientProgram(client_graph(function, summed))
        except UnsupportedGraphError as error:
            raise NotVectorizedError(f"it cannot be vectorized: {error}") from error
        self._functions = VectorizedFunctions(program, options.limits)
        self._impossible: str | None = None

    @property
    def condition(self) -> str:
        """The cohorts that are run in this way, as text for users."""
        return self._impossible or "vectorized if what they take was vectorized before"

    def is_decided_by(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether `route` can be asked for: what clients take is among the values."""
        return all(leaf in values for leaf in self._own)

    def route(self, values: Mapping[Leaf, Any], num_clients: int) -> Route:
        """Decides how a cohort is run, as `VectorizedClients.route`."""
        del num_clients
        if self._impossible is not None:
            return Route((), self._impossible)
        groups = [
            values[leaf].groups if isinstance(values[leaf], StackedValues) else None
            for leaf in self._own
        ]
        if not groups[0] or any(each != groups[0] for each in groups):
            return Route((), "what the clients take was not vectorized before")
        try:
            self._functions.build(_KEY)
        except UnsupportedGraphError as error:
            self._impossible = f"TensorFlow cannot vectorize it: {error}"
            return Route((), self._impossible)
        return Route(list(map(StackedGroup, groups[0])), "it was vectorized before")

    def give_up(self, error: tf.errors.OpError) -> None:
        """Runs all later cohorts sequentially, and warns of it."""
        self._impossible = warn_of_failure(error)

    def run(
        self, values: Mapping[Leaf, Any], group: StackedGroup
    ) -> dict[Leaf, tf.Tensor]:
        """Runs the computation for some clients, as `VectorizedClients.run`."""
        inputs = [
            values[leaf].of_group(group.clients) if leaf.at_clients else values[leaf]
            for leaf in self._function.inputs
        ]
        results = self._functions.run(_KEY, len(group.clients), inputs, [])
        return dict(zip(self._function.outputs, results, strict=True))
