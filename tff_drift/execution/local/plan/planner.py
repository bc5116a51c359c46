"""Plans federated computations.

A computation is evaluated once, symbolically: the leaves of its values are `Leaf`
objects, and every local computation that it runs becomes an `Operation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tff_drift import compat
from tff_drift.execution.local.plan import interpreter, secure_sums, trees
from tff_drift.execution.local.plan.plan import (
    Aggregation,
    Leaf,
    Operation,
    Phase,
    Plan,
    distinct,
)


def build_plan(block: compat.framework.ComputationBuildingBlock) -> Plan:
    """Plans a computation.

    Args:
      block: The computation, a function, without the intrinsics that TFF's compiler
        replaces.

    Returns:
      The plan.

    Raises:
      NotImplementedError: If the computation holds something that the local
        execution context does not support.
    """
    planner = _Planner()
    function = planner.evaluate(block, {})
    types = trees.function_type(function)
    argument = None
    parameters: tuple[Leaf, ...] = ()
    if types.parameter is not None:
        parameters = tuple(_placed_leaves(types.parameter))
        argument = trees.pack(types.parameter, iter(parameters))
    result = planner.call(function, argument)
    if isinstance(types.result, compat.FunctionType) or not _is_data(result):
        raise NotImplementedError(
            "The local execution context does not return functions: the result has "
            f"type {types.result}."
        )
    return Plan(parameters, result, _phases(planner.steps, trees.leaves(result)))


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
        for leaf_type in trees.leaf_types(type_signature):
            yield Leaf(leaf_type, at_clients, 0)


class _Planner(interpreter.Interpreter):
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
        function = trees.Closure(constant, {})
        return self._run(function, None, block.type_signature, False)

    def call_intrinsic(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        """Plans an intrinsic."""
        name = block.uri
        result_type = block.type_signature.result
        if name in _REARRANGING:
            return argument
        if name in _AT_SERVER:
            function, value = argument
            return self._run(function, value, result_type, False)
        if name in _AT_CLIENTS:
            function, value = argument
            return self._run(function, value, result_type, True)
        if name in _WITHOUT_ARGUMENT:
            at_clients = _WITHOUT_ARGUMENT[name]
            return self._run(argument, None, result_type, at_clients)
        if name == "federated_aggregate":
            return self._aggregate(block, argument)
        if name in _SECURE_SUMS:
            return self._secure_sum(block, argument)
        if name in ("federated_select", "federated_secure_select"):
            return self._select(block, argument)
        if name in ("sequence_map", "sequence_reduce"):
            return self._run(block, argument, result_type, False)
        raise NotImplementedError(
            f"The local execution context does not support the intrinsic {name!r}."
        )

    def _run(
        self,
        function: trees.Function,
        argument: Any,
        result_type: compat.Type,
        at_clients: bool,
    ) -> Any:
        inputs = distinct([*trees.leaves(function), *trees.leaves(argument)])
        phase = max((leaf.phase for leaf in inputs), default=0)
        outputs = tuple(
            Leaf(leaf_type, at_clients, phase)
            for leaf_type in trees.leaf_types(result_type)
        )
        self.steps.append(
            Operation(at_clients, phase, function, argument, inputs, outputs)
        )
        return trees.pack(result_type, iter(outputs))

    def _aggregate(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        value, zero, accumulate, _, report = argument
        state_type = trees.function_type(accumulate).parameter[0]
        total = self._accumulate(accumulate, state_type, zero, value)
        return self._run(report, total, block.type_signature.result, False)

    def _secure_sum(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        value, limit = argument
        total_type = block.type_signature.result.member
        zero = self._run(secure_sums.zeros(total_type), None, total_type, False)
        if block.uri == "federated_secure_modular_sum":
            total = self._accumulate(secure_sums.ADD, total_type, zero, value)
            return self._run(
                secure_sums.MODULO, trees.pair(total, limit), total_type, False
            )
        if block.uri == "federated_secure_sum_bitwidth":
            # The type of the limits, with 64 bits for each.
            limits = compat.to_type([np.int64 for _ in trees.leaves(limit)])
            limit = self._run(secure_sums.MAXIMUM_OF_BITWIDTH, limit, limits, False)
        return self._accumulate(
            secure_sums.ADD_WITHIN, total_type, zero, trees.pair(value, limit)
        )

    def _accumulate(
        self,
        function: trees.Function,
        state_type: compat.Type,
        zero: Any,
        value: Any,
    ) -> Any:
        accumulators = tuple(
            Leaf(leaf_type, False, 0) for leaf_type in trees.leaf_types(state_type)
        )
        inputs = distinct([*trees.leaves(function), *trees.leaves(value)])
        zeros = tuple(trees.leaves(zero))
        phase = max((leaf.phase for leaf in (*inputs, *zeros)), default=0)
        outputs = tuple(
            Leaf(leaf.type_signature, False, phase + 1) for leaf in accumulators
        )
        self.steps.append(
            Aggregation(
                phase,
                function,
                trees.pack(state_type, iter(accumulators)),
                value,
                zeros,
                inputs,
                accumulators,
                outputs,
            )
        )
        return trees.pack(state_type, iter(outputs))

    def _select(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        # The clients' keys, the server's value and the function of both are all
        # that a client needs to make its own sequence.
        keys, _, server_value, select = argument
        selection = compat.structure.Struct(
            [(None, keys), (None, server_value), (None, select)]
        )
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
_AT_SERVER = frozenset({"federated_apply", "federated_map_all_equal"})
_AT_CLIENTS = frozenset({"federated_map"})
_SECURE_SUMS = frozenset(
    {
        "federated_secure_modular_sum",
        "federated_secure_sum",
        "federated_secure_sum_bitwidth",
    }
)
_WITHOUT_ARGUMENT = {
    "federated_eval_at_server": False,
    "federated_eval_at_clients": True,
}


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
