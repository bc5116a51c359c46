"""In which order a client's loops over gathered batches take them.

Many clients can be taken through such loops side by side only if it is known before
which batch each step takes. Recognised are counting loops,

    while index < end: ...; index += 1        while index >= end: ...; index -= 1

whose first index and end follow from the number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.variables import UnsupportedGraphError


class _Counting(NamedTuple):
    """What a loop counts.

    Attributes:
      counter: The position of the index in the state.
      argument: The position of its end among the arguments, None if it is a constant.
      end: The constant.
      step: 1 or -1.
    """

    counter: int
    argument: int | None
    end: int
    step: int


class ListOrders:
    """The orders in which a client's loops take its batches.

    Args:
      client: The client's computation, which gathers its batches.

    Raises:
      UnsupportedGraphError: If they are not known.
    """

    def __init__(self, client: ClientProgram) -> None:
        self._client = client
        self._known: dict[int, list[range]] = {}
        with tf.Graph().as_default():
            self._counting = [
                self._recognise(number) for number in range(len(client.loops))
            ]
        self._limits = self._build_limits()

    def of(self, num_batches: int) -> Sequence[range]:
        """Returns for each loop which batches it takes, one after the other.

        Args:
          num_batches: The number of the client's batches.

        Raises:
          UnsupportedGraphError: If that is not known.
        """
        if num_batches not in self._known:
            try:
                limits = self._limits(tf.constant(num_batches))
            except tf.errors.InvalidArgumentError as error:
                # Trained by itself, the client will say more.
                raise UnsupportedGraphError("a check of it fails") from error
            pairs = zip(limits[::2], limits[1::2], self._counting)
            self._known[num_batches] = [
                range(int(first), int(end) - (counting.step < 0), counting.step)
                for first, end, counting in pairs
            ]
        return self._known[num_batches]

    def _recognise(self, number: int) -> _Counting:
        loop = self._client.loops[number]
        state, arguments, element = (
            [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            for specs in (
                loop.state_specs,
                loop.argument_specs,
                self._client.element_specs(number),
            )
        )
        results = self._client.step(number, state, arguments, element)
        if results.batch is None or results.goes_on is None:
            raise UnsupportedGraphError("it loops over its dataset and over batches")
        names = [tensor.name for tensor in state]
        index = patterns.source(results.batch).name
        if index not in names:
            raise UnsupportedGraphError("the index of a loop of it is not its state")
        position = names.index(index)
        step = patterns.counted(results.state[position], state[position])
        bound = patterns.bound(results.goes_on, state[position])
        if bound is None or step != bound.step:
            raise UnsupportedGraphError("a loop of it does not count its batches")
        end = patterns.source(bound.end)
        names = [tensor.name for tensor in arguments]
        constant = tf.get_static_value(end)
        if constant is not None:
            return _Counting(position, None, int(constant), step)
        if end.name not in names:
            raise UnsupportedGraphError("the end of a loop of it is not known before")
        return _Counting(position, names.index(end.name), 0, step)

    def _build_limits(self) -> Any:
        """Returns a function of the number of batches: every loop's first and end."""
        client = self._client

        def limits() -> tuple[tf.Tensor, list[tf.Tensor]]:
            placeholder = tf.compat.v1.placeholder
            values = [
                None if isinstance(spec, list) else placeholder(spec.dtype, spec.shape)
                for spec in client.graph.specs
            ]
            done: list[Any] = []
            of_loops = []
            for number, (loop, counting) in enumerate(
                zip(client.loops, self._counting)
            ):
                state, arguments = client.start(number, values, done)
                end = (
                    tf.constant(counting.end)
                    if counting.argument is None
                    else arguments[counting.argument]
                )
                of_loops += [tf.identity(state[counting.counter]), tf.identity(end)]
                done.append(
                    [placeholder(spec.dtype, spec.shape) for spec in loop.state_specs]
                )
            return values[-1], of_loops

        function = tf.compat.v1.wrap_function(limits, [])
        count, of_loops = function.structured_outputs
        return _without_checks(function.graph.as_graph_def(), count, of_loops)


def _without_checks(graph_def: Any, given: tf.Tensor, wanted: list[tf.Tensor]) -> Any:
    """Returns a function of one tensor of a graph to others, which checks nothing.

    Checks may be of batches, which are not known before the client runs; they are made
    then.
    """
    for node in graph_def.node:
        kept = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(kept)
    names = [tensor.op.name for tensor in (given, *wanted)]
    needed = tf.compat.v1.graph_util.extract_sub_graph(graph_def, names)

    def run(value: tf.Tensor) -> list[tf.Tensor]:
        replaced = {given.name: value}
        results = [tensor.name for tensor in wanted]
        return tf.graph_util.import_graph_def(needed, replaced, results, name="")

    return tf.compat.v1.wrap_function(run, [tf.TensorSpec(given.shape, given.dtype)])
