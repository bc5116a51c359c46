"""A loop over the batches of many clients, in one graph.

The steps are taken as a `Schedule` says: together, on stacks of the clients' states and
batches, or alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.touched_rows import RowsProgram
from tff_drift.execution.local.runners.vectorization import OfOneClient
from tff_drift.execution.local.tensors import TensorList, stacked_spec


class FunctionKey(NamedTuple):
    """The key of a built function.

    Attributes:
      num_clients: The number of clients, None for any.
      masked: Whether clients may be masked, or take steps alone.
      small_batches: Whether the batches that they take together are small.
    """

    num_clients: int | None
    masked: bool
    small_batches: bool = False


class UnequalSteps(NamedTuple):
    """Further inputs for a loop with masked clients, see `Schedule`.

    Attributes:
      ends: `common_ends` and `alone_ends`, `int32[parts, 2]`.
      alone: Of each step that is taken alone the client, and for each component where
        its elements begin and end, and its shape, `int32[alone, columns]`.
      alone_elements: For each component, the elements of all steps that are taken
        alone, one after the other.
    """

    ends: Any
    alone: Any
    alone_elements: Any


class LoopSteps(NamedTuple):
    """The steps of one loop as a function takes them, see `Schedule`.

    Attributes:
      elements: The elements of the common steps, `[steps, clients, ...]`.
      takes_part: `bool[steps, clients]`.
      unequal: The rest, in a list that is empty if no client is masked: every tensor
        that a function takes costs time.
    """

    elements: Any
    takes_part: Any
    unequal: Sequence[UnequalSteps]


class VectorizedIterates(NamedTuple):
    """The iterates that the steps of a loop have written for a later loop.

    Attributes:
      common: Of each common step, stacked.
      alone: Of each step that is taken alone.
    """

    common: tf.TensorArray
    alone: tf.TensorArray


Iterates = list[VectorizedIterates]


class StepFunctions:
    """The steps of a client's loops, each for all graphs in which it is taken.

    Args:
      client: The computation of one client.

    Attributes:
      client: The same.
    """

    def __init__(self, client: ClientProgram | RowsProgram) -> None:
        self.client = client
        self._functions: dict[Any, OfOneClient] = {}

    def of_loop(self, number: int, *, alone: bool) -> OfOneClient:
        """Returns a step, of state, arguments and element to new state and iterates.

        Args:
          number: The number of the loop.
          alone: Whether it is run as it is, and not vectorized.
        """
        loop = self.client.loops[number]
        # Small convolutions have another form there.
        key = number, alone and patterns.has_convolution(loop.operations)
        if key not in self._functions:

            def step(*parts: TensorList) -> TensorList:
                results = self.client.step(number, *parts, alone=alone)
                return [*results.state, *results.written]

            element = self.client.element_specs(number)
            specs = loop.state_specs, loop.argument_specs, element
            self._functions[key] = OfOneClient(step, list(map(list, specs)))
        return self._functions[key]


class VectorizedLoop:
    """A loop over the clients' datasets, added to the current graph.

    Args:
      functions: The steps of one client.
      number: The number of the loop.
      key: What the graph is built for.
      arguments: The arguments of the step, stacked.
      steps: The steps.
    """

    def __init__(
        self,
        functions: StepFunctions,
        number: int,
        key: FunctionKey,
        arguments: TensorList,
        steps: LoopSteps,
    ) -> None:
        client = functions.client
        self._functions = functions
        self._number = number
        self._key = key
        self._arguments = arguments
        self._steps = steps
        self._loop = client.loops[number]
        self._backwards = bool(self._loop.reads)
        self._read: Iterates = []
        self._element_specs = client.graph.specs[self._loop.dataset]
        self._specs = self._loop.state_specs
        self._shapes = [stacked_spec(x, key.num_clients).shape for x in self._specs]

    def run(
        self, state: TensorList, saved: Mapping[int, VectorizedIterates]
    ) -> tuple[TensorList, Iterates]:
        """Runs all steps.

        A loop that reads what another one has written takes the same steps, from the
        last one to the first.

        Args:
          state: The first states, stacked.
          saved: What earlier loops have written.

        Returns:
          The last states, and what this loop has written.
        """
        self._read = [saved[number] for number in self._loop.reads]
        written = self._new_iterates()
        num_steps = tf.shape(self._steps.takes_part)[0]
        if not self._key.masked:
            return self._take_together(tf.constant(0), num_steps, state, written)
        (unequal,) = self._steps.unequal
        num_parts = tf.shape(unequal.ends)[0]

        def part(turn: tf.Tensor, now: Any, written: Any) -> Any:
            number = num_parts - 1 - turn if self._backwards else turn
            starts = tf.where(number > 0, unequal.ends[tf.maximum(number - 1, 0)], 0)
            (step, alone), (step_end, alone_end) = map(
                tf.unstack, (starts, unequal.ends[number])
            )

            def together(now: TensorList, written: Any) -> Any:
                return self._take_together(step, step_end, now, written)

            def one_by_one(now: TensorList, written: Any) -> Any:
                return tf.cond(
                    alone < alone_end,
                    lambda: self._take_alone(unequal, alone, alone_end, now, written),
                    lambda: (_copied(now), written),
                )

            ways = [together, one_by_one]
            for take in reversed(ways) if self._backwards else ways:
                now, written = take(now, written)
            return turn + 1, self._shaped(now), written

        _, last, written = tf.while_loop(
            lambda turn, *_: turn < num_parts,
            part,
            (tf.constant(0), self._shaped(state), written),
            shape_invariants=(tf.TensorShape([]), self._shapes, _any_shape(written)),
            parallel_iterations=1,
        )
        return last, written

    def _new_iterates(self) -> Iterates:
        def array(spec: tf.TensorSpec, size: Any) -> tf.TensorArray:
            return tf.TensorArray(
                spec.dtype, size, element_shape=spec.shape, clear_after_read=False
            )

        sizes = [tf.shape(self._steps.takes_part)[0]]
        sizes += [tf.shape(each.alone)[0] for each in self._steps.unequal] or [0]
        return [
            VectorizedIterates(
                array(stacked_spec(spec, self._key.num_clients), sizes[0]),
                array(spec, sizes[1]),
            )
            for spec in self._loop.written_specs
        ]

    def _numbers(
        self, start: tf.Tensor, end: tf.Tensor
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns which step is taken at each turn from `start` to `end`."""
        if self._backwards:
            return lambda turn: end - 1 - (turn - start)
        return lambda turn: turn

    def _take_together(
        self,
        start: tf.Tensor,
        end: tf.Tensor,
        state: TensorList,
        written: Iterates,
    ) -> tuple[TensorList, Iterates]:
        """Runs the common steps."""
        everyone = tf.reduce_all(self._steps.takes_part, axis=1)
        numbers = self._numbers(start, end)
        take_step = self._functions.of_loop(self._number, alone=False).of_many

        def body(turn: tf.Tensor, now: TensorList, written: Iterates) -> Any:
            number = numbers(turn)
            element = [tensor[number] for tensor in self._steps.elements]
            element += [iterates.common.read(number) for iterates in self._read]
            results = take_step([*now, *self._arguments, *element])
            new, items = results[: len(now)], results[len(now) :]
            written = [
                iterates._replace(common=iterates.common.write(number, item))
                for iterates, item in zip(written, items, strict=True)
            ]
            if self._key.masked:
                new = tf.cond(
                    everyone[number],
                    lambda: _copied(new),
                    lambda: _selected(self._steps.takes_part[number], new, now),
                )
            return turn + 1, self._shaped(new), written

        _, last, written = tf.while_loop(
            lambda turn, *_: turn < end,
            body,
            (start, self._shaped(state), written),
            shape_invariants=(tf.TensorShape([]), self._shapes, _any_shape(written)),
            parallel_iterations=1,
        )
        return last, written

    def _take_alone(
        self,
        unequal: UnequalSteps,
        start: tf.Tensor,
        end: tf.Tensor,
        state: TensorList,
        written: Iterates,
    ) -> tuple[TensorList, Iterates]:
        """Runs steps of single clients, whose states are stored as rows meanwhile."""
        numbers = self._numbers(start, end)
        take_step = self._functions.of_loop(self._number, alone=True).of_one

        def body(turn: tf.Tensor, rows: Any, written: Iterates) -> Any:
            number = numbers(turn)
            client, element = self._step_alone(unequal, number)
            element += [iterates.alone.read(number) for iterates in self._read]
            own = [row.read(client) for row in rows]
            arguments = [argument[client] for argument in self._arguments]
            results = take_step([*own, *arguments, *element])
            new, items = results[: len(rows)], results[len(rows) :]
            rows = [row.write(client, x) for row, x in zip(rows, new, strict=True)]
            written = [
                iterates._replace(alone=iterates.alone.write(number, item))
                for iterates, item in zip(written, items, strict=True)
            ]
            return turn + 1, rows, written

        rows = [
            tf.TensorArray(
                spec.dtype,
                size=tf.shape(tensor)[0],
                element_shape=spec.shape,
                clear_after_read=False,
            ).unstack(tensor)
            for spec, tensor in zip(self._specs, state, strict=True)
        ]
        _, rows, written = tf.while_loop(
            lambda turn, *_: turn < end,
            body,
            (start, rows, written),
            parallel_iterations=1,
        )
        return [row.stack() for row in rows], written

    def _step_alone(
        self, unequal: UnequalSteps, number: tf.Tensor
    ) -> tuple[tf.Tensor, TensorList]:
        """Returns the client that takes a step alone, and the batch."""
        ranks = [spec.shape.rank or 0 for spec in self._element_specs]
        # Few operations: there are many such steps, most of them on small batches.
        client, *places = tf.split(
            tf.gather(unequal.alone, number),
            [1, *(size for rank in ranks for size in (1, 1, rank))],
        )
        element = []
        for values, spec, start, end, shape in zip(
            unequal.alone_elements,
            self._element_specs,
            places[::3],
            places[1::3],
            places[2::3],
            strict=True,
        ):
            tensor = tf.reshape(tf.strided_slice(values, start, end), shape)
            tensor.set_shape(spec.shape)
            element.append(tensor)
        return tf.reshape(client, []), element

    def _shaped(self, state: Any) -> TensorList:
        state = tf.nest.flatten(state)
        for tensor, shape in zip(state, self._shapes, strict=True):
            tensor.set_shape(shape)
        return state


def _any_shape(saved: Iterates) -> Any:
    """Returns shape invariants of saved iterates, whose flows have none."""
    return tf.nest.map_structure(lambda _: tf.TensorShape(None), list(saved))


def _copied(tensors: TensorList) -> TensorList:
    return [tf.identity(tensor) for tensor in tensors]


def _selected(
    condition: tf.Tensor, new: Sequence[tf.Tensor], old: Sequence[tf.Tensor]
) -> TensorList:
    """Returns rows of `new` where the condition holds, and else of `old`.

    A selection, not a product: what a masked client computes may not be finite.
    """
    return [
        tf.where(
            tf.reshape(condition, [-1] + [1] * (tensor.shape.rank - 1)), tensor, was
        )
        for tensor, was in zip(new, old, strict=True)
    ]
