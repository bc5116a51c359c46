"""One client's computation, turned into one for many clients at a time.

The parts of a computation, see `pure.client_graph`, become functions of tensors with
one more, leading dimension, the clients, by `tf.vectorized_map`: where a client
multiplies matrices, the function multiplies stacks of them. The steps are taken as a
`Schedule` says: the loops over them are part of one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import tensors
from tff_drift.execution.local.pure.client_graph import CutClient
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.functions import (
    StackedFunctions,
    concrete,
    stacked_spec,
    vectorized_map,
    vectorized_results,
)
from tff_drift.execution.local.tensors import TensorList


class Kind(NamedTuple):
    """What a function is built for.

    Attributes:
      num_clients: The number of clients.
      waits: Whether clients may wait for others, or take steps alone.
    """

    num_clients: int
    waits: bool


class UnequalSteps(NamedTuple):
    """What else a function takes of a loop in which clients wait, see `Schedule`.

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
      unequal: The rest, in a list that is empty if no client waits: every tensor that
        a function takes costs time.
    """

    elements: Any
    takes_part: Any
    unequal: Sequence[UnequalSteps]


class VectorizedSteps:
    """A client's computation, as functions of many clients.

    Args:
      client: The client's computation.

    Attributes:
      client: The same.
    """

    def __init__(self, client: CutClient) -> None:
        self.client = client
        self._functions = StackedFunctions(client.graph, parts=1)

    def build(self, kind: Kind) -> None:
        """Builds a function, unless it has been done.

        Args:
          kind: What to build it for.

        Raises:
          UnsupportedGraphError: If TensorFlow cannot vectorize an operation.
        """
        try:
            self._function(kind)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise UnsupportedGraphError(str(error)) from error

    def run(
        self,
        kind: Kind,
        num_results: int,
        inputs: Sequence[Any],
        steps: Sequence[LoopSteps],
    ) -> TensorList:
        """Runs the computation.

        Args:
          kind: What its function is built for.
          num_results: Of how many clients results are wanted, the first ones.
          inputs: A value for each input but the datasets, stacked if each client
            has its own.
          steps: The steps of each loop.

        Returns:
          The results, stacked or summed.
        """
        function = self._function(kind)
        split = self._functions.split(inputs, kind.num_clients)
        results = function(*split, list(steps), tensors.integer(num_results))
        tensors.give_back_attributes(results)
        return results

    @property
    def own_inputs(self) -> list[int]:
        """The positions of the inputs that each client has its own of."""
        return self._functions.own

    def _function(self, kind: Kind) -> Callable[..., TensorList]:
        return self._functions.cached(kind, lambda: self._build(kind))

    def _build(self, kind: Kind) -> Callable[..., TensorList]:
        loops = range(len(self.client.loops))

        def run(
            common: TensorList,
            own: TensorList,
            clients: tf.Tensor,
            steps: list[LoopSteps],
            num_results: tf.Tensor,
        ) -> TensorList:
            done: list[TensorList] = []
            for number in loops:
                state, arguments = self._start(number, common, own, clients, done)
                loop = _Loop(self.client, number, kind, arguments, steps[number])
                done.append(loop.run(state))
            results = self._map(self.client.finish, common, own, clients, done)
            return [
                tf.reduce_sum(stack[:num_results], axis=0)
                if summed
                else stack[:num_results]
                for stack, summed in zip(results, self.client.graph.summed)
            ]

        signature = (
            *self._functions.signature(kind.num_clients),
            [self._steps_spec(number, kind) for number in loops],
            tf.TensorSpec([], tf.int32),
        )
        return concrete(run, signature)

    def _steps_spec(self, loop: int, kind: Kind) -> LoopSteps:
        specs = self.client.graph.specs[self.client.loops[loop].dataset]
        columns = 1 + sum(2 + (spec.shape.rank or 0) for spec in specs)
        unequal = UnequalSteps(
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec([None, columns], tf.int32),
            [tf.TensorSpec([None], spec.dtype) for spec in specs],
        )
        return LoopSteps(
            [stacked_spec(stacked_spec(x, kind.num_clients), None) for x in specs],
            tf.TensorSpec([None, kind.num_clients], tf.bool),
            [unequal] * kind.waits,
        )

    def _start(self, number: int, *parts: Any) -> tuple[TensorList, TensorList]:
        def start(values: Sequence[Any], done: Sequence[TensorList]) -> TensorList:
            state, arguments = self.client.start(number, values, done)
            return [*state, *arguments]

        results = self._map(start, *parts)
        count = len(self.client.loops[number].state_specs)
        return results[:count], results[count:]

    def _map(
        self,
        part: Callable[[Sequence[Any], Sequence[TensorList]], TensorList],
        common: TensorList,
        own: TensorList,
        clients: tf.Tensor,
        done: list[TensorList],
    ) -> TensorList:
        """Vectorizes a function of the inputs and of the states of finished loops."""

        def of_client(parts: Any) -> TensorList:
            return part(self._functions.of_client(common, parts[0]), parts[2])

        return vectorized_results(of_client, (own, clients, done))


class _Loop:
    """A loop over the clients' datasets, added to the current graph.

    Args:
      client: The computation of one client.
      number: The number of the loop.
      kind: What the graph is built for.
      arguments: The arguments of the step, stacked.
      steps: The steps.
    """

    def __init__(
        self,
        client: CutClient,
        number: int,
        kind: Kind,
        arguments: TensorList,
        steps: LoopSteps,
    ) -> None:
        self._client = client
        self._number = number
        self._kind = kind
        self._arguments = arguments
        self._steps = steps
        self._element_specs = client.graph.specs[client.loops[number].dataset]
        self._specs = client.loops[number].state_specs
        self._shapes = [stacked_spec(x, kind.num_clients).shape for x in self._specs]

    def run(self, state: TensorList) -> TensorList:
        """Returns the last states, given the first, stacked."""
        zero = tf.constant(0)
        if not self._kind.waits:
            num_steps = tf.shape(self._steps.takes_part)[0]
            return self._take_together(zero, num_steps, state)
        (unequal,) = self._steps.unequal
        num_parts = tf.shape(unequal.ends)[0]

        def part(number: tf.Tensor, *rest: tf.Tensor) -> list[tf.Tensor]:
            step, alone, *now = rest
            step_end, alone_end = tf.unstack(unequal.ends[number])
            now = self._take_together(step, step_end, now)
            now = tf.cond(
                alone < alone_end,
                lambda: self._take_alone(unequal, alone, alone_end, now),
                lambda: _copied(now),
            )
            return [number + 1, step_end, alone_end, *self._shaped(now)]

        _, _, _, *last = tf.while_loop(
            lambda number, *_: number < num_parts,
            part,
            [zero, zero, zero, *self._shaped(state)],
            shape_invariants=[tf.TensorShape([])] * 3 + self._shapes,
            parallel_iterations=1,
        )
        return last

    def _take_together(
        self, start: tf.Tensor, end: tf.Tensor, state: TensorList
    ) -> TensorList:
        """Takes common steps."""
        everyone = tf.reduce_all(self._steps.takes_part, axis=1)

        def step(parts: tuple[TensorList, TensorList, TensorList]) -> TensorList:
            return self._client.step(self._number, *parts)

        def body(number: tf.Tensor, *now: tf.Tensor) -> list[tf.Tensor]:
            element = [tensor[number] for tensor in self._steps.elements]
            new = vectorized_map(step, (list(now), self._arguments, element))
            if self._kind.waits:
                new = tf.cond(
                    everyone[number],
                    lambda: _copied(new),
                    lambda: _selected(self._steps.takes_part[number], new, now),
                )
            return [number + 1, *self._shaped(new)]

        _, *last = tf.while_loop(
            lambda number, *_: number < end,
            body,
            [start, *self._shaped(state)],
            shape_invariants=[tf.TensorShape([]), *self._shapes],
            parallel_iterations=1,
        )
        return last

    def _take_alone(
        self,
        unequal: UnequalSteps,
        start: tf.Tensor,
        end: tf.Tensor,
        state: TensorList,
    ) -> TensorList:
        """Takes steps of single clients, whose states are rows meanwhile."""

        def body(number: tf.Tensor, *rows: tf.TensorArray) -> list[Any]:
            client, element = self._step_alone(unequal, number)
            own = [row.read(client) for row in rows]
            arguments = [argument[client] for argument in self._arguments]
            new = self._client.step(self._number, own, arguments, element)
            return [number + 1, *(row.write(client, x) for row, x in zip(rows, new))]

        rows = [
            tf.TensorArray(
                spec.dtype,
                size=self._kind.num_clients,
                element_shape=spec.shape,
                clear_after_read=False,
            ).unstack(tensor)
            for spec, tensor in zip(self._specs, state)
        ]
        _, *rows = tf.while_loop(
            lambda number, *_: number < end,
            body,
            [start, *rows],
            parallel_iterations=1,
        )
        return [row.stack() for row in rows]

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
        ):
            tensor = tf.reshape(tf.strided_slice(values, start, end), shape)
            tensor.set_shape(spec.shape)
            element.append(tensor)
        return tf.reshape(client, []), element

    def _shaped(self, state: Any) -> TensorList:
        state = tf.nest.flatten(state)
        for tensor, shape in zip(state, self._shapes):
            tensor.set_shape(shape)
        return state


def _copied(tensors: TensorList) -> TensorList:
    return [tf.identity(tensor) for tensor in tensors]


def _selected(
    condition: tf.Tensor, new: Sequence[tf.Tensor], old: Sequence[tf.Tensor]
) -> TensorList:
    """Returns rows of `new` where the condition holds, and else of `old`.

    A selection, not a product: what a client that waits computes may not be finite.
    """
    return [
        tf.where(
            tf.reshape(condition, [-1] + [1] * (tensor.shape.rank - 1)), tensor, was
        )
        for tensor, was in zip(new, old)
    ]
