"""Clients that train side by side, each on its own batches, see `Schedule`."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift.execution.local import patterns, policy, tensors
from tff_drift.execution.local.client_program.loops import batches_taken
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.touched_rows import RowsProgram
from tff_drift.execution.local.data.client_data import ClientData
from tff_drift.execution.local.data.stacks import (
    LockstepSteps,
    Schedule,
    build_schedule,
    most_frequent_shape,
    put_end_to_end,
    put_side_by_side,
    rows_named,
    stack_values,
)
from tff_drift.execution.local.options import Options, Placement
from tff_drift.execution.local.runners.functions import VectorizedFunctions
from tff_drift.execution.local.runners.vectorized_loop import (
    FunctionKey,
    LoopSteps,
    UnequalSteps,
)
from tff_drift.execution.local.tensors import TensorList


@dataclasses.dataclass(frozen=True)
class Group:
    """Clients that are vectorized together.

    Attributes:
      clients: Their numbers in the cohort.
      lockstep_steps: How many of them take steps together.
      key: What its function is built for.
      shapes: Of each loop the shapes of the batches that are taken together.
      state_bytes: The size of what a client's steps change, in bytes.
      on_rows: Whether they train on the rows of tables that their batches name.
      batches: Of each loop the batches of every client.
      schedules: Of each loop who takes steps together.
      counts: How many batches each client has of the first dataset.
    """

    clients: Sequence[int]
    lockstep_steps: Sequence[LockstepSteps]
    key: FunctionKey
    shapes: Sequence[Any]
    state_bytes: int
    on_rows: bool
    batches: Sequence[Sequence[ClientData]]
    schedules: Sequence[Schedule]
    counts: Sequence[int]


class VectorizedRunner:
    """Runs a client's program, which takes a step for every batch, for many clients.

    Args:
      client: The client's program.
      options: How the context runs computations. There is no runner for this yet.

    Attributes:
      state_bytes: The size of what a client's steps change, in bytes.
      fewest_patch_values: How many values the patches have that the convolutions of a
        step take, at least; 0 without convolutions, infinite if that is not known.
      passes: How often at most it passes over a dataset.
      goes_back: Whether it gathers its batches, and passes over them there and back.

    Raises:
      UnsupportedGraphError: If the program does not loop over a dataset.
    """

    def __init__(self, client: ClientProgram, options: Options) -> None:
        if not client.loops:
            raise UnsupportedGraphError("it does not reduce a dataset")
        self._cache = options.batches
        self._limits = options.limits
        self._client = client
        self._functions = VectorizedFunctions(client, options.limits, options.saved)
        of_loops = [tensors.num_bytes(loop.state_specs) for loop in client.loops]
        # Of UGA: its last loop has the size of a model, that before it of two.
        self.state_bytes = min(of_loops) if client.epochs else max(of_loops)
        self._rows: RowsProgram | None = None
        # If ever: how few rows are named is not known yet.
        if policy.name_few_rows(options.limits, 0, self.state_bytes):
            self._rows = _on_rows(client)
        if self._rows is not None:
            self._on_rows = VectorizedFunctions(
                self._rows, options.limits, options.saved
            )
        # Of batches of one example, or of the one size that they have.
        self._patch_values = [
            client.num_patch_values(number) for number in range(len(client.loops))
        ]
        self.fewest_patch_values = max(self._patch_values)
        self.goes_back = bool(client.epochs)
        over_datasets = [each.dataset for each in client.loops if each.lists is None]
        passes = collections.Counter(over_datasets).values()
        self.passes = max(passes, default=0) + self.goes_back
        self._why_none_is_masked = _why_none_is_masked(client)
        # A check could fail of padding.
        self._may_pad = not patterns.has_check(client.operations)

    def groups(
        self,
        datasets: Mapping[int, Sequence[ClientData]],
        values: Sequence[Any],
        placement: Placement,
    ) -> list[Group]:
        """Divides a cohort into groups, which are trained one after the other.

        Args:
          datasets: By the position of the input, the batches of every client.
          values: Of each input the value, or that of every client; None where it is
            not known yet.
          placement: Where clients run: on several devices if there are as many.

        Raises:
          variables.UnsupportedGraphError: If clients with such batches cannot be
            vectorized.
        """
        loops = self._client.loops
        own = [self._batches(number, datasets) for number in range(len(loops))]
        num_steps = [sum(map(len, batches)) for batches in zip(*own, strict=True)]
        last = [
            [each.num_bytes[-1:] for each in batches]
            for batches in zip(*own, strict=True)
        ]
        # A step that writes to a iterates has another that reads it.
        saved = sum(tensors.num_bytes(loop.written_specs) for loop in loops) // 2
        saved //= self._limits.saved_bytes_for_one
        on_cpus, state_bytes = placement.on_cpus, self.state_bytes
        on_few_rows = self._bytes_on_rows(datasets)
        on_rows = on_cpus and policy.name_few_rows(
            self._limits, on_few_rows, state_bytes
        )
        on_rows = on_rows and self._tables_are_finite(values)
        if on_rows:
            state_bytes = math.ceil(on_few_rows)
        patch_values = self.num_patch_values(list(map(most_frequent_shape, own)))
        patches_are_made = on_cpus and math.isfinite(patch_values)
        members = policy.groups(
            self._limits,
            num_steps,
            last,
            len(placement.client_devices),
            state_bytes,
            max(map(_most_bytes, own)) + saved,
            4 * int(patch_values) if patches_are_made else 0,
        )
        sizes = list(map(len, members))
        padded = policy.padded_sizes(sizes) if self._may_pad else sizes
        of_groups = [
            [[batches[client] for client in clients] for batches in own]
            for clients in members
        ]
        shapes = [list(map(most_frequent_shape, each)) for each in of_groups]
        schedules = [
            self._schedules(of_group, of_loops, on_cpus)
            for of_group, of_loops in zip(of_groups, shapes, strict=True)
        ]
        masked = any(schedule.masked for each in schedules for schedule in each)
        if masked and self._why_none_is_masked:
            raise UnsupportedGraphError(self._why_none_is_masked)
        return [
            Group(
                clients,
                [step for schedule in of_group for step in schedule.lockstep_steps()],
                FunctionKey(number, masked, self._are_small(of_loops)),
                of_loops,
                state_bytes,
                on_rows,
                batches,
                [schedule.padded(number) for schedule in of_group],
                [len(datasets[loops[0].dataset][client]) for client in clients],
            )
            for clients, of_loops, batches, of_group, number in zip(
                members, shapes, of_groups, schedules, padded, strict=True
            )
        ]

    def _schedules(
        self,
        of_loops: Sequence[Sequence[ClientData]],
        shapes: Sequence[Any],
        on_cpus: bool,
    ) -> list[Schedule]:
        few = [policy.few_together(self._limits, len(x), on_cpus) for x in of_loops]
        return list(map(build_schedule, of_loops, shapes, few))

    def num_patch_values(self, shapes: Sequence[Any]) -> float:
        """Returns the most values of patches in a step of one client.

        Args:
          shapes: Of each loop those of the batches that are taken together.
        """
        sizes = zip(self._patch_values, self._sizes(shapes), strict=True)
        return max((values * size for values, size in sizes if size), default=0)

    def _are_small(self, shapes: Sequence[Any]) -> bool:
        """Whether the batches are small that are taken together."""
        return max(self._sizes(shapes)) <= self._limits.small_batch

    def _sizes(self, shapes: Sequence[Any]) -> list[int]:
        """Returns the sizes of batches that are taken together, 0 if there are none."""
        client = self._client
        return [
            _num_examples(of_loop, client.graph.specs[loop.dataset]) if of_loop else 0
            for loop, of_loop in zip(client.loops, shapes, strict=True)
        ]

    def _batches(
        self, number: int, datasets: Mapping[int, Sequence[ClientData]]
    ) -> Sequence[ClientData]:
        """Returns the batches that a loop takes, of every client."""
        loop = self._client.loops[number]
        own = datasets[loop.dataset]
        if loop.lists is None:
            return own
        part, epochs = loop.lists.part, self._client.epochs
        return [each.picked(batches_taken(part, epochs, len(each))) for each in own]

    def _bytes_on_rows(self, datasets: Mapping[int, Sequence[ClientData]]) -> float:
        """Returns the size of what a client's steps change on the rows of its batches.

        That is on average and at most; infinite if it has no tables of such rows.
        """
        if self._rows is None:
            return math.inf
        own = datasets[self._rows.loops[0].dataset]
        spared = 0.0
        for space, size in self._rows.num_bytes.items():
            counts = (
                math.prod(shapes[space.component]) for x in own for shapes in x.shapes
            )
            spared += size * max(0, 1 - sum(counts) / len(own) / space.num_rows)
        return self.state_bytes - spared

    def _tables_are_finite(self, values: Sequence[Any]) -> bool:
        """Whether tables that are known are finite."""
        assert self._rows is not None
        for position in self._rows.tables:
            own = values[position]
            tables = own if self._rows.graph.each[position] else [own]
            for table in tables or []:
                if table is not None and not np.isfinite(np.asarray(table)).all():
                    return False
        return True

    def _functions_of(self, group: Group) -> VectorizedFunctions:
        return self._on_rows if group.on_rows else self._functions

    def build(self, group: Group) -> None:
        """Builds the function for a group, unless it has been done.

        Args:
          group: One of `groups`.

        Raises:
          variables.UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """
        self._functions_of(group).build(group.key)

    def run(self, inputs: Sequence[Any], group: Group) -> TensorList:
        """Runs the program for a group.

        Args:
          inputs: A value for each of its inputs, a list of one for each client of the
            group if they have their own; None for a dataset.
          group: One of `groups`.

        Returns:
          The results, stacked in the order of the group, or summed, as
          `ClientGraph.summed` has it.
        """
        inputs, functions = list(inputs), self._functions_of(group)
        if isinstance(functions.client, RowsProgram):
            (batches,) = group.batches
            for space in functions.client.num_bytes:
                inputs += rows_named(batches, space.component, space.num_rows)
        if self.goes_back:
            inputs.append(list(map(tensors.integer, group.counts)))
        absent = group.schedules[0].takes_part.shape[1] - len(group.clients)
        for position in functions.own_inputs:
            own = inputs[position]
            inputs[position] = stack_values([*own, *own[-1:] * absent])
        steps = [
            self._loop_steps(loop.dataset, group.key.masked, *of_loop)
            for loop, *of_loop in zip(
                self._client.loops,
                group.batches,
                group.schedules,
                group.shapes,
                strict=True,
            )
        ]
        return functions.run(group.key, len(group.clients), inputs, steps)

    def _loop_steps(
        self,
        dataset: int,
        masked: bool,
        batches: Sequence[ClientData],
        schedule: Schedule,
        shapes: Any,
    ) -> LoopSteps:
        specs = self._client.graph.specs[dataset]

        def put_together() -> LoopSteps:
            elements = put_side_by_side(
                batches, schedule.owners, schedule.numbers, specs, shapes
            )
            unequal = [_unequal_steps(batches, schedule, specs)] if masked else []
            return LoopSteps(elements, tensors.from_array(schedule.takes_part), unequal)

        # The same clients may be in a group with other padding.
        way = (shapes, masked, schedule.takes_part.shape[1])
        return self._cache.put_together(batches, way, put_together)


def _on_rows(client: ClientProgram) -> RowsProgram | None:
    """Returns a computation on rows of tables, if it has such tables."""
    try:
        return RowsProgram(client)
    except UnsupportedGraphError:
        return None


def _unequal_steps(
    batches: Sequence[ClientData], schedule: Schedule, specs: Sequence[tf.TensorSpec]
) -> UnequalSteps:
    vectors, places = put_end_to_end(batches, schedule.alone, specs)
    clients = np.array([client for client, _ in schedule.alone], np.int32)
    ends = np.stack([schedule.common_ends, schedule.alone_ends], axis=1)
    return UnequalSteps(
        tensors.from_array(ends),
        tensors.from_array(np.column_stack([clients, places])),
        vectors,
    )


def _num_examples(shapes: Any, specs: Sequence[tf.TensorSpec]) -> int:
    """Returns the size of batches, 1 if all are of one size."""
    free = [
        shape[0]
        for shape, spec in zip(shapes, specs, strict=True)
        if spec.shape[:1] == [None]
    ]
    return max(free, default=1)


def _most_bytes(batches: Sequence[ClientData]) -> int:
    return max((size for own in batches for size in own.num_bytes), default=0)


def _why_none_is_masked(client: ClientProgram) -> str | None:
    """Returns why no client may be masked, None if they may.

    A masked client goes on with a batch that it has had, and what comes of it is
    dropped: that must have no effect, and be of the shapes of what is kept.
    """
    for loop in client.loops:
        if patterns.has_check(loop.operations):
            return "its steps check values, and clients of other sizes would be masked"
        if not all(spec.shape.is_fully_defined() for spec in loop.state_specs):
            return "the shapes of its states are not known, and clients would be masked"
        if any(spec.shape.rank is None for spec in client.graph.specs[loop.dataset]):
            return "the rank of its batches is not known, and clients would be masked"
    return None
