"""One client's computation, turned into one for many clients at a time.

The parts of a computation, see `pure.client_graph`, become functions of tensors with
one more, leading dimension, the clients, by `tf.vectorized_map`: where a client
multiplies matrices, the function multiplies stacks of them. The loops over the steps,
see `stacked_loop`, are part of one graph.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import tensors
from tff_drift.execution.local.pure.client_graph import CutClient
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.functions import (
    StackedFunctions,
    concrete,
    stacked_spec,
    vectorized_results,
)
from tff_drift.execution.local.stacked.stacked_loop import (
    Kind,
    LoopSteps,
    StackedLoop,
    Tape,
    UnequalSteps,
)
from tff_drift.execution.local.tensors import TensorList


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
            with _silent():
                self._function(kind)
        except Exception as error:  # TensorFlow's own, of any class.
            (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
            raise UnsupportedGraphError(reason) from error

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
        num_clients = steps[0].takes_part.shape[1]
        split = self._functions.split(inputs, num_clients)
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
            tapes: dict[int, Tape] = {}
            for number in loops:
                state, arguments = self._start(number, common, own, clients, done)
                loop = StackedLoop(self.client, number, kind, arguments, steps[number])
                last, written = loop.run(state, tapes)
                done.append(last)
                tapes.update(zip(self.client.loops[number].writes, written))
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


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keeps TensorFlow from telling what it cannot vectorize: `explain` does."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
