"""What the computation of one client consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tff_drift.execution.local.client_program.loops import Lists


@dataclasses.dataclass(frozen=True)
class ClientGraph:
    """The computation of one client.

    Attributes:
      graph_def: The graph.
      inputs: The names of the nodes that are fed.
      specs: The specs of the inputs. For a dataset, the list of the specs of the
        tensors of an element.
      each: For every input, whether each client has its own.
      outputs: The names of the results.
      summed: For every result, whether no more is wanted than its sum over clients.
    """

    graph_def: Any
    inputs: tuple[str, ...]
    specs: tuple[Any, ...]
    each: tuple[bool, ...]
    outputs: tuple[str, ...]
    summed: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class DatasetLoop:
    """A loop over a client's dataset.

    Attributes:
      dataset: The position of the dataset among the inputs.
      function: The function of a step.
      lists: Of a loop over gathered batches, what it has for its values.
      changing: The positions of what steps change of the loop's state, in which
        variables are left out.
      fixed: The positions of what they return as it was.
      variables: The variables whose values go from step to step, by their position
        among the variables of the graph; their values follow the changing state.
      arguments: For each argument of the step besides state and element: the
        position of a variable, or None for a tensor.
      state_specs: The specs of the changing state and of the variables.
      argument_specs: The specs of the arguments that are tensors, and of the fixed
        state, which follows them.
      operations: The kinds of operations of a step.
      written_specs: The specs of what it saves for later loops.
    """

    dataset: int
    function: str
    lists: Lists | None
    changing: tuple[int, ...]
    fixed: tuple[int, ...]
    variables: tuple[int, ...]
    arguments: tuple[int | None, ...]
    state_specs: tuple[tf.TensorSpec, ...]
    argument_specs: tuple[tf.TensorSpec, ...]
    operations: frozenset[str]
    written_specs: tuple[tf.TensorSpec, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of what a step reads of earlier loops."""
        return () if self.lists is None else self.lists.reads

    @property
    def writes(self) -> tuple[int, ...]:
        """The numbers of what it saves for later ones."""
        return () if self.lists is None else self.lists.writes


@dataclasses.dataclass(frozen=True)
class DatasetInput:
    """Stands for a client's dataset while its computation is evaluated."""

    position: int


def is_dataset(spec: Any) -> bool:
    """Whether the spec of an input is of a dataset."""
    return isinstance(spec, list)


def with_inputs(graph: ClientGraph, specs: Mapping[str, tf.TensorSpec]) -> ClientGraph:
    """Returns a computation with more inputs, which each client has its own of.

    Args:
      graph: The computation.
      specs: Their specs, by names that no node has.
    """
    return dataclasses.replace(
        graph,
        inputs=(*graph.inputs, *specs),
        specs=(*graph.specs, *specs.values()),
        each=(*graph.each, *[True] * len(specs)),
    )
