"""One client's computation, turned into one for many clients at a time.

The parts of a computation, see `cutting`, become functions of tensors with one more,
leading dimension, the clients, by `tf.vectorized_map`: where a client multiplies
matrices, the function multiplies stacks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local.cutting import CutClient, Tensors
from tff_drift.execution.local.stacking import (
    StackedFunctions,
    concrete,
    known_number,
    stacked_spec,
    vectorized_map,
)
from tff_drift.execution.local.variables import UnsupportedGraphError


class VectorizedClient:
    """The parts of a client's computation, as functions of many clients.

    Functions are built for a number of clients, see `stacking.known_number`, which
    makes their graphs much smaller and saves copies of the states, and once more for
    any number.

    Args:
      client: The client's computation.

    Attributes:
      client: The same.
    """

    def __init__(self, client: CutClient) -> None:
        self.client = client
        parts = 2 * len(client.loops) + 1
        self._functions = StackedFunctions(client.graph, parts)

    def build(self, num_clients: int) -> None:
        """Builds the functions for a number of clients, unless it has been done.

        Args:
          num_clients: The number of clients.

        Raises:
          UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """
        known = known_number(num_clients)
        try:
            for number in range(len(self.client.loops)):
                self._start(number, known)
                self._steps(number, known)
            self._finish(known)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise UnsupportedGraphError(str(error)) from error

    def start(
        self, loop: int, inputs: Sequence[Any], num_clients: int, done: list[Tensors]
    ) -> tuple[Tensors, Tensors]:
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
        num_state = len(self.client.loops[loop].state_specs)
        return results[:num_state], results[num_state:]

    def take_steps(
        self,
        loop: int,
        num_steps: int,
        state: Tensors,
        arguments: Tensors,
        elements: Tensors,
        num_clients: int | None,
    ) -> Tensors:
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
        return function(tf.constant(num_steps), state, arguments, elements)

    def finish(
        self, inputs: Sequence[Any], num_clients: int, done: list[Tensors]
    ) -> Tensors:
        """Runs what comes after the last loop, see `start`; returns the results."""
        return self._finish(num_clients)(
            *self._functions.split(inputs, num_clients), done
        )

    def _start(self, loop: int, num_clients: int | None) -> Callable[..., Tensors]:
        def start(values: Sequence[Any], done: Sequence[Tensors]) -> Tensors:
            state, arguments = self.client.start(loop, values, done)
            return [*state, *arguments]

        return self._functions.cached(
            ("start", loop, num_clients),
            lambda: self._vectorize(start, loop, num_clients),
        )

    def _finish(self, num_clients: int | None) -> Callable[..., Tensors]:
        return self._functions.cached(
            ("finish", num_clients),
            lambda: self._vectorize(
                self.client.finish, len(self.client.loops), num_clients
            ),
        )

    def _steps(self, loop: int, num_clients: int | None) -> Callable[..., Tensors]:
        return self._functions.cached(
            ("steps", loop, num_clients), lambda: self._build_steps(loop, num_clients)
        )

    def _build_steps(
        self, number: int, num_clients: int | None
    ) -> Callable[..., Tensors]:
        loop = self.client.loops[number]
        specs = [stacked_spec(spec, num_clients) for spec in loop.state_specs]
        element_specs = self.client.graph.specs[loop.dataset]

        def step(parts: tuple[Tensors, Tensors, Tensors]) -> Tensors:
            return self.client.step(number, *parts)

        def steps(
            num_steps: tf.Tensor, state: Tensors, arguments: Tensors, elements: Tensors
        ) -> Tensors:
            by_step = [_divide(each, num_steps, num_clients) for each in elements]

            def body(index: tf.Tensor, *state: tf.Tensor) -> list[tf.Tensor]:
                element = [tensor[index] for tensor in by_step]
                results = vectorized_map(step, (list(state), arguments, element))
                return [index + 1, *results]

            _, *state = tf.while_loop(
                lambda index, *_: index < num_steps,
                body,
                [tf.constant(0), *state],
                shape_invariants=[tf.TensorShape([]), *(spec.shape for spec in specs)],
                parallel_iterations=1,
            )
            return state

        signature = (
            tf.TensorSpec([], tf.int32),
            specs,
            [stacked_spec(spec, num_clients) for spec in loop.argument_specs],
            # Those of all steps.
            [stacked_spec(spec, None) for spec in element_specs],
        )
        return concrete(steps, signature)

    def _vectorize(
        self,
        part: Callable[[Sequence[Any], Sequence[Tensors]], Tensors],
        loops: int,
        num_clients: int | None,
    ) -> Callable[..., Tensors]:
        """Vectorizes a function of the inputs and of the states of finished loops."""

        def of_clients(
            common: Tensors, own: Tensors, clients: tf.Tensor, done: list[Tensors]
        ) -> Tensors:
            def of_client(parts: Any) -> Tensors:
                return part(self._functions.of_client(common, parts[0]), parts[2])

            return vectorized_map(of_client, (own, clients, done))

        states = [
            [stacked_spec(spec, num_clients) for spec in loop.state_specs]
            for loop in self.client.loops[:loops]
        ]
        return concrete(of_clients, (*self._functions.signature(num_clients), states))


def _divide(
    tensor: tf.Tensor, num_steps: tf.Tensor, num_clients: int | None
) -> tf.Tensor:
    """Divides the first dimension into the steps and the clients."""
    shape = tf.shape(tensor)
    clients = shape[0] // num_steps if num_clients is None else num_clients
    divided = tf.reshape(tensor, tf.concat([[num_steps, clients], shape[1:]], axis=0))
    divided.set_shape(tf.TensorShape([None, num_clients]).concatenate(tensor.shape[1:]))
    return divided
