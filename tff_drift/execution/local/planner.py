"""Plans: what a federated computation does, on whom and in what order.

A computation is evaluated once, symbolically: the leaves of its values are `Leaf`
objects, and every local computation that it runs becomes an `Operation`. Moving data
around (broadcast, zip, selection) only rearranges leaves and costs nothing. Operations
fall into phases:

    server function  ->  client function, for every client  ->  accumulation

All server operations of a phase become one TensorFlow function, and so do all
client operations and all accumulations. Most learning processes have a single
client phase, followed by a last server function.

Secure sums are those of the protocols, without their cryptography, as in
`tff.backends.test`: the values are added up, after a check that they are in the range
for which the protocol is set up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

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

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence."""
        return isinstance(self.type_signature, compat.SequenceType)

    @property
    def spec(self) -> tf.TensorSpec:
        """That of its tensor, a scalar variant for a sequence."""
        if self.is_sequence:
            return tf.TensorSpec((), tf.variant)
        return tf.TensorSpec(self.type_signature.shape, self.type_signature.dtype)


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


def build_plan(computation: Any) -> Plan:
    """Plans a computation.

    Args:
      computation: A `tff.Computation`.

    Returns:
      The plan.

    Raises:
      NotImplementedError: If the computation holds something that the local
        execution context does not support.
    """
    planner = _Planner()
    function = planner.evaluate(_compiled(computation), {})
    types = language.function_type(function)
    argument = None
    parameters: tuple[Leaf, ...] = ()
    if types.parameter is not None:
        parameters = tuple(_placed_leaves(types.parameter))
        argument = language.pack(types.parameter, iter(parameters))
    result = planner.call(function, argument)
    if isinstance(types.result, compat.FunctionType) or not _is_data(result):
        raise NotImplementedError(
            "The local execution context does not return functions: the result has "
            f"type {types.result}."
        )
    return Plan(parameters, result, _phases(planner.steps, language.leaves(result)))


def _is_data(value: Any) -> bool:
    if isinstance(value, compat.structure.Struct):
        return all(_is_data(element) for element in value)
    return isinstance(value, Leaf)


def _placed_leaves(
    type_signature: compat.Type, at_clients: bool = False
) -> Iterator[Leaf]:
    """Yields new leaves for a value that comes from outside."""
    if isinstance(type_signature, compat.FederatedType):
        each = (
            type_signature.placement is compat.CLIENTS and not type_signature.all_equal
        )
        yield from _placed_leaves(type_signature.member, each)
    elif isinstance(type_signature, compat.StructType):
        for _, element in compat.structure.iter_elements(type_signature):
            yield from _placed_leaves(element, at_clients)
    else:
        for leaf_type in language.leaf_types(type_signature):
            yield Leaf(leaf_type, at_clients, 0)


class _Planner(language.Interpreter):
    """Evaluates a computation into `steps`."""

    def __init__(self) -> None:
        self.steps: list[Operation | Aggregation] = []

    def call_graph(
        self, block: compat.framework.CompiledComputation, argument: Any
    ) -> Any:
        """Plans a local computation of the server."""
        return self._run(block, argument, block.type_signature.result, False)

    def literal(self, block: compat.framework.Literal) -> Any:
        """Plans a constant."""
        constant = compat.framework.Lambda(None, None, block)
        function = language.Closure(constant, {})
        return self._run(function, None, block.type_signature, False)

    def call_intrinsic(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        """Plans an intrinsic."""
        name = block.uri
        result_type = block.type_signature.result
        if name in _REARRANGING:
            return argument
        if name in _MAPS:
            function, value = argument
            return self._run(function, value, result_type, _MAPS[name])
        if name in _WITHOUT_ARGUMENT:
            at_clients = _WITHOUT_ARGUMENT[name]
            return self._run(argument, None, result_type, at_clients)
        if name == "federated_aggregate":
            return self._aggregate(block, argument)
        if name == "federated_select":
            return self._select(block, argument)
        if name in _SECURE:
            function = _in_the_open(name, block.type_signature)
            return self.call(self.evaluate(function, {}), argument)
        if name in ("sequence_map", "sequence_reduce", "sequence_sum"):
            return self._run(block, argument, result_type, False)
        raise NotImplementedError(
            f"The local execution context does not support the intrinsic {name!r}."
        )

    def _run(
        self,
        function: language.Function,
        argument: Any,
        result_type: compat.Type,
        at_clients: bool,
    ) -> Any:
        inputs = distinct([*language.leaves(function), *language.leaves(argument)])
        phase = max((leaf.phase for leaf in inputs), default=0)
        outputs = tuple(
            Leaf(leaf_type, at_clients, phase)
            for leaf_type in language.leaf_types(result_type)
        )
        self.steps.append(
            Operation(at_clients, phase, function, argument, inputs, outputs)
        )
        return language.pack(result_type, iter(outputs))

    def _aggregate(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        value, zero, accumulate, _, report = argument
        state_type = language.function_type(accumulate).parameter[0]
        accumulators = tuple(
            Leaf(leaf_type, False, 0) for leaf_type in language.leaf_types(state_type)
        )
        inputs = distinct([*language.leaves(accumulate), *language.leaves(value)])
        zeros = tuple(language.leaves(zero))
        phase = max((leaf.phase for leaf in (*inputs, *zeros)), default=0)
        outputs = tuple(
            Leaf(leaf.type_signature, False, phase + 1) for leaf in accumulators
        )
        self.steps.append(
            Aggregation(
                phase,
                accumulate,
                language.pack(state_type, iter(accumulators)),
                value,
                zeros,
                inputs,
                accumulators,
                outputs,
            )
        )
        total = language.pack(state_type, iter(outputs))
        return self._run(report, total, block.type_signature.result, False)

    def _select(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        # The clients' keys, the server's value and the function of both are all
        # that a client needs to make its own sequence.
        keys, _, server_value, select = argument
        selection = language.Struct.unnamed(keys, server_value, select)
        return self._run(block, selection, block.type_signature.result, True)


# Intrinsics after which every leaf is where it was, or counts as being there.
_REARRANGING = frozenset(
    {
        "federated_broadcast",
        "federated_value_at_clients",
        "federated_value_at_server",
        "federated_zip_at_clients",
        "federated_zip_at_server",
    }
)
# Those that run a function, and whether every client does.
_MAPS = {
    "federated_apply": False,
    "federated_map": True,
    "federated_map_all_equal": False,
}
_WITHOUT_ARGUMENT = {
    "federated_eval_at_server": False,
    "federated_eval_at_clients": True,
}
_SECURE = frozenset(
    {
        "federated_secure_modular_sum",
        "federated_secure_select",
        "federated_secure_sum",
        "federated_secure_sum_bitwidth",
    }
)


def _compiled(computation: Any) -> compat.framework.ComputationBuildingBlock:
    """Returns a computation without some intrinsics, as TFF's native compiler does."""
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    return block


# Made once for a type: an aggregation of metrics has many of a few types.
@functools.lru_cache(maxsize=64)
def _in_the_open(name: str, type_signature: compat.FunctionType) -> Any:
    """Returns a function that does what a secure intrinsic does."""
    argument = compat.framework.Reference("argument", type_signature.parameter)
    intrinsic = compat.framework.Intrinsic(name, type_signature)
    call = compat.framework.Call(intrinsic, argument)
    function = compat.framework.Lambda("argument", argument.type_signature, call)
    secure = compat.framework.ConcreteComputation.from_building_block(function)
    return _compiled(tff.backends.test.replace_secure_intrinsics_with_bodies(secure))


def _phases(
    steps: Sequence[Operation | Aggregation], results: Iterable[Leaf]
) -> tuple[Phase, ...]:
    """Returns the steps that the results need, phase by phase."""
    needed = set(results)
    kept: list[Operation | Aggregation] = []
    for step in reversed(steps):
        if needed.isdisjoint(step.outputs):
            continue
        kept.append(step)
        needed.update(step.inputs)
        if isinstance(step, Aggregation):
            needed.update(step.zeros)
    kept.reverse()
    operations = [step for step in kept if isinstance(step, Operation)]
    aggregations = [step for step in kept if isinstance(step, Aggregation)]
    return tuple(
        Phase(
            tuple(s for s in operations if s.phase == phase and not s.at_clients),
            tuple(s for s in operations if s.phase == phase and s.at_clients),
            tuple(s for s in aggregations if s.phase == phase),
        )
        for phase in range(1 + max((step.phase for step in kept), default=0))
    )
