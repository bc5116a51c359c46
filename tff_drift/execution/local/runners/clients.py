"""The clients of a cohort, trained many at a time: whether, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from tff_drift import checks
from tff_drift.execution.local import policy
from tff_drift.execution.local.client_program.parts import ClientGraph
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.variables import UnsupportedGraphError
from tff_drift.execution.local.data import sequences
from tff_drift.execution.local.data.client_data import (
    ClientData,
    MemoryBudget,
    TooManyBytesError,
    read_variant,
)
from tff_drift.execution.local.graphs import functions
from tff_drift.execution.local.graphs.functions import PhaseFunction
from tff_drift.execution.local.plan.plan import Leaf, distinct
from tff_drift.execution.local.runners.options import Options
from tff_drift.execution.local.runners.vectorized import Group, VectorizedRunner


class NotVectorizedError(Exception):
    """The clients of a computation are not vectorized; the message is the reason."""


class Route(NamedTuple):
    """The groups in which a cohort is trained, if it is vectorized.

    Attributes:
      groups: The clients of each group; none if they are trained one by one.
      reason: The reason, as text for users.
    """

    groups: Sequence[Any]
    reason: str


class VectorizedClients:
    """A client's computation, run for the clients of a cohort many at a time.

    Args:
      function: The computation of one client.
      accumulated: What is accumulated of clients, given or computed.
      summed: Of what they compute, that of which no more is wanted than the sum over
        clients.
      options: How computations run. There are no functions for this yet.

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
        self._runner = _build_runner(function, summed, options)
        self._function = function
        self._options = options
        self._always = bool(options.batch_clients)
        self._impossible: str | None = None
        self._datasets = {
            position: leaf
            for position, leaf in enumerate(function.inputs)
            if sequences.is_sequence(leaf.type_signature)
        }
        self._leaves = distinct(self._datasets.values())
        # What the clients bring besides, and may be of another shape for each.
        self._of_any_shape = [
            leaf
            for leaf in distinct([*function.inputs, *accumulated])
            if leaf.at_clients
            and leaf not in function.outputs
            and not functions.leaf_spec(leaf.type_signature).shape.is_fully_defined()
        ]

    @property
    def condition(self) -> str:
        """The cohorts that are trained in this way, as text for users."""
        return self._impossible or policy.when_vectorized(
            self._options.limits, self._always
        )

    def route(self, values: Mapping[Leaf, Any], num_clients: int) -> Route:
        """Decides how a cohort is to be trained, and builds the functions for that.

        It is vectorized if its clients take many steps together, which is a matter of
        the shapes of their batches, and the model is small.

        Args:
          values: The values of the leaves that the computation takes.
          num_clients: The number of clients.
        """
        placement = self._options.placement
        if self._impossible is not None:
            return Route((), self._impossible)
        if not num_clients:
            return Route((), "the cohort is empty")
        for leaf in self._of_any_shape:
            if len({tuple(value.shape) for value in values.get(leaf, ())}) > 1:
                return Route((), "the clients bring tensors of different shapes")
        if not self._always and not self._are_given(values):
            return Route((), "its datasets are made by the computation")
        again = self._runner.passes > 1 or len(self._leaves) < len(self._datasets)
        if again and not self._are_repeatable(values):
            return Route((), "datasets that vary are passed over several times")
        try:
            datasets = self._read(values)
            if datasets is None:
                return Route((), policy.too_large(self._options.limits))
            known = [values.get(leaf) for leaf in self._function.inputs]
            groups = self._runner.groups(datasets, known, placement)
        except UnsupportedGraphError as error:
            return Route((), str(error))
        reason = "batch_clients is True"
        if not self._always:
            pays, reason = policy.vectorizing_pays(
                self._options.limits,
                [group.lockstep_steps for group in groups],
                max(group.state_bytes for group in groups),
                placement.on_cpus,
                self._runner.goes_back,
                self._runner.num_patch_values(groups),
            )
            if not pays:
                return Route((), reason)
        try:
            for group in groups:
                self._runner.build(group)
        except UnsupportedGraphError as error:
            self._impossible = f"TensorFlow cannot vectorize it: {error}"
            return Route((), self._impossible)
        if any(group.on_rows for group in groups):
            reason += "; of tables, on the rows that batches name"
        return Route(groups, reason)

    def give_up(self, error: tf.errors.OpError) -> None:
        """Trains all later cohorts sequentially, and warns of it.

        Masked clients and padding take steps that nobody takes one by one, and a
        conversion may want what the operation does not.

        Args:
          error: What vectorized clients raised, and one by one do not.
        """
        self._impossible = warn_of_failure(error)

    def is_decided_by(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether `route` can be asked for: the datasets are among the values."""
        return all(leaf in values for leaf in self._datasets.values())

    def _are_given(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether the clients' datasets are arguments, which are read once only."""
        return all(
            isinstance(value, ClientData)
            for leaf in self._datasets.values()
            for value in values[leaf]
        )

    def _are_repeatable(self, values: Mapping[Leaf, Any]) -> bool:
        """Whether every pass over the clients' datasets gives the same batches."""
        return all(
            isinstance(value, ClientData) and value.is_repeatable()
            for leaf in self._datasets.values()
            for value in values[leaf]
        )

    def _read(
        self, values: Mapping[Leaf, Any]
    ) -> dict[int, Sequence[ClientData]] | None:
        """Reads the clients' batches; returns None if they take too much memory."""
        budget = MemoryBudget(self._options.limits.read_bytes)
        read: dict[Leaf, Sequence[ClientData]] = {}
        try:
            for leaf in self._leaves:
                element_type = leaf.type_signature.element
                read[leaf] = self._read_all(values[leaf], element_type, budget)
        except TooManyBytesError:
            return None
        return {position: read[leaf] for position, leaf in self._datasets.items()}

    def _read_all(
        self, datasets: Sequence[Any], element_type: Any, budget: MemoryBudget
    ) -> list[ClientData]:
        """Returns datasets with their batches; a few of them are read at a time."""

        def read(dataset: Any) -> ClientData:
            if isinstance(dataset, ClientData):
                return dataset.read(self._options.batches, budget)
            return read_variant(dataset, element_type, budget)

        known = [
            dataset.known(self._options.batches)
            if isinstance(dataset, ClientData)
            else None
            for dataset in datasets
        ]
        # Handing them to threads takes longer than returning those that are there.
        unknown = [
            each for each, own in zip(datasets, known, strict=True) if own is None
        ]
        were_read = iter(self._options.placement.map(read, unknown))
        return [next(were_read) if own is None else own for own in known]

    def run(self, values: Mapping[Leaf, Any], group: Group) -> dict[Leaf, tf.Tensor]:
        """Runs the computation for some clients.

        Args:
          values: The values of the leaves that the computation takes.
          group: The clients.

        Returns:
          The results, stacked in the order of the group, or summed.
        """
        inputs: list[Any] = []
        for position, leaf in enumerate(self._function.inputs):
            value = values[leaf]
            if position in self._datasets:
                inputs.append(None)
            elif leaf.at_clients:
                inputs.append([value[client] for client in group.clients])
            else:
                inputs.append(value)
        results = self._runner.run(inputs, group)
        return dict(zip(self._function.outputs, results, strict=True))


def _build_runner(
    function: PhaseFunction, summed: Collection[Leaf], options: Options
) -> VectorizedRunner:
    """Vectorizes the operations of every client, if that is possible and may pay."""
    asked_for = options.batch_clients
    has_datasets = any(
        sequences.is_sequence(leaf.type_signature) and leaf.at_clients
        for step in function.steps
        for leaf in step.inputs
    )
    # To know the last, the function has to be built.
    one_at_a_time = has_datasets and asked_for is not False and function.one_at_a_time
    require(policy.vectorizing_asked_for(asked_for, has_datasets, one_at_a_time))
    try:
        client = ClientProgram(client_graph(function, summed))
        runner = options.runners.get(client.content)
        if runner is None:
            runner = VectorizedRunner(client, options)
            options.runners[client.content] = runner
    except UnsupportedGraphError as error:
        raise NotVectorizedError(f"it cannot be vectorized: {error}") from error
    fewest = runner.fewest_patch_values
    require(policy.vectorizing_may_pay(options.limits, asked_for, fewest))
    return runner


def warn_of_failure(error: tf.errors.OpError) -> str:
    """Warns that clients run one by one from now on, and returns the reason.

    Args:
      error: What vectorized clients raised, and one by one do not.
    """
    reason = _reason(error)
    logging.warning(
        "Clients train one by one from now on, which is slower: %s. "
        "batch_clients=False does so from the start.",
        reason,
    )
    return f"it failed when it was vectorized: {reason}"


def _reason(error: tf.errors.OpError) -> str:
    """Returns the line of an error's message that says what happened.

    The node that failed comes after it, a trace before it.
    """
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    nodes = [k for k, line in enumerate(lines) if k and line.startswith("[[")]
    line = lines[nodes[0] - 1] if nodes else (lines or [type(error).__name__])[0]
    return checks.shortened(line)


def require(decision: policy.Decision) -> None:
    """Raises, with the reason, unless a decision holds.

    Args:
      decision: The decision.
    """
    if not decision.holds:
        raise NotVectorizedError(decision.reason)


def client_graph(function: PhaseFunction, summed: Collection[Leaf]) -> ClientGraph:
    """Returns the graph of a client's computation.

    Args:
      function: The computation.
      summed: Of what clients compute, that of which the sum is wanted.
    """
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
        summed=tuple(leaf in summed for leaf in function.outputs),
    )
