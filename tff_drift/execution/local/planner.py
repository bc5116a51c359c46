"""Plans federated computations.

A computation is evaluated once, symbolically: the leaves of its values are `Leaf`
objects, and every local computation that it runs becomes an `Operation`.

Secure sums are those of the protocols, without their cryptography, as in
`tff.backends.test`: the values are added up, after a check that they are in the range
for which the protocol is set up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.execution.local import language
from tff_drift.execution.local.plan import (
    Aggregation,
    Leaf,
    Operation,
    Phase,
    Plan,
    distinct,
)

# A secure sum has 63 bits, one of which has to hold the sum of two values.
_MAX_BITWIDTH = 62


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
    # As TFF's native compiler does.
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    planner = _Planner()
    function = planner.evaluate(block, {})
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
        if name in _SECURE_SUMS:
            return self._secure_sum(block, argument)
        if name in ("federated_select", "federated_secure_select"):
            return self._select(block, argument)
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
        total = self._accumulate(accumulate, state_type, zero, value)
        return self._run(report, total, block.type_signature.result, False)

    def _secure_sum(self, block: compat.framework.Intrinsic, argument: Any) -> Any:
        value, limit = argument
        total_type = block.type_signature.result.member
        zero = self._run(_zeros(total_type), None, total_type, False)
        if block.uri == "federated_secure_modular_sum":
            total = self._accumulate(_add, total_type, zero, value)
            return self._run(_modulo, language.pair(total, limit), total_type, False)
        if block.uri == "federated_secure_sum_bitwidth":
            # The type of the limits, with 64 bits for each.
            limits = compat.to_type([np.int64 for _ in language.leaves(limit)])
            limit = self._run(_maximum_of_bitwidth, limit, limits, False)
        return self._accumulate(
            _add_within, total_type, zero, language.pair(value, limit)
        )

    def _accumulate(
        self,
        function: language.Function,
        state_type: compat.Type,
        zero: Any,
        value: Any,
    ) -> Any:
        accumulators = tuple(
            Leaf(leaf_type, False, 0) for leaf_type in language.leaf_types(state_type)
        )
        inputs = distinct([*language.leaves(function), *language.leaves(value)])
        zeros = tuple(language.leaves(zero))
        phase = max((leaf.phase for leaf in (*inputs, *zeros)), default=0)
        outputs = tuple(
            Leaf(leaf.type_signature, False, phase + 1) for leaf in accumulators
        )
        self.steps.append(
            Aggregation(
                phase,
                function,
                language.pack(state_type, iter(accumulators)),
                value,
                zeros,
                inputs,
                accumulators,
                outputs,
            )
        )
        return language.pack(state_type, iter(outputs))

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
_SECURE_SUMS = frozenset(
    {
        "federated_secure_modular_sum",
        "federated_secure_sum",
        "federated_secure_sum_bitwidth",
    }
)


def _zeros(type_signature: compat.Type) -> language.TreeFunction:
    """Returns a function without a parameter that returns zeros of a type."""

    @language.TreeFunction
    def body(argument: None) -> Any:
        del argument
        leaf_types = language.leaf_types(type_signature)
        zeros = (tf.zeros(leaf.shape, leaf.dtype) for leaf in leaf_types)
        return language.pack(type_signature, zeros)

    return body


def _leafwise(function: Any, tree: Any, other: Any) -> Any:
    """Applies a function to the leaves of two trees; one leaf serves for all."""
    others = list(language.leaves(other))
    leaves = list(language.leaves(tree))
    if len(others) == 1:
        others *= len(leaves)
    results = [
        function(leaf, other) for leaf, other in zip(leaves, others, strict=True)
    ]
    if isinstance(tree, compat.structure.Struct):
        return compat.structure.pack_sequence_as(tree, results)
    return results[0]


def _checked(value: tf.Tensor, maximum: tf.Tensor) -> tf.Tensor:
    within = tf.reduce_all(tf.cast(value, tf.int64) <= tf.cast(maximum, tf.int64))
    check = tf.raw_ops.Assert(
        condition=within,
        data=[
            "client value larger than maximum specified for secure sum",
            value,
            "not less than or equal to",
            maximum,
        ],
    )
    with tf.control_dependencies([check]):
        return tf.identity(value)


@language.TreeFunction
def _add_within(argument: Any) -> Any:
    """From the sum so far and <value, maximum> to the next sum."""
    total, (value, maximum) = argument
    return _leafwise(tf.add, total, _leafwise(_checked, value, maximum))


@language.TreeFunction
def _add(argument: Any) -> Any:
    """From two values to their sum."""
    return _leafwise(tf.add, *argument)


@language.TreeFunction
def _modulo(argument: Any) -> Any:
    """From a value and a modulus to the value modulo the modulus."""
    return _leafwise(tf.math.floormod, *argument)


@language.TreeFunction
def _maximum_of_bitwidth(bitwidth: Any) -> Any:
    """From bit widths to the greatest values of so many bits."""

    def maximum(bits: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        check = tf.raw_ops.Assert(
            condition=bits <= _MAX_BITWIDTH,
            data=[bits, f"is greater than maximum bitwidth {_MAX_BITWIDTH}"],
        )
        with tf.control_dependencies([check]):
            return 2 ** tf.cast(bits, tf.int64) - 1

    return _leafwise(maximum, bitwidth, bitwidth)


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
