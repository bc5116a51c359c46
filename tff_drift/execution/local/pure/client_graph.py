"""The computation of one client, cut at the loops over its dataset.

A computation that loops over a dataset by `Dataset.reduce` has the parts

    start   what happens before the loop
    step    what happens for each element, a batch
    finish  what happens after the loop

A computation with several loops has a start for each. Variables become tensors that
go from part to part. What a loop carries along but never changes, such as the
correction of every step by control variates, becomes an argument of the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.pure import graph_interpreter
from tff_drift.execution.local.pure.graph_interpreter import GraphInterpreter, Reduce
from tff_drift.execution.local.pure.variables import UnsupportedGraphError, Variable
from tff_drift.execution.local.tensors import TensorList


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
      step: The name of the step's function.
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
    """

    dataset: int
    step: str
    changing: tuple[int, ...]
    fixed: tuple[int, ...]
    variables: tuple[int, ...]
    arguments: tuple[int | None, ...]
    state_specs: tuple[tf.TensorSpec, ...]
    argument_specs: tuple[tf.TensorSpec, ...]
    operations: frozenset[str]


class CutClient:
    """The parts of a client's computation, which add themselves to the current graph.

    Args:
      graph: The client's computation.

    Attributes:
      graph: The same.
      loops: The loops over datasets, in their order.
      operations: The kinds of operations of all parts.

    Raises:
      UnsupportedGraphError: If the computation cannot be cut, or does
        not loop over a dataset.
    """

    def __init__(self, graph: ClientGraph) -> None:
        self.graph = graph
        self.loops: list[DatasetLoop] = []
        self._analyze()
        if not self.loops:
            raise UnsupportedGraphError("it does not reduce a dataset")

    def start(
        self, number: int, values: Sequence[Any], done: Sequence[TensorList]
    ) -> tuple[TensorList, TensorList]:
        """Evaluates what comes before a loop.

        Args:
          number: The number of the loop.
          values: A tensor for each input, None for a dataset.
          done: The last states of the loops before.

        Returns:
          The first state, and the arguments of the step.
        """
        interpreter, reduce = self._run(values, done, number)
        assert reduce is not None
        loop = self.loops[number]
        changing = [reduce.state[k] for k in loop.changing]
        fixed = [reduce.state[k] for k in loop.fixed]
        carried = [interpreter.variables[k].read() for k in loop.variables]
        arguments = [a for a in reduce.arguments if tf.is_tensor(a)]
        return [*changing, *carried], [*arguments, *fixed]

    def step(
        self, number: int, state: TensorList, arguments: TensorList, element: TensorList
    ) -> TensorList:
        """Evaluates a step of a loop; returns the new state."""
        return self._take_step(self.loops[number], state, arguments, element)[2]

    def finish(self, values: Sequence[Any], done: Sequence[TensorList]) -> TensorList:
        """Evaluates what comes after the last loop; returns the results."""
        return self._evaluate(values, done, None)[1]

    def _analyze(self) -> None:
        """Evaluates the computation once, in a graph that is thrown away."""
        with tf.Graph().as_default():
            values = [
                None if is_dataset(spec) else _placeholder(spec)
                for spec in self.graph.specs
            ]
            while True:
                done = [_placeholders(loop.state_specs) for loop in self.loops]
                interpreter, reduce = self._run(values, done, len(self.loops))
                if reduce is None:
                    break
                loop = _describe(reduce, interpreter.variables)
                carried = [interpreter.variables[k].value for k in loop.variables]
                if patterns.may_be_random([*reduce.state, *reduce.arguments, *carried]):
                    # What comes before a loop is evaluated again after it.
                    raise UnsupportedGraphError(
                        "it draws random numbers before it reduces a dataset"
                    )
                self.loops.append(loop)
            if self.loops:
                self._look_into_steps(interpreter)
        self.operations = interpreter.operations.union(
            *(loop.operations for loop in self.loops)
        )
        if graph_interpreter.LOOPS & self.operations:
            # TensorFlow fails to vectorize some of these, and may abort the program.
            raise UnsupportedGraphError("it has a loop, as recurrent layers do")

    def _look_into_steps(self, after: GraphInterpreter) -> None:
        """Notes the operations of the steps, and what need not go from step to step.

        That is state which no step changes. Of the last loop it is also a variable
        that is assigned before it is read, in a step and after the loop; what is
        assigned in the last step is then not even computed.

        Args:
          after: What evaluated the computation beyond its last loop.
        """
        for number, loop in enumerate(self.loops):
            state = _placeholders(loop.state_specs)
            variables, interpreter, results = self._take_step(
                loop,
                state,
                _placeholders(loop.argument_specs),
                _placeholders(self.graph.specs[loop.dataset]),
            )
            fixed = [
                k for k in loop.changing if patterns.source(results[k]) is state[k]
            ]
            changing = [k for k in loop.changing if k not in fixed]
            kept = loop.variables
            if number == len(self.loops) - 1:
                kept = tuple(
                    k
                    for k in loop.variables
                    if variables[k].first_value_read
                    or after.variables[k].first_value_read
                )
            specs = loop.state_specs
            of_variable = dict(zip(loop.variables, specs[len(loop.changing) :]))
            self.loops[number] = dataclasses.replace(
                loop,
                changing=tuple(changing),
                fixed=tuple(fixed),
                variables=kept,
                state_specs=(
                    *(specs[k] for k in changing),
                    *(of_variable[k] for k in kept),
                ),
                argument_specs=(*loop.argument_specs, *(specs[k] for k in fixed)),
                operations=frozenset(interpreter.operations),
            )

    def _take_step(
        self,
        loop: DatasetLoop,
        state: TensorList,
        arguments: TensorList,
        element: TensorList,
    ) -> tuple[dict[int, Variable], GraphInterpreter, TensorList]:
        """Evaluates the step of one client."""
        interpreter = GraphInterpreter(self.graph.graph_def, _no_reduce)
        num_changing = len(loop.changing)
        variables = {
            position: Variable(value)
            for position, value in zip(loop.variables, state[num_changing:])
        }
        tensors = iter(arguments)
        given = [
            next(tensors)
            if position is None
            else variables.setdefault(position, Variable())
            for position in loop.arguments
        ]
        # What is left of the tensors is the fixed state.
        whole_state = dict(
            zip([*loop.changing, *loop.fixed], [*state[:num_changing], *tensors])
        )
        results = interpreter.call_function(
            loop.step,
            [*(whole_state[k] for k in sorted(whole_state)), *element, *given],
        )
        changing = [results[position] for position in loop.changing]
        carried = [variables[position].value for position in loop.variables]
        return variables, interpreter, [*changing, *carried]

    def _run(
        self, values: Sequence[Any], done: Sequence[TensorList], stop_at: int | None
    ) -> tuple[GraphInterpreter, Reduce | None]:
        """Evaluates the computation of one client up to a loop."""
        interpreter, _, reduce = self._evaluate(values, done, stop_at)
        return interpreter, reduce

    def _evaluate(
        self, values: Sequence[Any], done: Sequence[TensorList], stop_at: int | None
    ) -> tuple[GraphInterpreter, TensorList, Reduce | None]:
        loops = iter(zip(self.loops, done))
        reached = 0

        def on_reduce(reduce: Reduce) -> TensorList:
            nonlocal reached
            if reached == stop_at:
                raise _ReachedLoopError(reduce)
            reached += 1
            loop, state = next(loops)
            for position, value in zip(loop.variables, state[len(loop.changing) :]):
                # Not `assign`: whether this value is read is worth knowing.
                interpreter.variables[position].restart(value)
            last = list(reduce.state)
            for position, value in zip(loop.changing, state):
                last[position] = value
            return last

        interpreter = GraphInterpreter(self.graph.graph_def, on_reduce)
        feeds = {
            name: DatasetInput(position) if is_dataset(spec) else value
            for position, (name, spec, value) in enumerate(
                zip(self.graph.inputs, self.graph.specs, values)
            )
        }
        try:
            return interpreter, interpreter.evaluate(feeds, self.graph.outputs), None
        except _ReachedLoopError as stop:
            return interpreter, [], stop.reduce


@dataclasses.dataclass(frozen=True)
class DatasetInput:
    """Stands for a client's dataset while its computation is evaluated."""

    position: int


class _ReachedLoopError(Exception):
    """Stops the evaluation where a loop begins."""

    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self.reduce = reduce


def _describe(reduce: Reduce, variables: Sequence[Variable]) -> DatasetLoop:
    if not isinstance(reduce.dataset, DatasetInput):
        raise UnsupportedGraphError("it reduces a dataset of its own")
    assigned = [k for k, v in enumerate(variables) if v.value is not None]
    arguments = [
        variables.index(a) if isinstance(a, Variable) else None
        for a in reduce.arguments
    ]
    tensors = [a for a in reduce.arguments if tf.is_tensor(a)]
    return DatasetLoop(
        dataset=reduce.dataset.position,
        step=reduce.step,
        changing=tuple(range(len(reduce.state))),
        fixed=(),
        variables=tuple(assigned),
        arguments=tuple(arguments),
        state_specs=tuple(
            map(_spec, [*reduce.state, *(variables[k].value for k in assigned)])
        ),
        argument_specs=tuple(map(_spec, tensors)),
        operations=frozenset(),
    )


def _no_reduce(reduce: Reduce) -> TensorList:
    raise UnsupportedGraphError("a step of it reduces a dataset")


def is_dataset(spec: Any) -> bool:
    """Whether the spec of an input is of a dataset."""
    return isinstance(spec, list)


def _spec(tensor: Any) -> tf.TensorSpec:
    if tensor.dtype in (tf.variant, tf.resource):
        raise UnsupportedGraphError("its loop carries a resource")
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def _placeholders(specs: Sequence[tf.TensorSpec]) -> TensorList:
    return [_placeholder(spec) for spec in specs]
