"""One client's program, turned into one for many clients at a time.

The parts of a program, see `client_program.program`, become functions of tensors with
one more, leading dimension, the clients, as by `tf.vectorized_map`: where a client
multiplies matrices, the function multiplies stacks of them. The loops over the steps,
see `vectorized_loop`, are part of one graph.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import tensors
from tff_drift.execution.local.client_program import convolutions
from tff_drift.execution.local.client_program.loops import is_dataset
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.touched_rows import RowsProgram
from tff_drift.execution.local.graphs.saved_functions import SavedFunctions
from tff_drift.execution.local.options import Limits
from tff_drift.execution.local.runners.vectorization import (
    concrete,
    vectorized_results,
)
from tff_drift.execution.local.runners.vectorized_loop import (
    FunctionKey,
    LoopSteps,
    StepFunctions,
    UnequalSteps,
    VectorizedIterates,
    VectorizedLoop,
)
from tff_drift.execution.local.tensors import TensorList, stacked_spec

# TensorFlow warns of how it vectorizes, which `explain` reports: not here, then, and
# not in other threads.
_building = contextvars.ContextVar("building", default=False)
tf.get_logger().addFilter(lambda _: not _building.get())


class VectorizedFunctions:
    """A client's program as functions of many clients, each built once.

    Args:
      client: The client's program.
      limits: The limits of the context.
      saved: Where functions are kept for later programs, None for nowhere.

    Attributes:
      client: The same.
      own_inputs: The positions of the inputs that each client has its own of.
    """

    def __init__(
        self,
        client: ClientProgram | RowsProgram,
        limits: Limits,
        saved: SavedFunctions | None = None,
    ) -> None:
        self.client = client
        self._saved = saved
        self._steps = StepFunctions(client)
        self._limits = limits
        self._functions: collections.OrderedDict[Any, Callable[..., TensorList]] = (
            collections.OrderedDict()
        )
        self._lock = threading.RLock()
        graph = client.graph
        values = [k for k, spec in enumerate(graph.specs) if not is_dataset(spec)]
        self._shared_inputs = [k for k in values if not graph.each[k]]
        self.own_inputs = [k for k in values if graph.each[k]]

    def build(self, key: FunctionKey) -> None:
        """Builds a function, unless it has been done.

        Args:
          key: What to build it for.

        Raises:
          UnsupportedGraphError: If TensorFlow cannot vectorize an operation.
        """
        building = _building.set(True)
        try:
            self._function(key)
        except Exception as error:  # TensorFlow's own, of any class.
            (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
            raise UnsupportedGraphError(reason) from error
        finally:
            _building.reset(building)

    def run(
        self,
        key: FunctionKey,
        num_results: int,
        inputs: Sequence[Any],
        steps: Sequence[LoopSteps],
    ) -> TensorList:
        """Runs the computation.

        Args:
          key: What its function is built for.
          num_results: Of how many clients results are wanted, the first ones.
          inputs: A value for each input but the datasets, stacked if each client
            has its own.
          steps: The steps of each loop, of which there may be none.

        Returns:
          The results, stacked or summed.
        """
        function = self._function(key)
        num_clients = steps[0].takes_part.shape[1] if steps else num_results
        results = function(
            [inputs[position] for position in self._shared_inputs],
            [inputs[position] for position in self.own_inputs],
            tensors.integers_below(num_clients),
            list(steps),
            tensors.integer(num_results),
        )
        tensors.give_back_attributes(results)
        return results

    def _function(self, key: FunctionKey) -> Callable[..., TensorList]:
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                # Larger batches are all multiplied by oneDNN.
                weights = self._limits.small_product_weights * key.small_batches
                limits = dataclasses.replace(
                    self._limits, small_product_weights=weights
                )
                # Not where the clients that come first happen to run.
                with tf.device(None), convolutions.limited_by(limits):
                    function = self._build(key)
                self._functions[key] = function
                if len(self._functions) > self._limits.functions:
                    self._functions.popitem(last=False)
            self._functions.move_to_end(key)
            return function

    def _build(self, key: FunctionKey) -> Callable[..., TensorList]:
        loops = range(len(self.client.loops))

        def run(
            common: TensorList,
            own: TensorList,
            clients: tf.Tensor,
            steps: list[LoopSteps],
            num_results: tf.Tensor,
        ) -> TensorList:
            done: list[TensorList] = []
            saved: dict[int, VectorizedIterates] = {}
            for number in loops:
                state, arguments = self._start(number, common, own, clients, done)
                loop = VectorizedLoop(
                    self._steps, number, key, arguments, steps[number]
                )
                last, written = loop.run(state, saved)
                done.append(last)
                saved.update(
                    zip(self.client.loops[number].writes, written, strict=True)
                )
            results = self._map(self.client.finish, common, own, clients, done)
            stacks = [stack[:num_results] for stack in results]
            for number, summed in enumerate(self.client.graph.summed):
                if summed:
                    stacks[number] = self._total(
                        number, stacks[number], own, num_results
                    )
            return stacks

        specs = self.client.graph.specs
        signature = (
            [specs[k] for k in self._shared_inputs],
            [stacked_spec(specs[k], key.num_clients) for k in self.own_inputs],
            tf.TensorSpec([key.num_clients], tf.int32),
            [self._steps_spec(number, key) for number in loops],
            tf.TensorSpec([], tf.int32),
        )
        content = self.client.content, key, self._limits
        return concrete(run, signature, self._saved, content)

    def _total(
        self, result: int, stack: tf.Tensor, own: TensorList, num_results: tf.Tensor
    ) -> tf.Tensor:
        """Returns the sum of a result over clients."""
        if not isinstance(self.client, RowsProgram):
            return tf.reduce_sum(stack, axis=0)
        own = [each[:num_results] for each in own]
        return self.client.total(result, stack, own)

    def _steps_spec(self, loop: int, key: FunctionKey) -> LoopSteps:
        specs = self.client.graph.specs[self.client.loops[loop].dataset]
        columns = 1 + sum(2 + (spec.shape.rank or 0) for spec in specs)
        unequal = UnequalSteps(
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec([None, columns], tf.int32),
            [tf.TensorSpec([None], spec.dtype) for spec in specs],
        )
        return LoopSteps(
            [stacked_spec(stacked_spec(x, key.num_clients), None) for x in specs],
            tf.TensorSpec([None, key.num_clients], tf.bool),
            [unequal] * key.masked,
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
            return part(self._of_client(common, parts[0]), parts[2])

        return vectorized_results(of_client, (own, clients, done))

    def _of_client(
        self, common: Sequence[tf.Tensor], own: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        """Returns a value for each input of one client, None for a dataset."""
        values = dict(zip(self._shared_inputs, common, strict=True))
        values.update(zip(self.own_inputs, own, strict=True))
        return [values.get(k) for k in range(len(self.client.graph.inputs))]
