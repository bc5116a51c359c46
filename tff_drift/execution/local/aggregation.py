"""The aggregation of the clients' values at the server.

TFF describes an aggregation as a function that adds one client's value to an
accumulator. It is called for one client after the other, in their order. Two forms
are recognised in the function's graph, see `patterns`, and done for many clients at
once: the sum, and the collection into a stack, which would copy everything
collected so far for each client. An accumulator may have several parts, of either form:
TFF's mergeable form makes one aggregation of all.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift.execution.local import language, patterns, tensors
from tff_drift.execution.local.data.client_data import as_tensor
from tff_drift.execution.local.data.stacks import StackedValues, stack_values
from tff_drift.execution.local.graphs import functions
from tff_drift.execution.local.graphs.import_graph import GraphCache
from tff_drift.execution.local.planner import Aggregation, Leaf, distinct
from tff_drift.execution.local.tensors import TensorList

SUMMED, COLLECTED, IN_TURN = "summed", "collected", "added one client after the other"


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of an aggregation or of a part of one.

    Attributes:
      aggregation: What it is about; the parts of the accumulator that have this form.
      kind: `SUMMED`, `COLLECTED` or `IN_TURN`.
      values: For a sum or a collection, the client's value that belongs to each
        accumulator.
    """

    aggregation: Aggregation
    kind: str
    values: tuple[Leaf, ...] = ()


class Aggregator:
    """All aggregations of a phase.

    Args:
      aggregations: The aggregations.
      graphs: Where the graphs of compiled computations come from.
      only_aggregated: What clients compute that nothing but the aggregations takes.

    Attributes:
      forms: How each is done, in their order.
      collected: Those that are collected.
      in_turn: Those that add one client after the other.
      inputs: What all of them need of the clients, or of the server.
      sums: The last accumulator of each sum, the first, and the client's value.
      turn_inputs: What those in turn need of the clients, or of the server.
      turn_zeros: The first accumulators of those in turn.
      turn_outputs: The last ones.
      summed_before: Of what clients compute, that of which `add_stack` takes the sum in
        place of the stack.
    """

    def __init__(
        self,
        aggregations: Sequence[Aggregation],
        graphs: GraphCache,
        only_aggregated: frozenset[Leaf],
    ) -> None:
        self._builder = functions.GraphBuilder(graphs)
        self.forms = [
            form for each in aggregations for form in _forms(each, self._builder)
        ]
        self.collected = [form for form in self.forms if form.kind == COLLECTED]
        self.in_turn = [form for form in self.forms if form.kind == IN_TURN]
        self.sums = [
            sums
            for form in self.forms
            if form.kind == SUMMED
            for sums in zip(
                form.aggregation.outputs,
                form.aggregation.zeros,
                form.values,
                strict=True,
            )
        ]
        self.summed_before = frozenset[Leaf]()
        if not self.in_turn:
            others = {leaf for form in self.collected for leaf in form.values}
            summed = {leaf for _, _, leaf in self.sums}
            self.summed_before = only_aggregated & (summed - others)
        self.inputs = distinct(
            leaf for form in self.forms for leaf in form.aggregation.inputs
        )
        turns = [form.aggregation for form in self.in_turn]
        self.turn_inputs = distinct(leaf for each in turns for leaf in each.inputs)
        self._accumulators = [leaf for each in turns for leaf in each.accumulators]
        self.turn_zeros = [leaf for each in turns for leaf in each.zeros]
        self.turn_outputs = [leaf for each in turns for leaf in each.outputs]

    @functools.cached_property
    def add_one(self) -> functions.TensorFunction:
        """The function that adds one client's values to those that go in turn.

        It is built when it is first asked for, as `add_many`.
        """
        leaves = [*self._accumulators, *self.turn_inputs]

        def body(*given: tf.Tensor) -> TensorList:
            values = dict(zip(leaves, given, strict=True))
            return [
                result
                for form in self.in_turn
                for result in _add_one(self._builder, form.aggregation, values)
            ]

        return functions.trace(body, [leaf.spec for leaf in leaves])

    @functools.cached_property
    def add_many(self) -> functions.TensorFunction:
        """The function that adds the stacked values of several clients in turn."""

        def body(num_clients: tf.Tensor, *given: tf.Tensor) -> TensorList:
            split = len(self._accumulators)
            values = dict(zip(self._accumulators, given[:split], strict=True))
            stacks = dict(zip(self.turn_inputs, given[split:], strict=True))
            results: TensorList = []
            for form in self.in_turn:
                state = [values[leaf] for leaf in form.aggregation.accumulators]
                results += _add_in_turn(
                    self._builder, form.aggregation, state, stacks, num_clients
                )
            return results

        specs = [tf.TensorSpec([], tf.int32)]
        specs += [leaf.spec for leaf in self._accumulators]
        specs += [tensors.stacked_spec(leaf.spec, None) for leaf in self.turn_inputs]
        return functions.trace(body, specs)


class Accumulator:
    """The accumulators of a phase's aggregations, in one run, from the first client on.

    Args:
      aggregator: The aggregations.
      values: The values of the leaves computed so far.
    """

    def __init__(self, aggregator: Aggregator, values: Mapping[Leaf, Any]) -> None:
        self._aggregator = aggregator
        self._values = values
        self._totals: dict[Leaf, tf.Tensor] = {
            total: as_tensor(values[zero]) for total, zero, _ in aggregator.sums
        }
        self._state: Sequence[tf.Tensor] = [
            as_tensor(values[leaf]) for leaf in aggregator.turn_zeros
        ]
        self._collected: dict[Leaf, TensorList] = {
            leaf: [] for form in aggregator.collected for leaf in form.values
        }
        # The clients whose values were collected, in that order.
        self._order: list[int] = []

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
            leaf: as_tensor(
                results[leaf] if leaf in results else self._given(leaf, client)
            )
            for leaf in self._aggregator.inputs
        }
        self._order.append(client)
        for leaf, collected in self._collected.items():
            collected.append(tf.expand_dims(of_client[leaf], 0))
        with tf.device(device):
            self._add_to_totals(of_client)
            if self._aggregator.in_turn:
                given = [of_client[leaf] for leaf in self._aggregator.turn_inputs]
                self._state = self._aggregator.add_one(*self._state, *given)
                tensors.give_back_attributes(self._state)

    def add_stack(
        self,
        clients: Sequence[int],
        results: Mapping[Leaf, tf.Tensor],
        device: str | None,
    ) -> None:
        """Adds the stacked values of several clients, see `add`.

        Args:
          clients: The numbers of the clients.
          results: What they computed, stacked, or the sum of what is in
            `Aggregator.summed_before`.
          device: Where to add, None for TensorFlow's choice.
        """
        stacks = {
            leaf: results[leaf] if leaf in results else self._given_stack(leaf, clients)
            for leaf in self._aggregator.inputs
        }
        self._order.extend(clients)
        for leaf, collected in self._collected.items():
            collected.append(stacks[leaf])
        with tf.device(device):
            summed = self._aggregator.summed_before
            self._add_to_totals(
                {
                    leaf: stacks[leaf]
                    if leaf in summed
                    else tf.reduce_sum(stacks[leaf], axis=0)
                    for _, _, leaf in self._aggregator.sums
                }
            )
            if self._aggregator.in_turn:
                given = [stacks[leaf] for leaf in self._aggregator.turn_inputs]
                self._state = self._aggregator.add_many(
                    tensors.integer(len(clients)), *self._state, *given
                )
                tensors.give_back_attributes(self._state)

    def _add_to_totals(self, values: Mapping[Leaf, tf.Tensor]) -> None:
        # A few operations take less time than a function of all.
        for total, _, leaf in self._aggregator.sums:
            self._totals[total] = tf.raw_ops.AddV2(
                x=self._totals[total], y=values[leaf]
            )
        tensors.give_back_attributes(self._totals.values())

    def results(self) -> dict[Leaf, tf.Tensor]:
        """Returns the accumulators after the last client."""
        results = dict(zip(self._aggregator.turn_outputs, self._state, strict=True))
        results.update(self._totals)
        for form in self._aggregator.collected:
            aggregation = form.aggregation
            for zero, leaf, output in zip(
                aggregation.zeros, form.values, aggregation.outputs, strict=True
            ):
                results[output] = self._in_order(self._values[zero], leaf)
        return results

    def _in_order(self, zero: tf.Tensor, leaf: Leaf) -> tf.Tensor:
        """Returns what was collected after `zero`, in the order of the clients."""
        parts = [zero, *self._collected[leaf]]
        if self._order == sorted(self._order):
            return tf.concat(parts, axis=0)
        sizes = [part.shape[0] for part in parts]
        places = np.append(np.arange(sizes[0]), sizes[0] + np.array(self._order))
        by_part = np.split(places.astype(np.int32), np.cumsum(sizes)[:-1])
        return tf.dynamic_stitch(by_part, parts)

    def _given_stack(self, leaf: Leaf, clients: Sequence[int]) -> tf.Tensor:
        value = self._values[leaf]
        stack = value.of_group(clients) if isinstance(value, StackedValues) else None
        if stack is not None:
            return stack
        return stack_values([self._given(leaf, client) for client in clients])

    def _given(self, leaf: Leaf, client: int) -> Any:
        value = self._values[leaf]
        return value[client] if leaf.at_clients else value


def _add_one(
    builder: functions.GraphBuilder,
    aggregation: Aggregation,
    values: Mapping[Leaf, tf.Tensor],
) -> TensorList:
    function = language.substitute(aggregation.function, values)
    state = language.substitute(aggregation.state, values)
    value = language.substitute(aggregation.value, values)
    result = builder.call(function, language.Struct.unnamed(state, value))
    return list(language.leaves(result))


def _add_in_turn(
    builder: functions.GraphBuilder,
    aggregation: Aggregation,
    state: TensorList,
    stacks: Mapping[Leaf, tf.Tensor],
    num_clients: tf.Tensor,
) -> TensorList:
    """Adds stacked values to accumulators, one client after the other."""

    def body(client: tf.Tensor, *state: tf.Tensor) -> list[Any]:
        values = dict(zip(aggregation.accumulators, state, strict=True))
        values.update((leaf, stacks[leaf][client]) for leaf in aggregation.inputs)
        return [client + 1, *_add_one(builder, aggregation, values)]

    shapes = [leaf.spec.shape for leaf in aggregation.outputs]
    _, *results = tf.while_loop(
        lambda client, *_: client < num_clients,
        body,
        [0, *state],
        shape_invariants=[tf.TensorShape([]), *shapes],
        parallel_iterations=1,
    )
    return results


def _forms(aggregation: Aggregation, builder: functions.GraphBuilder) -> list[Form]:
    """Recognises the forms of an aggregation in the graph of its function."""
    leaves = distinct([*aggregation.accumulators, *aggregation.inputs])

    # Nothing is run: the graph alone is wanted, which a function takes longer to make.
    with tf.Graph().as_default():
        inputs = [
            tf.compat.v1.placeholder(leaf.spec.dtype, leaf.spec.shape)
            for leaf in leaves
        ]
        values = dict(zip(leaves, inputs, strict=True))
        outputs = _add_one(builder, aggregation, values)
    of_clients = {
        x.name: leaf for x, leaf in zip(inputs, leaves, strict=True) if leaf.at_clients
    }
    places: dict[str, list[int]] = {SUMMED: [], COLLECTED: []}
    added: list[Leaf] = []
    for place, (output, accumulator) in enumerate(zip(outputs, inputs, strict=False)):
        kind, value = SUMMED, patterns.summand(output, accumulator)
        if value is None:
            kind, value = COLLECTED, patterns.last_row(output, accumulator)
        if value is None or value.name not in of_clients:
            return [Form(aggregation, IN_TURN)]
        places[kind].append(place)
        added.append(of_clients[value.name])
    return [
        Form(_part(aggregation, own, clients_leaves), kind, clients_leaves)
        for kind, own in places.items()
        if (clients_leaves := tuple(added[k] for k in own))
    ]


def _part(
    aggregation: Aggregation, places: Sequence[int], values: Sequence[Leaf]
) -> Aggregation:
    """Returns some parts of an accumulator, to which values are added."""
    return dataclasses.replace(
        aggregation,
        zeros=tuple(aggregation.zeros[k] for k in places),
        inputs=tuple(distinct(values)),
        accumulators=tuple(aggregation.accumulators[k] for k in places),
        outputs=tuple(aggregation.outputs[k] for k in places),
    )
