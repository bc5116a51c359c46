"""One client's computation, turned into one for many clients at a time.

The parts of a computation, see `pure.client_graph`, become functions of tensors with
one more, leading dimension, the clients, by `tf.vectorized_map`: where a client
multiplies matrices, the function multiplies stacks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import tensors
from tff_drift.execution.local.policy import known_number
from tff_drift.execution.local.pure.client_graph import CutClient
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.functions import (
    StackedFunctions,
    concrete,
    stacked_spec,
    vectorized_map,
)
from tff_drift.execution.local.tensors import TensorList


class VectorizedParts:
    """The parts of a client's computation, as functions of many clients.

    Functions are built for a number of clients, see `policy.known_number`, which
    makes their graphs much smaller and saves copies of the states, and once more for
    any number.

    Args:
      client: The client's computation.

    Attributes:
      client: The same.
    """

    def __init__(self, client: CutClient) -> None:
        self.client = client
        parts = 2 * len(client.loops) + 2
        self._functions = StackedFunctions(client.graph, parts)
        self._is_buildable = False

    def build(self, num_clients: int) -> None:
        """Finds out whether TensorFlow can vectorize all operations.

        Args:
          num_clients: The number of clients to build a function for.

        Raises:
          UnsupportedGraphError: If it cannot.
        """
        if self._is_buildable:
            return
        try:
            self._whole(known_number(num_clients))
        except (ValueError, TypeError, NotImplementedError) as error:
            raise UnsupportedGraphError(str(error)) from error
        self._is_buildable = True

    def run(
        self,
        inputs: Sequence[Any],
        num_clients: int,
        num_steps: Sequence[int],
        elements: Sequence[TensorList],
    ) -> TensorList:
        """Runs everything, for clients who take all steps together.

        Args:
          inputs: As in `start`.
          num_clients: The number of clients.
          num_steps: The number of steps in each loop.
          elements: The elements in each loop, as in `take_steps`.

        Returns:
          The results, stacked.
        """
        function = self._whole(known_number(num_clients))
        steps = [tensors.integer(number) for number in num_steps]
        return function(*self._functions.split(inputs, num_clients), steps, elements)

    def start(
        self, loop: int, inputs: Sequence[Any], num_clients: int, done: list[TensorList]
    ) -> tuple[TensorList, TensorList]:
        """Runs what comes before a loop.

        Args:
          loop: The number of the loop.
          inputs: A value for each input but the datasets, stacked if each client
            has its own.
          num_clients: The number of clients.
          done: The last states of the loops before.

        Returns:
          The first state and the arguments of the step, all of them stacked.
        """
        function = self._start(loop, known_number(num_clients))
        results = function(*self._functions.split(inputs, num_clients), done)
        return _split_at(len(self.client.loops[loop].state_specs), list(results))

    def take_steps(
        self,
        loop: int,
        num_steps: int,
        state: TensorList,
        arguments: TensorList,
        elements: TensorList,
        num_clients: int | None,
    ) -> TensorList:
        """Runs steps of every client.

        Args:
          loop: The number of the loop.
          num_steps: The number of steps.
          state: The state, stacked.
          arguments: The arguments of the step, stacked.
          elements: The elements, stacked: those of the first step, client by client,
            then those of the second, and so on.
          num_clients: The number of clients; None for some of those that `start` is
            called for, who are of many numbers.

        Returns:
          The new state, stacked.
        """
        known = None if num_clients is None else known_number(num_clients)
        function = self._steps(loop, known)
        return function(tensors.integer(num_steps), state, arguments, elements)

    def finish(
        self, inputs: Sequence[Any], num_clients: int, done: list[TensorList]
    ) -> TensorList:
        """Runs what comes after the last loop, see `start`; returns the results."""
        function = self._finish(known_number(num_clients))
        return function(*self._functions.split(inputs, num_clients), done)

    def _whole(self, num_clients: int | None) -> Callable[..., TensorList]:
        loops = self.client.loops

        def whole(
            common: TensorList,
            own: TensorList,
            clients: tf.Tensor,
            num_steps: list[tf.Tensor],
            elements: list[TensorList],
        ) -> TensorList:
            done: list[TensorList] = []
            for number, loop in enumerate(loops):
                results = self._add_start(number, common, own, clients, done)
                first, arguments = _split_at(len(loop.state_specs), results)
                done.append(
                    self._add_steps(
                        number,
                        num_clients,
                        num_steps[number],
                        first,
                        arguments,
                        elements[number],
                    )
                )
            return self._map(self.client.finish, common, own, clients, done)

        signature = (
            *self._functions.signature(num_clients),
            [tf.TensorSpec([], tf.int32) for _ in loops],
            [self._element_specs(number) for number in range(len(loops))],
        )
        return self._functions.cached(
            ("whole", num_clients), lambda: concrete(whole, signature)
        )

    def _start(self, loop: int, num_clients: int | None) -> Callable[..., TensorList]:
        def start(*parts: Any) -> TensorList:
            return self._add_start(loop, *parts)

        signature = (
            *self._functions.signature(num_clients),
            [self._state_specs(number, num_clients) for number in range(loop)],
        )
        return self._functions.cached(
            ("start", loop, num_clients), lambda: concrete(start, signature)
        )

    def _finish(self, num_clients: int | None) -> Callable[..., TensorList]:
        def finish(*parts: Any) -> TensorList:
            return self._map(self.client.finish, *parts)

        numbers = range(len(self.client.loops))
        signature = (
            *self._functions.signature(num_clients),
            [self._state_specs(number, num_clients) for number in numbers],
        )
        return self._functions.cached(
            ("finish", num_clients), lambda: concrete(finish, signature)
        )

    def _steps(self, loop: int, num_clients: int | None) -> Callable[..., TensorList]:
        def steps(*parts: Any) -> TensorList:
            return self._add_steps(loop, num_clients, *parts)

        arguments = self.client.loops[loop].argument_specs
        signature = (
            tf.TensorSpec([], tf.int32),
            self._state_specs(loop, num_clients),
            [stacked_spec(spec, num_clients) for spec in arguments],
            self._element_specs(loop),
        )
        return self._functions.cached(
            ("steps", loop, num_clients), lambda: concrete(steps, signature)
        )

    def _state_specs(self, loop: int, num_clients: int | None) -> list[tf.TensorSpec]:
        specs = self.client.loops[loop].state_specs
        return [stacked_spec(spec, num_clients) for spec in specs]

    def _element_specs(self, loop: int) -> list[tf.TensorSpec]:
        """Those of the elements of all steps."""
        specs = self.client.graph.specs[self.client.loops[loop].dataset]
        return [stacked_spec(spec, None) for spec in specs]

    def _add_start(self, loop: int, *parts: Any) -> TensorList:
        def start(values: Sequence[Any], done: Sequence[TensorList]) -> TensorList:
            state, arguments = self.client.start(loop, values, done)
            return [*state, *arguments]

        return self._map(start, *parts)

    def _add_steps(
        self,
        loop: int,
        num_clients: int | None,
        num_steps: tf.Tensor,
        state: TensorList,
        arguments: TensorList,
        elements: TensorList,
    ) -> TensorList:
        by_step = [_divide(each, num_steps, num_clients) for each in elements]
        shapes = [spec.shape for spec in self._state_specs(loop, num_clients)]

        def step(parts: tuple[TensorList, TensorList, TensorList]) -> TensorList:
            return self.client.step(loop, *parts)

        def body(index: tf.Tensor, *state: tf.Tensor) -> list[tf.Tensor]:
            element = [tensor[index] for tensor in by_step]
            results = vectorized_map(step, (list(state), arguments, element))
            return [index + 1, *results]

        for tensor, shape in zip(state, shapes):
            tensor.set_shape(shape)
        _, *state = tf.while_loop(
            lambda index, *_: index < num_steps,
            body,
            [tf.constant(0), *state],
            shape_invariants=[tf.TensorShape([]), *shapes],
            parallel_iterations=1,
        )
        return state

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

        return vectorized_map(of_client, (own, clients, done))


def _split_at(count: int, flat: TensorList) -> tuple[TensorList, TensorList]:
    return flat[:count], flat[count:]


def _divide(
    tensor: tf.Tensor, num_steps: tf.Tensor, num_clients: int | None
) -> tf.Tensor:
    """Divides the first dimension into the steps and the clients."""
    shape = tf.shape(tensor)
    clients = shape[0] // num_steps if num_clients is None else num_clients
    divided = tf.reshape(tensor, tf.concat([[num_steps, clients], shape[1:]], axis=0))
    divided.set_shape(tf.TensorShape([None, num_clients]).concatenate(tensor.shape[1:]))
    return divided
