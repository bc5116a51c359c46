"""Loops over batches that the evaluation of a graph comes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import tensorflow as tf

if TYPE_CHECKING:
    from tff_drift.execution.local.pure.graph_interpreter import GraphInterpreter


class StepResults(NamedTuple):
    """What a step of a loop returns.

    Attributes:
      state: The new state.
      written: What it writes for later loops, see `list_loops`.
      goes_on: Of a loop over lists, whether this step is taken.
      batch: Of a loop over lists, which batch it takes.
    """

    state: list[Any]
    written: list[tf.Tensor]
    goes_on: tf.Tensor | None = None
    batch: tf.Tensor | None = None


class Step(Protocol):
    """A step of a loop."""

    def take(
        self,
        interpreter: GraphInterpreter,
        state: Sequence[Any],
        element: Sequence[Any],
        arguments: Sequence[Any],
    ) -> StepResults:
        """Evaluates the step.

        Args:
          interpreter: What evaluates it.
          state: The state.
          element: The element of the dataset, and what it reads of earlier loops.
          arguments: What else it takes.
        """


@dataclasses.dataclass(frozen=True)
class FunctionStep:
    """A step of `Dataset.reduce`.

    Attributes:
      name: Its function.
    """

    name: str

    def take(
        self,
        interpreter: GraphInterpreter,
        state: Sequence[Any],
        element: Sequence[Any],
        arguments: Sequence[Any],
    ) -> StepResults:
        """See `Step.take`."""
        given = [*state, *element, *arguments]
        return StepResults(interpreter.call_function(self.name, given), [])


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A `Dataset.reduce` that the evaluation has come to.

    Attributes:
      dataset: The value that stands for the dataset.
      state: The initial state, a tensor for each part.
      arguments: What the step takes besides state and element: tensors and
        variables.
      step: The step.
      shapes: The shapes of the state, which hold before and after every step.
    """

    dataset: Any
    state: list[tf.Tensor]
    arguments: list[Any]
    step: Step
    shapes: list[tf.TensorShape]


@dataclasses.dataclass(frozen=True)
class ListLoop:
    """A loop over lists that the evaluation has come to.

    Attributes:
      values: The first values: tensors, variables and lists.
      condition: The function that says whether to go on.
      body: The function of a step.
      shapes: The shapes of the values that are tensors, which hold before and after
        every step.
    """

    values: list[Any]
    condition: str
    body: str
    shapes: list[tf.TensorShape]
