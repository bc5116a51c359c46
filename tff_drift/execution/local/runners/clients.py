"""The clients of a cohort, run many at a time: whether, and how.

`VectorizedClients` train on datasets. Clients without any, as in the second exchange of
a round, such as FedNova's, are `StackedClients`: they work on what vectorized clients
have just computed, which is in stacks of a group's clients and stays in these.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from tff_drift import checks
from tff_drift.execution.local import policy
from tff_drift.execution.local.client_program.loops import ClientGraph
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.batch_cache import MemoryBudget, TooManyBytesError
from tff_drift.execution.local.data.client_data import ClientData, read_all
from tff_drift.execution.local.data.stacks import LockstepSteps, StackedValues
from tff_drift.execution.local.graphs.functions import PhaseFunction
from tff_drift.execution.local.options import Options
from tff_drift.execution.local.planner import Leaf, distinct
from tff_drift.execution.local.runners.functions import VectorizedFunctions
from tff_drift.execution.local.runners.vectorized import Group, VectorizedRunner
from tff_drift.execution.local.runners.vectorized_loop import FunctionKey

# Of stacks: for any number of clients.
_ANY_NUMBER = FunctionKey(None, False)


class Route(NamedTuple):
    """The groups in which a cohort is trained, if it is vectorized.

    Attributes:
      groups: The clients of each group; none if they are trained one by one.
      reason: The reason, as text for users.
    """

    groups: Sequence[Any]
    reason: str


class ManyClients(abc.ABC):
    """A client's computation, run for the clients of a cohort many at a time.

    Args:
      function: The computation of one client.
      decisive: The leaves by which a cohort's route is decided.
      condition: The cohorts that are run in this way, as text for users.
    """

    def __init__(
        self, function: PhaseFunction, decisive: Sequence[Leaf], condition: str
    ) -> None:
        self._function = function
        self._decisive = decisive
        self._condition = condition
        self._impossible: str | None = None

    @property
    def condition(self) -> str:
        """The cohorts that are run in this way, as text for users."""
        return self._impossible or self._condition

    def is_decided_by(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether `route` can be asked for: what it looks at is among the values."""
        return all(leaf in values for leaf in self._decisive)

    def route(self, values: Mapping[Leaf, Any], num_clients: int) -> Route:
        """Decides how a cohort is to be run, and builds the functions for that.

        Args:
          values: The values of the leaves that the computation takes.
          num_clients: The number of clients.
        """
        if self._impossible is not None:
            return Route((), self._impossible)
        if not num_clients:
            return Route((), "the cohort is empty")
        route = self._divide(values)
        try:
            for group in route.groups:
                self._build(group)
        except UnsupportedGraphError as error:
            self._impossible = f"TensorFlow cannot vectorize it: {error}"
            return Route((), self._impossible)
        return route

    @abc.abstractmethod
    def _divide(self, values: Mapping[Leaf, Any]) -> Route:
        """Returns the groups of a cohort, for which there may be no functions yet."""

    @abc.abstractmethod
    def _build(self, group: Any) -> None:
        """Builds the function of a group, unless it has been done."""

    @abc.abstractmethod
    def run(self, values: Mapping[Leaf, Any], group: Any) -> dict[Leaf, tf.Tensor]:
        """Runs the computation for some clients.

        Args:
          values: The values of the leaves that the computation takes.
          group: The clients, one of the groups of a `Route`.

        Returns:
          The results, stacked in the order of the group, or summed.
        """

    def give_up(self, error: tf.errors.OpError) -> None:
        """Runs all later cohorts one by one, and warns of it.

        Masked clients and padding take steps that nobody takes one by one, and a
        conversion may want what the operation does not.

        Args:
          error: What clients raised here, and one by one do not.
        """
        reason = _reason(error)
        logging.warning(
            "Clients train one by one from now on, which is slower: %s. "
            "batch_clients=False does so from the start.",
            reason,
        )
        self._impossible = f"it failed when it was vectorized: {reason}"


def many_clients(
    function: PhaseFunction,
    accumulated: Iterable[Leaf],
    summed: Collection[Leaf],
    options: Options,
) -> ManyClients | str:
    """Returns a client's computation for the clients of a cohort many at a time.

    Args:
      function: The computation of one client.
      accumulated: What is accumulated of clients, given or computed.
      summed: Of what they compute, that of which no more is wanted than the sum over
        clients.
      options: How computations run.

    Returns:
      The computation, or the reason if clients are not to be vectorized.
    """
    has_datasets = any(
        leaf.is_sequence and leaf.at_clients
        for step in function.steps
        for leaf in step.inputs
    )
    own = [
        leaf
        for leaf in distinct([*function.inputs, *accumulated])
        if leaf.at_clients and leaf not in function.outputs
    ]
    asked_for = options.batch_clients
    # In the first phase nothing is in stacks.
    is_possible = has_datasets or (bool(own) and function.steps[0].phase > 0)
    # To know this, the function has to be built.
    in_turn = is_possible and asked_for is not False and function.one_at_a_time
    decision = policy.vectorizing_asked_for(asked_for, is_possible, in_turn)
    if not decision.holds:
        return decision.reason
    kind: type[VectorizedClients | StackedClients]
    kind = VectorizedClients if has_datasets else StackedClients
    try:
        program = ClientProgram(client_graph(function, summed))
        clients = kind(function, program, own, options)
    except UnsupportedGraphError as error:
        return f"it cannot be vectorized: {error}"
    except Exception as error:  # TensorFlow's own, of any class.
        said = f"{type(error).__name__}: {checks.shortened(error)}"
        return f"it cannot be vectorized: {said}"
    if isinstance(clients, VectorizedClients) and not asked_for:
        fewest = clients.runner.fewest_patch_values
        decision = policy.convolutions_pay(options.limits, fewest)
        if not decision.holds:
            return decision.reason
    return clients


class VectorizedClients(ManyClients):
    """Clients that train on their datasets, see `many_clients`.

    Attributes:
      runner: Runs their program. It has no functions yet.
    """

    def __init__(
        self,
        function: PhaseFunction,
        program: ClientProgram,
        own: Sequence[Leaf],
        options: Options,
    ) -> None:
        self._datasets = {
            position: leaf
            for position, leaf in enumerate(function.inputs)
            if leaf.is_sequence
        }
        self._options = options
        on_cpus = options.placement.on_cpus
        super().__init__(
            function,
            distinct(self._datasets.values()),
            policy.when_vectorized(options.limits, options.batch_clients, on_cpus),
        )
        runner = options.runners.get(program.content)
        if runner is None:
            runner = VectorizedRunner(program, options)
            options.runners[program.content] = runner
        self.runner: VectorizedRunner = runner
        # What the clients bring besides, and may be of another shape for each.
        self._of_any_shape = [
            leaf for leaf in own if not leaf.spec.shape.is_fully_defined()
        ]

    def _divide(self, values: Mapping[Leaf, Any]) -> Route:
        """See `ManyClients`.

        A cohort is vectorized if its clients take many steps together, which is a
        matter of the shapes of their batches, and the model is small.
        """
        for leaf in self._of_any_shape:
            if len({tuple(value.shape) for value in values.get(leaf, ())}) > 1:
                return Route((), "the clients bring tensors of different shapes")
        data = [value for leaf in self._decisive for value in values[leaf]]
        given = [value for value in data if isinstance(value, ClientData)]
        # Those that are no arguments would be made once more to be read.
        if not self._options.batch_clients and len(given) < len(data):
            return Route((), "its datasets are made by the computation")
        again = self.runner.passes > 1 or len(self._decisive) < len(self._datasets)
        if again and not (
            len(given) == len(data) and all(value.is_repeatable() for value in given)
        ):
            return Route((), "datasets that vary are passed over several times")
        try:
            datasets = self._read(values)
            known = [values.get(leaf) for leaf in self._function.inputs]
            groups = self.runner.groups(datasets, known, self._options.placement)
        except TooManyBytesError:
            most = self._options.limits.read_bytes / 2**30
            reason = f"the batches of the cohort take more than {most:.3g} GiB"
            return Route((), reason)
        except UnsupportedGraphError as error:
            return Route((), str(error))
        reason = "batch_clients is True"
        if not self._options.batch_clients:
            pays, reason = policy.vectorizing_pays(
                self._options.limits,
                [group.lockstep_steps for group in groups],
                max(group.state_bytes for group in groups),
                self._options.placement.on_cpus,
                self.runner.goes_back,
                max(self.runner.num_patch_values(group.shapes) for group in groups),
                sum(len(group.clients) for group in groups),
            )
            if not pays:
                return Route((), reason)
        if any(group.on_rows for group in groups):
            reason += "; of tables, on the rows that batches name"
        return Route(groups, reason)

    def _build(self, group: Group) -> None:
        """See `ManyClients`."""
        self.runner.build(group)

    def _read(self, values: Mapping[Leaf, Any]) -> dict[int, Sequence[ClientData]]:
        """Reads the clients' batches; returns them by the position of the input."""
        budget = MemoryBudget(self._options.limits.read_bytes)
        cache, in_order = self._options.batches, self._options.placement.in_order
        read = {
            leaf: read_all(
                values[leaf], leaf.type_signature.element, cache, budget, in_order
            )
            for leaf in self._decisive
        }
        return {position: read[leaf] for position, leaf in self._datasets.items()}

    def run(self, values: Mapping[Leaf, Any], group: Group) -> dict[Leaf, tf.Tensor]:
        """See `ManyClients.run`."""
        inputs: list[Any] = []
        for position, leaf in enumerate(self._function.inputs):
            value = values[leaf]
            if position in self._datasets:
                inputs.append(None)
            elif leaf.at_clients:
                inputs.append([value[client] for client in group.clients])
            else:
                inputs.append(value)
        results = self.runner.run(inputs, group)
        return dict(zip(self._function.outputs, results, strict=True))


class StackedGroup(NamedTuple):
    """Clients whose values are in one stack.

    Attributes:
      clients: Their numbers in the cohort.
      lockstep_steps: The steps that they take together: none.
    """

    clients: Sequence[int]
    lockstep_steps: Sequence[LockstepSteps] = ()


class StackedClients(ManyClients):
    """Clients that work on stacks of values of earlier phases, see `many_clients`."""

    def __init__(
        self,
        function: PhaseFunction,
        program: ClientProgram,
        own: Sequence[Leaf],
        options: Options,
    ) -> None:
        what = "vectorized if what they take was vectorized before"
        super().__init__(function, own, what)
        self._functions = VectorizedFunctions(program, options.limits, options.saved)

    def _divide(self, values: Mapping[Leaf, Any]) -> Route:
        """See `ManyClients`."""
        groups = [
            values[leaf].groups if isinstance(values[leaf], StackedValues) else None
            for leaf in self._decisive
        ]
        if not groups[0] or any(each != groups[0] for each in groups):
            return Route((), "what the clients take was not vectorized before")
        return Route(list(map(StackedGroup, groups[0])), "it was vectorized before")

    def _build(self, group: StackedGroup) -> None:
        """See `ManyClients`."""
        del group
        self._functions.build(_ANY_NUMBER)

    def run(
        self, values: Mapping[Leaf, Any], group: StackedGroup
    ) -> dict[Leaf, tf.Tensor]:
        """See `ManyClients.run`."""
        inputs = [
            values[leaf].of_group(group.clients) if leaf.at_clients else values[leaf]
            for leaf in self._function.inputs
        ]
        results = self._functions.run(_ANY_NUMBER, len(group.clients), inputs, [])
        return dict(zip(self._function.outputs, results, strict=True))


def _reason(error: tf.errors.OpError) -> str:
    """Returns the line of an error's message that says what happened.

    The node that failed comes after it, a trace before it.
    """
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    nodes = [k for k, line in enumerate(lines) if k and line.startswith("[[")]
    line = lines[nodes[0] - 1] if nodes else (lines or [type(error).__name__])[0]
    return checks.shortened(line)


def client_graph(function: PhaseFunction, summed: Collection[Leaf]) -> ClientGraph:
    """Returns the graph of a client's computation.

    Args:
      function: The computation.
      summed: Of what clients compute, that of which the sum is wanted.
    """
    graph = function.function.graph
    for leaf in function.inputs:
        if leaf.is_sequence and not leaf.at_clients:
            raise UnsupportedGraphError("its clients share a sequence")
    if any(leaf.is_sequence for leaf in function.outputs):
        raise UnsupportedGraphError("it makes a sequence")
    return ClientGraph(
        graph_def=graph.as_graph_def(),
        inputs=tuple(tensor.op.name for tensor in function.function.inputs),
        specs=tuple(
            tf.nest.flatten(sequences.element_spec(leaf.type_signature.element))
            if leaf.is_sequence
            else leaf.spec
            for leaf in function.inputs
        ),
        each=tuple(leaf.at_clients for leaf in function.inputs),
        outputs=tuple(tensor.name for tensor in function.function.outputs),
        summed=tuple(leaf in summed for leaf in function.outputs),
    )
