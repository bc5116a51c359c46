"""Graphs in which tables are followed, and computed on some of their rows.

See `touched_rows`. A tensor with the rows of a table either has what the table has
wherever no batch names a row, or is zero there: an operation of which neither is known
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.interpreter import GraphInterpreter
from tff_drift.execution.local.client_program.nodes import UnsupportedGraphError
from tff_drift.execution.local.client_program.program import no_reduce
from tff_drift.execution.local.graphs import import_graph
from tff_drift.execution.local.tensors import TensorList

# What hands on the values of its first input, in another form.
_HANDING_ON = frozenset(
    {"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"}
)
# Up to which number floats have all integers.
_EXACT = {tf.bfloat16: 2**8, tf.float16: 2**11, tf.float32: 2**24, tf.float64: 2**53}
# What a tensor with the rows of a table has in those that no batch names: zeros, true,
# or, any other text, what the table of that name has.
ZERO, TRUE = "zero", "true"


class Space(NamedTuple):
    """The rows of tables.

    Attributes:
      num_rows: Their number.
      component: The component of a batch that names rows.
    """

    num_rows: int
    component: int


class Unnamed(NamedTuple):
    """The values of a tensor in rows that no batch names.

    Attributes:
      space: Whose rows it has.
      what: `ZERO`, `TRUE` or the name of a table.
    """

    space: Space
    what: str


class OnRows(NamedTuple):
    """A part of a computation on rows.

    Attributes:
      graph_def: Its graph.
      feeds: The names of the nodes of its inputs.
      fetches: The names of its results.
    """

    graph_def: Any
    feeds: Sequence[str]
    fetches: Sequence[str]

    def evaluate(self, given: TensorList, *, with_products: bool = False) -> TensorList:
        """Adds it to the current graph."""
        interpreter = GraphInterpreter(
            self.graph_def, no_reduce, with_products=with_products
        )
        return interpreter.evaluate(
            dict(zip(self.feeds, given, strict=True)), self.fetches
        )


class Part:
    """A part of a computation, alone in the current graph.

    Args:
      inputs: Its inputs.
      results: Its results.
      element: Those of the inputs that are a batch.
    """

    def __init__(
        self, inputs: TensorList, results: TensorList, element: TensorList
    ) -> None:
        self._inputs, self._results = inputs, results
        self._components = {each.ref(): k for k, each in enumerate(element)}
        # What is given other numbers of rows, and other zeros.
        self._numbers: list[tuple[tf.Operation, Space]] = []
        self._zeros: list[tf.Operation] = []
        self._tables: dict[Space, tf.Tensor] = {}
        needed = {each.name for each in patterns.made_by(results)}
        operations = tf.compat.v1.get_default_graph().get_operations()
        self._needed = [each for each in operations if each.name in needed]

    def tables(self, state: TensorList) -> dict[int, Unnamed]:
        """Returns which of a step's state are tables, and of which rows."""
        positions = {each.ref(): k for k, each in enumerate(state)}
        found: dict[int, Unnamed] = {}
        for operation in self._needed:
            k = None
            if operation.type == "GatherV2":
                k = positions.get(patterns.source(operation.inputs[0]).ref())
            if k is None:
                continue
            space = self._space(state[k], operation.inputs[1])
            if space is None or found.get(k, (space,))[0] != space:
                raise UnsupportedGraphError("it computes which rows it picks")
            found[k] = Unnamed(space, f"table {k}")
        if not found:
            raise UnsupportedGraphError("it picks no rows of tables")
        return found

    def follow(
        self, tables: Sequence[tuple[tf.Tensor, Unnamed]]
    ) -> list[Unnamed | None]:
        """Follows tables to the results, and notes where rows of them are named.

        Args:
          tables: The tables.

        Returns:
          Of each result what it has in rows that are not named, None if it has no rows
          of the tables.
        """
        self._tables = {unnamed.space: each for each, unnamed in tables}
        found: dict[Any, Unnamed | None]
        found = {each.ref(): unnamed for each, unnamed in tables}
        for operation in self._needed:
            inputs = [found.get(each.ref()) for each in operation.inputs]
            space = self._summed(operation)
            if space is not None and not any(inputs):
                self._numbers.append((operation, space))
                found[operation.outputs[0].ref()] = Unnamed(space, ZERO)
            elif any(inputs) and not self._picks(operation, inputs):
                spaces = {each.space for each in inputs if each}
                whats = [each and each.what for each in inputs]
                if _chooses_zeros(operation, whats):
                    self._zeros.append(operation)
                    what: str | None = ZERO
                else:
                    what = _in_unnamed(operation, whats)
                if len(spaces) > 1:
                    raise UnsupportedGraphError("it takes tables of different rows")
                result = Unnamed(spaces.pop(), what) if what else None
                found[operation.outputs[0].ref()] = result
        return [found.get(each.ref()) for each in self._results]

    def on_rows(self, places: Mapping[Space, tf.Tensor]) -> OnRows:
        """Returns the same on rows.

        Args:
          places: The places of rows, which are more inputs, in this order.
        """
        replaced: list[tuple[tf.Operation, int, tf.Tensor]] = []
        for operation in self._zeros:
            given = operation.inputs[1]
            replaced.append((operation, 2, tf.raw_ops.ZerosLike(x=given)))
        for operation, space in self._numbers:
            numbers = operation.inputs[1]
            own = tf.cast(tf.gather(places[space], numbers), numbers.dtype)
            replaced.append((operation, 1, own))
            if operation.type != "GatherV2":
                # Not `tf.shape`, which knows the shape.
                count = tf.raw_ops.Shape(input=self._tables[space])[0]
                count = tf.cast(count, operation.inputs[2].dtype)
                replaced.append((operation, 2, count))
        graph_def = tf.compat.v1.get_default_graph().as_graph_def()
        nodes = {node.name: node for node in graph_def.node}
        for operation, position, other in replaced:
            nodes[operation.name].input[position] = other.op.name
        # What no result is made of may be of whole tables.
        import_graph.prune(graph_def, [each.op.name for each in self._results], set())
        return OnRows(
            graph_def,
            [each.op.name for each in [*self._inputs, *places.values()]],
            [each.name for each in self._results],
        )

    def _summed(self, operation: tf.Operation) -> Space | None:
        """Returns the rows that an operation sums up gradients of, None if none."""
        if operation.type != "UnsortedSegmentSum":
            return None
        if operation.inputs[1].shape.rank != 1:
            return None
        space = self._space(operation.outputs[0], operation.inputs[1])
        return space if space in self._tables else None

    def _picks(self, operation: tf.Operation, inputs: Sequence[Unnamed | None]) -> bool:
        """Notes an operation that picks rows; returns whether it is one."""
        if operation.type != "GatherV2" or operation.get_attr("batch_dims"):
            return False
        if inputs[0] is None or tf.get_static_value(operation.inputs[2]) != 0:
            return False
        space = inputs[0].space
        if self._space(operation.inputs[0], operation.inputs[1]) != space:
            return False
        self._numbers.append((operation, space))
        return True

    def _space(self, table: tf.Tensor, numbers: tf.Tensor) -> Space | None:
        """Returns whose rows numbers pick; None if that is not known."""
        if not table.shape.is_fully_defined():
            return None
        num_rows = int(table.shape[0])
        components: set[int] = set()
        pending = [numbers]
        while pending:
            numbers = pending.pop()
            if numbers.op.type in _HANDING_ON and _keeps_numbers(numbers, num_rows):
                pending.append(numbers.op.inputs[0])
            elif numbers.op.type == "ConcatV2":
                pending += numbers.op.inputs[:-1]
            elif numbers.dtype.is_integer and numbers.ref() in self._components:
                components.add(self._components[numbers.ref()])
            else:
                return None
        return Space(num_rows, components.pop()) if len(components) == 1 else None


def _keeps_numbers(cast: tf.Tensor, num_rows: int) -> bool:
    """Whether the rows that a tensor names are those that its operation's input names.

    That is, whatever becomes the number of a row was the same number before. Keras
    casts integers to floats and back.

    Args:
      cast: The result of what hands on numbers, all of them integers.
      num_rows: The number of rows.
    """
    given, dtype = cast.op.inputs[0].dtype, cast.dtype
    if given == dtype:
        return True
    if dtype.is_floating:
        # Beyond, numbers are rounded, but not to less.
        return num_rows <= _EXACT.get(dtype, 0)
    if given.is_floating:
        # What is too large for these is the least or the greatest number, of no row.
        # For others it may be any.
        return dtype in (tf.int32, tf.int64)
    if not given.is_integer or not dtype.is_integer or dtype.size < given.size:
        return False
    # The least number of signed integers is the lowest that wraps around.
    return given.min >= dtype.min or dtype.max + 1 + given.min >= num_rows


def _in_unnamed(operation: tf.Operation, inputs: Sequence[str | None]) -> str | None:
    """Returns what a result has in the rows that are not named; None if it has no rows.

    Args:
      operation: What takes tensors with the rows of the tables.
      inputs: What its inputs have in these rows, None if they have no such rows.
    """
    kind, first = operation.type, inputs[0]
    with_rows = [x for x, own in zip(operation.inputs, inputs, strict=True) if own]
    scalars = all(
        own or x.shape.rank == 0
        for x, own in zip(operation.inputs, inputs, strict=True)
    )
    if kind == "Identity":
        return first
    if kind in ("Neg", "Square") and first == ZERO:
        return ZERO
    if kind == "IsFinite" and first == ZERO:
        return TRUE
    over_all = (kind, first) in (("All", TRUE), ("Sum", ZERO), ("L2Loss", ZERO))
    if over_all and operation.outputs[0].shape.rank == 0:
        return None
    scales = kind in ("Mul", "MulNoNan") and len(with_rows) == 1 and scalars
    if scales and ZERO in inputs:
        return ZERO
    of_one_shape = len({str(x.shape) for x in operation.inputs}) == 1
    if of_one_shape and not {None, TRUE}.intersection(inputs):
        if kind == "Sub" and first == inputs[1]:
            return ZERO
        if kind == "Sub" and inputs[1] == ZERO:
            return first
        tables = [own for own in inputs if own != ZERO]
        if kind in ("AddV2", "AddN") and len(tables) <= 1:
            return tables[0] if tables else ZERO
    raise UnsupportedGraphError(f"it has the operation {kind!r} on whole tables")


def _chooses_zeros(operation: tf.Operation, inputs: Sequence[str | None]) -> bool:
    """Whether a result is one of two tensors, of which the second is all zeros.

    TFF takes zeros for the change of a client whose weights are not finite.
    """
    if operation.type != "SelectV2" or inputs != [None, ZERO, None]:
        return False
    zeros = patterns.source(operation.inputs[2])
    if operation.inputs[0].shape.rank or zeros.shape != operation.inputs[1].shape:
        return False
    return zeros.op.type == "Fill" and tf.get_static_value(zeros.op.inputs[1]) == 0
