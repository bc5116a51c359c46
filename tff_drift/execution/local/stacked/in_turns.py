"""Clients that train side by side, each on its own batches, see `schedule`."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift.execution.local import patterns, policy, tensors
from tff_drift.execution.local.placement import Placement
from tff_drift.execution.local.pure.client_graph import CutClient
from tff_drift.execution.local.pure.client_parts import ClientGraph
from tff_drift.execution.local.pure.list_orders import ListOrders
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.functions import num_bytes
from tff_drift.execution.local.stacked.interface import Group, StackedComputation
from tff_drift.execution.local.stacked.schedule import (
    Schedule,
    build_schedule,
    most_frequent_shape,
)
from tff_drift.execution.local.stacked.stacked_loop import (
    Kind,
    LoopSteps,
    UnequalSteps,
)
from tff_drift.execution.local.stacked.stepwise import VectorizedSteps
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.batches import (
    Batches,
    PickedBatches,
    put_end_to_end,
    put_side_by_side,
)
from tff_drift.execution.local.values.client_batches import BatchCache, stack_values


@dataclasses.dataclass(frozen=True)
class _Group(Group):
    """A group.

    Attributes:
      kind: What its function is built for.
      shapes: Of each loop the shapes of the batches that are taken together.
      batches: Of each loop the batches of every client.
      schedules: Of each loop who takes steps together.
      counts: How many batches each client has of the first dataset.
    """

    kind: Kind
    shapes: Sequence[Any]
    batches: Sequence[Sequence[Batches]]
    schedules: Sequence[Schedule]
    counts: Sequence[int]


class InTurns(StackedComputation):
    """A computation that takes a step for every batch of its datasets.

    Args:
      graph: The computation of one client.
      cache: Keeps the stacks of cohorts that come again.

    Raises:
      variables.UnsupportedGraphError: If it is of another kind.
    """

    manner = "step by step"

    def __init__(self, graph: ClientGraph, cache: BatchCache) -> None:
        client = CutClient(graph)
        self._cache = cache
        self._steps = VectorizedSteps(client)
        self._orders = ListOrders(client) if client.gathers else None
        of_loops = [num_bytes(loop.state_specs) for loop in client.loops]
        # Of UGA: its last loop has the size of a model, that before it of two.
        self.state_bytes = min(of_loops) if client.gathers else max(of_loops)
        self.has_convolution = any(
            patterns.has_convolution(loop.operations) for loop in client.loops
        )
        loops = collections.Counter(loop.dataset for loop in client.loops)
        self.goes_back = client.gathers
        self.passes = 1 if client.gathers else max(loops.values())
        self._why_none_waits = _why_none_waits(client)
        # Of one who stands in for nobody, a check could fail.
        self._may_stand_in = not patterns.has_check(client.operations)

    def groups(
        self, datasets: Mapping[int, Sequence[Batches]], placement: Placement
    ) -> list[Group]:
        """See `StackedComputation.groups`."""
        loops = self._steps.client.loops
        own = [self._batches(number, datasets) for number in range(len(loops))]
        num_steps = [sum(map(len, batches)) for batches in zip(*own)]
        last = [[each.num_bytes[-1:] for each in batches] for batches in zip(*own)]
        # A step that writes to a tape has another that reads it.
        tapes = sum(num_bytes(loop.written_specs) for loop in loops) // 2
        step_bytes = policy.step_bytes(max(map(_most_bytes, own)), tapes)
        members = policy.groups(
            num_steps,
            last,
            len(placement.client_devices),
            self.state_bytes,
            step_bytes,
        )
        sizes = list(map(len, members))
        places = policy.places_of_groups(sizes) if self._may_stand_in else sizes
        of_groups = [
            [[batches[client] for client in clients] for batches in own]
            for clients in members
        ]
        shapes = [list(map(most_frequent_shape, each)) for each in of_groups]
        on_cpus = placement.on_cpus
        schedules = [
            _schedules(of_group, of_loops, on_cpus)
            for of_group, of_loops in zip(of_groups, shapes)
        ]
        waits = any(schedule.waits for each in schedules for schedule in each)
        if waits and self._why_none_waits:
            raise UnsupportedGraphError(self._why_none_waits)
        return [
            _Group(
                clients,
                [turn for schedule in of_group for turn in schedule.turns()],
                Kind(number, waits),
                of_loops,
                batches,
                [schedule.with_stand_ins(number) for schedule in of_group],
                [len(datasets[loops[0].dataset][client]) for client in clients],
            )
            for clients, of_loops, batches, of_group, number in zip(
                members, shapes, of_groups, schedules, places
            )
        ]

    def _batches(
        self, number: int, datasets: Mapping[int, Sequence[Batches]]
    ) -> Sequence[Batches]:
        """Returns the batches that a loop takes, of every client."""
        loop = self._steps.client.loops[number]
        own = datasets[loop.dataset]
        if self._orders is None:
            return own
        orders = [self._orders.of(len(batches)) for batches in own]
        written_by = self._steps.client.written_by(number)
        if written_by is None:
            return [
                PickedBatches(batches, order[number])
                for batches, order in zip(own, orders)
            ]
        if any(order[number] != order[written_by][::-1] for order in orders):
            raise UnsupportedGraphError("it does not go back as it has come")
        return self._batches(written_by, datasets)

    def build(self, group: Group) -> None:
        """See `StackedComputation.build`."""
        assert isinstance(group, _Group)
        self._steps.build(group.kind)

    def run(self, inputs: Sequence[Any], group: Group) -> TensorList:
        """See `StackedComputation.run`."""
        assert isinstance(group, _Group)
        inputs = list(inputs)
        if self._orders is not None:
            inputs.append(list(map(tensors.integer, group.counts)))
        absent = group.schedules[0].takes_part.shape[1] - len(group.clients)
        for position in self._steps.own_inputs:
            own = inputs[position]
            inputs[position] = stack_values([*own, *own[-1:] * absent])
        steps = [
            self._loop_steps(loop.dataset, group.kind.waits, *of_loop)
            for loop, *of_loop in zip(
                self._steps.client.loops,
                group.batches,
                group.schedules,
                group.shapes,
            )
        ]
        return self._steps.run(group.kind, len(group.clients), inputs, steps)

    def _loop_steps(
        self,
        dataset: int,
        waits: bool,
        batches: Sequence[Batches],
        schedule: Schedule,
        shapes: Any,
    ) -> LoopSteps:
        specs = self._steps.client.graph.specs[dataset]

        def put_together() -> LoopSteps:
            elements = put_side_by_side(
                batches, schedule.owners, schedule.numbers, specs, shapes
            )
            unequal = [_unequal_steps(batches, schedule, specs)] if waits else []
            return LoopSteps(elements, tensors.from_array(schedule.takes_part), unequal)

        # The same clients may stand in a group of more places, with those of nobody.
        way = (shapes, waits, schedule.takes_part.shape[1])
        return self._cache.put_together(batches, way, put_together)


def _schedules(
    of_loops: Sequence[Sequence[Batches]], shapes: Sequence[Any], on_cpus: bool
) -> list[Schedule]:
    return [
        build_schedule(batches, shape, policy.few_together(len(batches), on_cpus))
        for batches, shape in zip(of_loops, shapes)
    ]


def _unequal_steps(
    batches: Sequence[Batches], schedule: Schedule, specs: Sequence[tf.TensorSpec]
) -> UnequalSteps:
    vectors, places = put_end_to_end(batches, schedule.alone, specs)
    clients = np.array([client for client, _ in schedule.alone], np.int32)
    ends = np.stack([schedule.common_ends, schedule.alone_ends], axis=1)
    return UnequalSteps(
        tensors.from_array(ends),
        tensors.from_array(np.column_stack([clients, places])),
        vectors,
    )


def _most_bytes(batches: Sequence[Batches]) -> int:
    return max((size for own in batches for size in own.num_bytes), default=0)


def _why_none_waits(client: CutClient) -> str | None:
    """Returns why no client may wait for others, None if they may.

    A client that waits goes on with a batch that it has had, and what comes of it is
    dropped: that must have no effect, and be of the shapes of what is kept.
    """
    for loop in client.loops:
        if patterns.has_check(loop.operations):
            return "its steps check values, and clients of other sizes would wait"
        if not all(spec.shape.is_fully_defined() for spec in loop.state_specs):
            return "the shapes of its states are not known, and clients would wait"
        if any(spec.shape.rank is None for spec in client.graph.specs[loop.dataset]):
            return "the rank of its batches is not known, and clients would wait"
    return None
