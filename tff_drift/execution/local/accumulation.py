"""The accumulation of the clients' values at the server.

TFF describes an aggregation as a function that adds one client's value to an
accumulator. It is called for one client after the other, in their order. Two
forms are recognised in the function's graph and done for many clients at once: the
sum, and the stack that `tff_drift.aggregators.ClientStateCollectionFactory` makes,
which would copy everything collected so far for each client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import evaluation, tracing
from tff_drift.execution.local.graphs import GraphCache
from tff_drift.execution.local.planning import Aggregation, Leaf

Tensors = list[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class _Form:
    """How an aggregation is accumulated.

    Attributes:
      aggregation: What it is about.
      kind: 'sum', 'stack' or 'any'.
      values: For a sum or a stack, the client's value that belongs to each
        accumulator.
    """

    aggregation: Aggregation
    kind: str
    values: tuple[Leaf, ...] = ()


class Accumulation:
    """All aggregations of a phase.

    Args:
      aggregations: The aggregations.
      graphs: Where the graphs of compiled computations come from.

    Attributes:
      inputs: What it needs besides the accumulators.
    """

    def __init__(self, aggregations: Sequence[Aggregation], graphs: GraphCache) -> None:
        self._graphs = graphs
        forms = [_form(aggregation, graphs) for aggregation in aggregations]
        self._stacked = [form for form in forms if form.kind == "stack"]
        self._added = [form for form in forms if form.kind != "stack"]
        added = [form.aggregation for form in self._added]
        self.inputs = _unique(leaf for a in aggregations for leaf in a.inputs)
        self._inputs = _unique(leaf for a in added for leaf in a.inputs)
        self._accumulators = [leaf for a in added for leaf in a.accumulators]
        self._zeros = [leaf for a in added for leaf in a.zeros]
        self._outputs = [leaf for a in added for leaf in a.outputs]
        self._one: tracing.TensorFunction | None = None
        self._many: tracing.TensorFunction | None = None
        if added:
            self._one = self._build_one()

    def begin(self, values: Mapping[Leaf, Any]) -> Running:
        """Returns the accumulators before the first client.

        Args:
          values: The values of the leaves computed so far.
        """
        return Running(self, values)

    def _build_one(self) -> tracing.TensorFunction:
        """Returns the function that adds one client's values."""
        leaves = [*self._accumulators, *self._inputs]
        builder = tracing.GraphBuilder(self._graphs)

        def body(tensors: Sequence[tf.Tensor]) -> Tensors:
            values = dict(zip(leaves, tensors))
            for form in self._added:
                results = _add_one(builder, form.aggregation, values)
                values.update(zip(form.aggregation.outputs, results))
            return [values[leaf] for leaf in self._outputs]

        return tracing.build_function(body, [leaf.type_signature for leaf in leaves])

    def many(self) -> tracing.TensorFunction:
        """Returns the function that adds the stacked values of several clients."""
        if self._many is None:
            self._many = self._build_many()
        return self._many

    def _build_many(self) -> tracing.TensorFunction:
        builder = tracing.GraphBuilder(self._graphs)

        def body(num_clients: tf.Tensor, *tensors: tf.Tensor) -> Tensors:
            split = len(self._accumulators)
            values = dict(zip(self._accumulators, tensors))
            stacks = dict(zip(self._inputs, tensors[split:]))
            for form in self._added:
                aggregation = form.aggregation
                state = [values[leaf] for leaf in aggregation.accumulators]
                if form.kind == "sum":
                    results = [
                        total + tf.reduce_sum(stacks[leaf], axis=0)
                        for total, leaf in zip(state, form.values)
                    ]
                else:
                    results = _add_in_turn(
                        builder, aggregation, state, stacks, num_clients
                    )
                values.update(zip(aggregation.outputs, results))
            return [values[leaf] for leaf in self._outputs]

        specs = [tf.TensorSpec([], tf.int32)]
        specs += [tracing.leaf_spec(leaf.type_signature) for leaf in self._accumulators]
        specs += [_stacked_spec(leaf) for leaf in self._inputs]
        return tf.compat.v1.wrap_function(body, specs)


class Running:
    """An accumulation that is going on."""

    def __init__(self, accumulation: Accumulation, values: Mapping[Leaf, Any]) -> None:
        self._accumulation = accumulation
        self._values = values
        self._state: Sequence[tf.Tensor] = [
            values[leaf] for leaf in accumulation._zeros
        ]
        self._collected: dict[Leaf, Tensors] = {
            leaf: [] for form in accumulation._stacked for leaf in form.values
        }

    def add(
        self, client: int, results: Mapping[Leaf, tf.Tensor], device: str | None
    ) -> None:
        """Adds the values of a client.

        Args:
          client: The number of the client.
          results: What it computed.
          device: Where to add, None for TensorFlow's choice.
        """
        of_client = {
            leaf: results[leaf] if leaf in results else self._given(leaf, client)
            for leaf in self._accumulation.inputs
        }
        for leaf, collected in self._collected.items():
            collected.append(of_client[leaf][tf.newaxis])
        if self._accumulation._one is not None:
            tensors = [of_client[leaf] for leaf in self._accumulation._inputs]
            with tf.device(device):
                self._state = self._accumulation._one(*self._state, *tensors)

    def add_stack(
        self,
        clients: Sequence[int],
        results: Mapping[Leaf, tf.Tensor],
        device: str | None,
    ) -> None:
        """Adds the stacked values of several clients, see `add`."""
        stacks = {
            leaf: results[leaf]
            if leaf in results
            else tf.stack([self._given(leaf, client) for client in clients])
            for leaf in self._accumulation.inputs
        }
        for leaf, collected in self._collected.items():
            collected.append(stacks[leaf])
        if self._accumulation._one is not None:
            tensors = [stacks[leaf] for leaf in self._accumulation._inputs]
            with tf.device(device):
                self._state = self._accumulation.many()(
                    tracing.integer(len(clients)), *self._state, *tensors
                )

    def _given(self, leaf: Leaf, client: int) -> tf.Tensor:
        value = self._values[leaf]
        return value[client] if leaf.at_clients else value

    def results(self) -> dict[Leaf, tf.Tensor]:
        """Returns the accumulators after the last client."""
        results = dict(zip(self._accumulation._outputs, self._state))
        for form in self._accumulation._stacked:
            aggregation = form.aggregation
            for zero, leaf, output in zip(
                aggregation.zeros, form.values, aggregation.outputs
            ):
                parts = [self._values[zero], *self._collected[leaf]]
                results[output] = tf.concat(parts, axis=0)
        return results


def _add_one(
    builder: tracing.GraphBuilder,
    aggregation: Aggregation,
    values: Mapping[Leaf, tf.Tensor],
) -> Tensors:
    function = evaluation.substitute(aggregation.function, values)
    state = evaluation.substitute(aggregation.state, values)
    value = evaluation.substitute(aggregation.value, values)
    result = builder.call(function, evaluation.pair(state, value))
    return list(evaluation.leaves(result))


def _add_in_turn(
    builder: tracing.GraphBuilder,
    aggregation: Aggregation,
    state: Tensors,
    stacks: Mapping[Leaf, tf.Tensor],
    num_clients: tf.Tensor,
) -> Tensors:
    """Adds stacked values to accumulators, one client after the other."""

    def body(client: tf.Tensor, *state: tf.Tensor) -> list[Any]:
        values = dict(zip(aggregation.accumulators, state))
        values.update((leaf, stacks[leaf][client]) for leaf in aggregation.inputs)
        return [client + 1, *_add_one(builder, aggregation, values)]

    shapes = [tf.TensorShape(leaf.type_signature.shape) for leaf in aggregation.outputs]
    _, *results = tf.while_loop(
        lambda client, *_: client < num_clients,
        body,
        [0, *state],
        shape_invariants=[tf.TensorShape([]), *shapes],
        parallel_iterations=1,
    )
    return results


def _form(aggregation: Aggregation, graphs: GraphCache) -> _Form:
    """Recognises the form of an aggregation in the graph of its function."""
    builder = tracing.GraphBuilder(graphs)
    leaves = _unique([*aggregation.accumulators, *aggregation.inputs])

    def body(tensors: Sequence[tf.Tensor]) -> Tensors:
        return _add_one(builder, aggregation, dict(zip(leaves, tensors)))

    function = tracing.build_function(body, [leaf.type_signature for leaf in leaves])
    by_name = {tensor.name: leaf for tensor, leaf in zip(function.inputs, leaves)}
    for kind, find in (("sum", _summand), ("stack", _stacked_value)):
        values = [
            _value(find(output, by_name, accumulator), by_name)
            for output, accumulator in zip(function.outputs, aggregation.accumulators)
        ]
        known = [leaf for leaf in values if leaf is not None and leaf.at_clients]
        if len(known) == len(values):
            return _Form(aggregation, kind, tuple(known))
    return _Form(aggregation, "any")


def _summand(
    tensor: tf.Tensor, by_name: Mapping[str, Leaf], accumulator: Leaf
) -> tf.Tensor | None:
    """Returns what is added to the accumulator, None if `tensor` is no such sum."""
    operation = _source(tensor).op
    if operation.type not in ("Add", "AddV2"):
        return None
    first, second = operation.inputs
    if first.shape != second.shape or not first.shape.is_fully_defined():
        return None
    if _value(first, by_name) is accumulator:
        return second
    return first if _value(second, by_name) is accumulator else None


def _stacked_value(
    tensor: tf.Tensor, by_name: Mapping[str, Leaf], accumulator: Leaf
) -> tf.Tensor | None:
    """Returns what is put at the end of the accumulator as its last row."""
    operation = _source(tensor).op
    if operation.type != "ConcatV2" or len(operation.inputs) != 3:
        return None
    first, second, axis = operation.inputs
    if _value(first, by_name) is not accumulator or tf.get_static_value(axis) != 0:
        return None
    row = _source(second).op
    if row.type == "ExpandDims":
        return row.inputs[0] if tf.get_static_value(row.inputs[1]) == 0 else None
    if row.type == "StridedSlice" and row.get_attr("new_axis_mask") == 1:
        value = row.inputs[0]
        whole = row.inputs[1].shape == [1] and not row.get_attr("shrink_axis_mask")
        return value if whole else None
    return None


def _source(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _value(tensor: tf.Tensor | None, by_name: Mapping[str, Leaf]) -> Leaf | None:
    return None if tensor is None else by_name.get(_source(tensor).name)


def _stacked_spec(leaf: Leaf) -> tf.TensorSpec:
    spec = tracing.leaf_spec(leaf.type_signature)
    return tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape), spec.dtype)


def _unique(leaves: Any) -> tuple[Leaf, ...]:
    return tuple(dict.fromkeys(leaves))
