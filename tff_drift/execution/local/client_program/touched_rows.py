"""A client's computation on those rows of its embeddings that its batches name.

A client of a language or of a recommendation names few rows of a table, and its steps
leave the others as they are:

    picked = table[numbers]                     of each batch
    table = table - rate * segment_sum(...)     of all rows, nearly all zero
    change = table before - table

So the rows that any of a client's batches names are picked before its loop, by `rows`;
the steps are taken and the change is computed on these alone, where `places` says at
which place a row is. Every row has the same arithmetic as before; a sum over all of
them has fewer zeros. One row more, the last, is zero and stands for those that no batch
names: a change that is scaled by what is not finite is NaN there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.loops import (
    StepResults,
    is_dataset,
    placeholder,
    placeholders,
    with_inputs,
)
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.client_program.program import ClientProgram
from tff_drift.execution.local.client_program.row_graphs import (
    ZERO,
    OnRows,
    Part,
    Space,
)
from tff_drift.execution.local.tensors import TensorList, num_bytes


class RowsProgram:
    """As a `ClientProgram`, with more inputs of each client: `rows` and `places`.

    Args:
      client: The computation on whole tables.

    Attributes:
      graph: As that of `client`.
      loops: As that of `client`.
      epochs: 0, it gathers no batches.
      content: As that of `client`, of this form of it.
      num_bytes: The size of the tables with the rows of each space, in bytes. Each
        space has two inputs, at the end: `rows` and `places`.
      tables: The positions of the inputs that are tables. They have to be finite:
        elsewhere, what is not finite shows in the change of a row that nobody names.

    Raises:
      UnsupportedGraphError: If it has no such tables, or does more with them.
    """

    def __init__(self, client: ClientProgram) -> None:
        if len(client.loops) != 1 or client.epochs:
            raise UnsupportedGraphError("it loops over several datasets")
        if patterns.has_check(client.operations):
            # One that only has to be waited for is of no result, and is not followed.
            raise UnsupportedGraphError("it checks values, perhaps of whole tables")
        (loop,) = client.loops
        if "UnsortedSegmentSum" not in loop.operations:
            raise UnsupportedGraphError("its steps sum up no gradients of rows")
        self.epochs = 0
        self.content = b"on rows " + client.content
        self._client = client
        specs = list(loop.state_specs)
        with tf.Graph().as_default():
            state, arguments, element = (
                placeholders(each)
                for each in (specs, loop.argument_specs, client.element_specs(0))
            )
            new = client.step(0, state, arguments, element).state
            step = Part([*state, *arguments, *element], new, element)
            self._tables = step.tables(state)
            unnamed = step.follow([(state[k], x) for k, x in self._tables.items()])
            if unnamed != [self._tables.get(k) for k in range(len(state))]:
                raise UnsupportedGraphError("its steps change whole tables")
            self.num_bytes: dict[Space, int] = {}
            for k, (space, _) in self._tables.items():
                size = num_bytes([specs[k]])
                self.num_bytes[space] = self.num_bytes.get(space, 0) + size
            places = {x: tf.TensorSpec([x.num_rows], tf.int32) for x in self.num_bytes}
            self._step = step.on_rows({x: placeholder(y) for x, y in places.items()})
        with tf.Graph().as_default():
            self._finish, self._taken, self._given = self._analyze_finish()
        self.tables = list(self._taken)
        own = {}
        for number, spec in enumerate(places.values()):
            own[f"rows {number}"] = tf.TensorSpec([None], tf.int32)
            own[f"places {number}"] = spec
        self.graph = with_inputs(client.graph, own)
        for k in self._tables:
            specs[k] = tf.TensorSpec([None, *specs[k].shape[1:]], specs[k].dtype)
        arguments_and_places = *loop.argument_specs, *places.values()
        self.loops = [
            dataclasses.replace(
                loop, state_specs=tuple(specs), argument_specs=arguments_and_places
            )
        ]

    def _analyze_finish(self) -> tuple[OnRows, dict[int, Space], dict[int, Space]]:
        """Evaluates what comes after the loop.

        Returns:
          The same on rows, which of the inputs are tables, and which of the results
          have rows of them.
        """
        specs = self._client.graph.specs
        values = [None if is_dataset(x) else placeholder(x) for x in specs]
        last = placeholders(self._client.loops[0].state_specs)
        first, _ = self._client.start(0, values, [])
        positions = {x.ref(): k for k, x in enumerate(values) if x is not None}
        taken: dict[int, Space] = {}
        pairs = []
        for k, unnamed in self._tables.items():
            before = patterns.source(first[k])
            if before.ref() not in positions or positions[before.ref()] in taken:
                raise UnsupportedGraphError("it computes the tables that it trains")
            taken[positions[before.ref()]] = unnamed.space
            pairs += [(before, unnamed), (last[k], unnamed)]
        results = self._client.finish(values, [last])
        inputs = [x for x in [*values, *last] if x is not None]
        part = Part(inputs, results, [])
        of_results = part.follow(pairs)
        given = {k: x.space for k, x in enumerate(of_results) if x is not None}
        if any(x is not None and x.what != ZERO for x in of_results):
            raise UnsupportedGraphError("whole tables are among its results")
        return part.on_rows({}), taken, given

    def _split(self, values: Sequence[Any]) -> tuple[list[Any], dict[Space, Any], Any]:
        """Returns the inputs of `client`, the rows of each space, and the places."""
        count = len(values) - 2 * len(self.num_bytes)
        rows = dict(zip(self.num_bytes, values[count::2], strict=True))
        return list(values[:count]), rows, values[count + 1 :: 2]

    def start(
        self, number: int, values: Sequence[Any], done: Sequence[TensorList]
    ) -> tuple[TensorList, TensorList]:
        """See `ClientProgram.start`."""
        own, rows, places = self._split(values)
        state, arguments = self._client.start(number, own, done)
        for k, unnamed in self._tables.items():
            state[k] = _picked(state[k], rows[unnamed.space])
        return state, [*arguments, *places]

    def element_specs(self, number: int) -> list[tf.TensorSpec]:
        """See `ClientProgram.element_specs`."""
        return self._client.element_specs(number)

    def step(
        self,
        number: int,
        state: TensorList,
        arguments: TensorList,
        element: TensorList,
        *,
        alone: bool = False,
    ) -> StepResults:
        """See `ClientProgram.step`."""
        del number  # There is one loop.
        count = len(arguments) - len(self.num_bytes)
        given = [*state, *arguments[:count], *element, *arguments[count:]]
        return StepResults(self._step.evaluate(given, with_products=alone), [])

    def finish(self, values: Sequence[Any], done: Sequence[TensorList]) -> TensorList:
        """See `ClientProgram.finish`; of what is summed there are the rows alone."""
        own, rows, _ = self._split(values)
        for k, space in self._taken.items():
            own[k] = _picked(own[k], rows[space])
        given = [x for x in [*own, *done[0]] if x is not None]
        results = self._finish.evaluate(given)
        for k in self._given:
            if not self.graph.summed[k]:
                results[k] = self.total(k, results[k], values)
        return results

    def total(self, result: int, stack: tf.Tensor, values: Sequence[Any]) -> tf.Tensor:
        """Returns the sum of a result over clients.

        Args:
          result: Which result.
          stack: It, of every client.
          values: The inputs of every client; the last ones suffice.
        """
        if result not in self._given:
            return tf.reduce_sum(stack, axis=0)
        _, rows, _ = self._split(values)
        space = self._given[result]
        return _put_back(stack, rows[space], space.num_rows)


def _picked(table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns rows of a table, and the one that stands for all others."""
    other = tf.zeros([1, *table.shape[1:]], table.dtype)
    return tf.concat([tf.gather(table, rows), other], 0)


def _put_back(picked: tf.Tensor, rows: tf.Tensor, num_rows: int) -> tf.Tensor:
    """Returns the sum of zeros or NaN of which some rows are given.

    Args:
      picked: The rows, as of `_picked`, of one client or of many.
      rows: Which rows they are.
      num_rows: The number of all.
    """
    axis = rows.shape.rank - 1
    given, other = tf.split(picked, [tf.shape(rows)[-1], 1], axis)
    total = tf.math.unsorted_segment_sum(given, rows, num_rows)
    is_nan = other != other

    def with_nan() -> tf.Tensor:
        """Returns the sum where clients that do not give a row have NaN in it."""
        number = tf.cast(is_nan, tf.int32)
        of_givers = tf.broadcast_to(number, tf.shape(given))
        of_givers = tf.math.unsorted_segment_sum(of_givers, rows, num_rows)
        among_others = tf.reduce_sum(number, range(axis + 1)) > of_givers
        return tf.where(among_others, tf.reduce_sum(other, range(axis + 1)), total)

    return tf.cond(tf.reduce_any(is_nan), with_nan, lambda: tf.identity(total))
