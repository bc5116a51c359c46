"""The computation of one client, as a graph and as loops over its batches.

Most loops that the evaluation of the graph comes to are a `Dataset.reduce`. A
computation that passes over its batches again, as that of UGA does, gathers them in
TensorFlow's lists and loops over these; what a later loop needs of an earlier one, its
iterates, goes through lists, too. Such a loop says by its name which batches it takes,
see `patterns`, and gets the form of the others here. Where many clients take it side by
side, whose turn it is to read what is not for the graph of one client to say: lists are
Python objects meanwhile, a step is given what it reads of them, a batch among it, and
what it writes is taken from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program.nodes import (
    UnsupportedGraphError,
    Variable,
)
from tff_drift.execution.local.tensors import TensorList


class StepResults(NamedTuple):
    """The results of a step of a loop.

    Attributes:
      state: The new state.
      written: What it saves for later loops.
    """

    state: list[Any]
    written: list[tf.Tensor]


@dataclasses.dataclass(eq=False)
class ListInGraph:
    """A list while its graph is evaluated, outside of a step or in one.

    Attributes:
      dataset: Of gathered batches, the value that stands for their dataset.
      component: Of gathered batches, which component of each; None if it holds what a
        loop saves for a later one.
      number: The number of what a loop saves.
      item: In a step, what it reads of the list; None if nothing.
      written: In a step, what it has written.
    """

    dataset: Any = None
    component: int | None = None
    number: int | None = None
    item: tf.Tensor | None = None
    written: list[tf.Tensor] = dataclasses.field(default_factory=list)

    def use(self, node: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, int]]:
        """Evaluates an operation on the list.

        Args:
          node: The operation's node.
          inputs: Its inputs, the list first.

        Returns:
          The outputs, and where each named output starts.

        Raises:
          UnsupportedGraphError: If it is not supported here.
        """
        if inputs[0] is self:
            if node.op == "Identity":
                return [self], {"output": 0}
            if node.op == "TensorListGetItem" and self.item is not None:
                return [self.item], {"item": 0}
            if node.op == "TensorListSetItem" and self.number is not None:
                self.written.append(inputs[2])
                return [self], {"output_handle": 0}
        raise UnsupportedGraphError(f"it has the operation {node.op!r} on a list")


@dataclasses.dataclass(frozen=True)
class Lists:
    """The roles of the values of a loop over lists.

    Attributes:
      part: Which of the gathered batches it takes, see `patterns.part_of_batches`.
      lists: For each value the list that it is, or None.
      variables: The positions of the values that are variables.
      tensors: The positions of the others, the state.
      reads: The numbers of what it reads of earlier loops, which follows the batch.
      writes: The numbers of what it saves.
    """

    part: str
    lists: Sequence[ListInGraph | None]
    variables: Sequence[int]
    tensors: Sequence[int]
    reads: Sequence[int]
    writes: Sequence[int]

    def in_step(
        self, state: Sequence[Any], element: Sequence[Any], arguments: Sequence[Any]
    ) -> list[Any]:
        """Returns the values as a step is given them."""
        batch = element[: len(element) - len(self.reads)]
        items: dict[Any, Any] = dict(
            zip(self.reads, element[len(batch) :], strict=True)
        )
        values: list[Any] = list(self.lists)
        for place, own in enumerate(self.lists):
            if own is not None:
                k = own.component
                item = items.get(own.number) if k is None else batch[k]
                values[place] = dataclasses.replace(own, item=item, written=[])
        for places, given in ((self.tensors, state), (self.variables, arguments)):
            for place, value in zip(places, given, strict=False):
                values[place] = value
        return values

    def written(self, values: Sequence[Any]) -> list[tf.Tensor]:
        """Returns what a step that was given some values has saved."""
        lists = {x.number: x for x in values if isinstance(x, ListInGraph)}
        if any(len(each.written) != (k in self.writes) for k, each in lists.items()):
            raise UnsupportedGraphError("a step of it does not write one item")
        return [lists[number].written[0] for number in self.writes]

    def last_values(self, values: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """Returns the values of the loop when it has ended, given the last state."""
        last = [own or value for value, own in zip(values, self.lists, strict=True)]
        for place, tensor in zip(self.tensors, state, strict=False):
            last[place] = tensor
        return last


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A loop that the evaluation has come to.

    Attributes:
      dataset: The value that stands for the dataset.
      state: The initial state, a tensor for each part.
      arguments: What the step takes besides state and element: tensors and variables.
      function: The function of a step.
      shapes: The shapes of the state, which hold before and after every step.
      lists: Of a loop over lists, these.
    """

    dataset: Any
    state: list[tf.Tensor]
    arguments: list[Any]
    function: str
    shapes: list[tf.TensorShape]
    lists: Lists | None = None


def over_lists(
    node: Any, values: list[Any], shapes: list[tf.TensorShape], numbers: Iterator[int]
) -> Reduce:
    """Returns a loop over lists in the form of a loop over a dataset.

    Args:
      node: The loop, a `While`.
      values: Its first values: tensors, variables and lists.
      shapes: The shapes of the values that are tensors.
      numbers: The numbers of what loops save next.

    Raises:
      UnsupportedGraphError: If it does not say which batches it takes.
    """
    part = patterns.part_of_batches(node.name)
    if part is None:
        raise UnsupportedGraphError("it takes gathered batches in an unknown order")
    lists: list[ListInGraph | None] = []
    variables, tensors, reads, writes = [], [], [], []
    for place, value in enumerate(values):
        own = value if isinstance(value, ListInGraph) else None
        if own is not None and own.number is not None:
            reads.append(own.number)
        elif isinstance(value, Variable):
            variables.append(place)
        elif own is None and value.dtype == tf.variant:
            writes.append(next(numbers))
            own = ListInGraph(number=writes[-1])
        elif own is None:
            tensors.append(place)
        lists.append(own)
    datasets = {own.dataset for own in lists if own and own.component is not None}
    if len(datasets) != 1:
        raise UnsupportedGraphError("it has a loop over lists that takes no batches")
    return Reduce(
        dataset=datasets.pop(),
        state=[values[k] for k in tensors],
        arguments=[values[k] for k in variables],
        function=node.attr["body"].func.name,
        shapes=[shapes[k] for k in tensors],
        lists=Lists(part, lists, variables, tensors, reads, writes),
    )


def batches_taken(part: str, epochs: int, num_batches: int) -> range:
    """Returns which of the gathered batches a loop takes.

    Args:
      part: What it says, see `patterns.part_of_batches`.
      epochs: The number of epochs that were gathered.
      num_batches: The number of batches.

    Returns:
      Their numbers, in the order of the epochs.
    """
    last_epoch = num_batches // epochs * (epochs - 1)
    if part == patterns.LAST_EPOCH:
        return range(last_epoch, num_batches)
    return range(last_epoch)


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

    def take_step(
        self,
        call_function: Callable[[str, Sequence[Any]], list[Any]],
        state: Sequence[Any],
        element: Sequence[Any],
        arguments: Sequence[Any],
    ) -> StepResults:
        """Evaluates a step.

        Args:
          call_function: Evaluates a function of the graph, given its name and
            arguments.
          state: The state.
          element: The batch, and what the step reads of earlier loops.
          arguments: What else it takes.
        """
        if self.lists is None:
            given = [*state, *element, *arguments]
            return StepResults(call_function(self.function, given), [])
        values = self.lists.in_step(state, element, arguments)
        results = call_function(self.function, values)
        new = [results[k] for k in self.lists.tensors]
        return StepResults(new, self.lists.written(values))

    @property
    def reads(self) -> Sequence[int]:
        """The numbers of what a step reads of earlier loops."""
        return () if self.lists is None else self.lists.reads

    @property
    def writes(self) -> Sequence[int]:
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


def described(reduce: Reduce, variables: Sequence[Variable]) -> DatasetLoop:
    """Returns a loop over a client's dataset that the evaluation has come to.

    Args:
      reduce: The loop.
      variables: The variables that the graph has made so far.

    Raises:
      UnsupportedGraphError: If its dataset is no input, it carries a resource, or a
        step uses a dataset.
    """
    if not isinstance(reduce.dataset, DatasetInput):
        raise UnsupportedGraphError("it reduces a dataset of its own")
    assigned = [k for k, v in enumerate(variables) if v.value is not None]
    arguments = [
        variables.index(a) if isinstance(a, Variable) else None
        for a in reduce.arguments
    ]
    tensors = [a for a in reduce.arguments if tf.is_tensor(a)]
    if len(tensors) != arguments.count(None):
        raise UnsupportedGraphError("a step of it uses a dataset")
    return DatasetLoop(
        dataset=reduce.dataset.position,
        function=reduce.function,
        lists=reduce.lists,
        changing=tuple(range(len(reduce.state))),
        fixed=(),
        variables=tuple(assigned),
        arguments=tuple(arguments),
        # Not the shapes of the first values: a step may return others.
        state_specs=tuple(
            tf.TensorSpec(shape, spec_of(value).dtype)
            for value, shape in [
                *zip(reduce.state, reduce.shapes, strict=True),
                *((variables[k].value, variables[k].shape) for k in assigned),
            ]
        ),
        argument_specs=tuple(map(spec_of, tensors)),
        operations=frozenset(),
    )


def spec_of(tensor: Any) -> tf.TensorSpec:
    """Returns the spec of a tensor that goes from step to step, which has to be one."""
    if tensor.dtype in (tf.variant, tf.resource):
        raise UnsupportedGraphError("its loop carries a resource")
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    """Returns a placeholder for a tensor."""
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def placeholders(specs: Sequence[tf.TensorSpec]) -> TensorList:
    """Returns a placeholder for each of some tensors."""
    return [placeholder(spec) for spec in specs]
