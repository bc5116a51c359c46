"""Loops over gathered batches, in the form of loops over datasets.

A computation that passes over its batches again, as that of UGA does, gathers them in
lists by a `Dataset.reduce` and loops over these. Such a loop is brought here into the
form of a `Reduce`: each of its steps is given a batch, and what it reads of the saved
iterates, the lists that loops write for later ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.interpreter import (
    GraphInterpreter,
    ListLoop,
    Reduce,
    StepResults,
)
from tff_drift.execution.local.client_program.saved_iterates.lists import (
    GatheredBatches,
    InStep,
    Pushed,
    SavedIterates,
)
from tff_drift.execution.local.client_program.variables import (
    UnsupportedGraphError,
    Variable,
)


@dataclasses.dataclass(frozen=True)
class ListStep:
    """A step of a loop over lists.

    Attributes:
      body: The function of a step.
      condition: The function that says whether to go on.
      lists: For each value of the loop the list that it is, or None.
      variables: The positions of the values that are variables.
      reads: Which saved iterates it reads; their items follow the batch.
      writes: Which saved iterates it writes.
    """

    body: str
    condition: str
    lists: tuple[GatheredBatches | SavedIterates | None, ...]
    variables: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def take(
        self,
        interpreter: GraphInterpreter,
        state: Sequence[Any],
        element: Sequence[Any],
        arguments: Sequence[Any],
    ) -> StepResults:
        """Evaluates the step, see `interpreter.Step`."""
        values, in_step = self._values(state, element, arguments)
        # Before the body, which may assign variables.
        (goes_on,) = interpreter.call_function(self.condition, values)
        results = interpreter.call_function(self.body, values)
        indices = {
            patterns.source(index).name: index
            for each in in_step.values()
            for index in each.indices
        }
        if len(indices) != 1:
            raise UnsupportedGraphError("a step of it reads several batches")
        written = []
        for number in self.writes:
            items = in_step[number].written
            if len(items) != 1:
                raise UnsupportedGraphError("a step of it does not write one item")
            written.append(items[0])
        if any(in_step[number].written for number in self.reads):
            raise UnsupportedGraphError("it writes what an earlier loop has written")
        (index,) = indices.values()
        return StepResults(
            [results[k] for k in self._tensors()],
            written,
            tf.cast(goes_on, tf.bool),
            index,
        )

    def last_values(self, values: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """Returns the values of the loop when it has ended, given the last state."""
        last = [value if own is None else own for value, own in zip(values, self.lists)]
        for position, tensor in zip(self._tensors(), state):
            last[position] = tensor
        return last

    def _tensors(self) -> list[int]:
        return [
            k
            for k, own in enumerate(self.lists)
            if own is None and k not in self.variables
        ]

    def _values(
        self, state: Sequence[Any], element: Sequence[Any], arguments: Sequence[Any]
    ) -> tuple[list[Any], dict[Any, InStep]]:
        batch = element[: len(element) - len(self.reads)]
        items = dict(zip(self.reads, element[len(batch) :]))
        in_step: dict[Any, InStep] = {}
        values: list[Any] = [None] * len(self.lists)
        for position, own in enumerate(self.lists):
            if isinstance(own, GatheredBatches):
                values[position] = in_step[own] = InStep(batch[own.component])
            elif own is not None:
                item = items.get(own.number)
                values[position] = in_step[own.number] = InStep(item)
        for positions, given in (
            (self._tensors(), state),
            (self.variables, arguments),
        ):
            for position, value in zip(positions, given):
                values[position] = value
        return values, in_step


def as_reduce(loop: ListLoop, numbers: Iterator[int]) -> Reduce:
    """Returns a loop over lists in the form of a loop over a dataset.

    Args:
      loop: The loop.
      numbers: The numbers of the next saved iterates.

    Raises:
      UnsupportedGraphError: If it has no such form.
    """
    lists: list[GatheredBatches | SavedIterates | None] = []
    state, shapes, variables, reads, writes = [], [], [], [], []
    for position, (value, shape) in enumerate(zip(loop.values, loop.shapes)):
        own = value if isinstance(value, (GatheredBatches, SavedIterates)) else None
        if isinstance(own, SavedIterates):
            reads.append(own.number)
        elif isinstance(value, Variable):
            variables.append(position)
        elif own is None and value.dtype == tf.variant:
            own = SavedIterates(next(numbers))
            writes.append(own.number)
        elif own is None:
            state.append(value)
            shapes.append(shape)
        lists.append(own)
    datasets = {own.dataset for own in lists if isinstance(own, GatheredBatches)}
    if len(datasets) != 1:
        raise UnsupportedGraphError("it has a loop over the batches of two datasets")
    (dataset,) = datasets
    step = ListStep(
        loop.body,
        loop.condition,
        tuple(lists),
        tuple(variables),
        tuple(reads),
        tuple(writes),
    )
    arguments = [loop.values[k] for k in variables]
    return Reduce(dataset, state, arguments, step, shapes)


def gathered(
    interpreter: GraphInterpreter,
    reduce: Reduce,
    element: Sequence[tf.Tensor],
) -> list[int | None]:
    """Recognises a loop that counts batches and puts them into lists.

    Args:
      interpreter: What has come to it.
      reduce: The loop.
      element: A placeholder for each component of a batch.

    Returns:
      For each part of the state, the component that it is a list of; None for their
      number.

    Raises:
      UnsupportedGraphError: If it does something else.
    """
    placeholder = tf.compat.v1.placeholder
    state = [
        Pushed() if each.dtype == tf.variant else placeholder(each.dtype, each.shape)
        for each in reduce.state
    ]
    results = reduce.step.take(interpreter, state, element, reduce.arguments).state
    sources = [patterns.source(each).name for each in element]
    components: list[int | None] = []
    for first, before, result in zip(reduce.state, state, results):
        if isinstance(before, Pushed):
            if result is not before or len(before.items) != 1:
                raise UnsupportedGraphError("it does not gather whole batches")
            name = patterns.source(before.items[0]).name
            if name not in sources:
                raise UnsupportedGraphError("it gathers what it makes of batches")
            components.append(sources.index(name))
            continue
        one = patterns.summand(result, before)
        counts = one is not None and tf.get_static_value(one) == 1
        if not counts or tf.get_static_value(first) != 0:
            raise UnsupportedGraphError("it gathers batches and does more")
        components.append(None)
    return components
