"""One client's computation, turned into one for many clients at a time.

A client's computation that loops over its dataset by `Dataset.reduce` is cut there:

    start   what happens before the loop
    step    what happens for each element, a batch
    finish  what happens after the loop

Each part becomes a function of tensors with one more, leading dimension, the
clients, by `tf.vectorized_map`: where a client multiplies matrices, the function
multiplies stacks of them. A computation with several loops has a start for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import functional

Tensors = list[tf.Tensor]


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
    """

    graph_def: Any
    inputs: tuple[str, ...]
    specs: tuple[Any, ...]
    each: tuple[bool, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop over a client's dataset.

    Attributes:
      dataset: The position of the dataset among the inputs.
      step: The name of the step's function.
      num_state: The number of tensors in the loop's state, variables left out.
      variables: The variables whose values go from step to step, by their position
        among the variables of the graph; their values follow the state.
      arguments: For each argument of the step besides state and element: the
        position of a variable, or None for a tensor.
      state_specs: The specs of state and variables.
      argument_specs: The specs of the arguments that are tensors.
      operations: The kinds of operations of a step.
    """

    dataset: int
    step: str
    num_state: int
    variables: tuple[int, ...]
    arguments: tuple[int | None, ...]
    state_specs: tuple[tf.TensorSpec, ...]
    argument_specs: tuple[tf.TensorSpec, ...]
    operations: frozenset[str]


class VectorizedClient:
    """The parts of a client's computation, as functions of many clients.

    Args:
      graph: The client's computation.

    Attributes:
      loops: The loops over datasets, in their order.

    Raises:
      functional.UnsupportedGraphError: If the computation cannot be cut, or does
        not loop over a dataset.
    """

    def __init__(self, graph: ClientGraph) -> None:
        self._graph = graph
        self.loops: list[Loop] = []
        self._starts: list[Callable[..., tuple[Tensors, Tensors]]] = []
        self._steps: list[Callable[..., Tensors]] = []
        self._finish: Callable[..., Tensors] | None = None
        self._analyze()
        if not self.loops:
            raise functional.UnsupportedGraphError("it does not reduce a dataset")

    def build(self) -> None:
        """Builds the functions, unless it has been done.

        Raises:
          functional.UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """
        if self._finish is not None:
            return
        numbers = range(len(self.loops))
        try:
            self._starts = [self._build_start(number) for number in numbers]
            self._steps = [self._build_step(number) for number in numbers]
            self._finish = self._build_finish()
        except (ValueError, TypeError, NotImplementedError) as error:
            raise functional.UnsupportedGraphError(str(error)) from error

    def start(
        self, loop: int, inputs: Sequence[Any], clients: tf.Tensor, done: list[Tensors]
    ) -> tuple[Tensors, Tensors]:
        """Runs what comes before a loop.

        Args:
          loop: The number of the loop.
          inputs: A value for each input but the datasets, stacked if each client
            has its own.
          clients: The numbers of the clients, a vector.
          done: The last states of the loops before.

        Returns:
          The first state and the arguments of the step, all of them stacked.
        """
        return self._starts[loop](inputs, clients, done)

    def step(
        self, loop: int, state: Tensors, arguments: Tensors, element: Tensors
    ) -> Tensors:
        """Runs a step of every client; all that it takes and returns is stacked."""
        return self._steps[loop](state, arguments, element)

    def finish(
        self, inputs: Sequence[Any], clients: tf.Tensor, done: list[Tensors]
    ) -> Tensors:
        """Runs what comes after the last loop, see `start`; returns the results."""
        assert self._finish is not None
        return self._finish(inputs, clients, done)

    def _analyze(self) -> None:
        """Evaluates the computation once, in a graph that is thrown away."""
        with tf.Graph().as_default():
            values = [
                None if _is_dataset(spec) else _placeholder(spec)
                for spec in self._graph.specs
            ]
            while True:
                done = [_placeholders(loop.state_specs) for loop in self.loops]
                evaluator, reduce = self._run(values, done, len(self.loops))
                if reduce is None:
                    break
                self.loops.append(_describe(reduce, evaluator.variables))
            if self.loops:
                self._look_into_steps(evaluator)

    def _look_into_steps(self, after: functional.Evaluator) -> None:
        """Notes the operations of the steps, and what the last need not carry along.

        A variable that is assigned before it is read, in a step and after the loop,
        need not go from step to step; what is assigned in the last step is then not
        even computed.

        Args:
          after: What evaluated the computation beyond its last loop.
        """
        for number, loop in enumerate(self.loops):
            variables, evaluator, _ = self._take_step(
                loop,
                _placeholders(loop.state_specs),
                _placeholders(loop.argument_specs),
                _placeholders(self._graph.specs[loop.dataset]),
            )
            kept = loop.variables
            if number == len(self.loops) - 1:
                kept = tuple(
                    k
                    for k in loop.variables
                    if variables[k].first_value_read
                    or after.variables[k].first_value_read
                )
            of_variable = dict(zip(loop.variables, loop.state_specs[loop.num_state :]))
            self.loops[number] = dataclasses.replace(
                loop,
                variables=kept,
                state_specs=(
                    *loop.state_specs[: loop.num_state],
                    *(of_variable[k] for k in kept),
                ),
                operations=frozenset(evaluator.operations),
            )

    def _take_step(
        self, loop: Loop, state: Tensors, arguments: Tensors, element: Tensors
    ) -> tuple[dict[int, functional.Variable], functional.Evaluator, Tensors]:
        """Evaluates the step of one client."""
        evaluator = functional.Evaluator(self._graph.graph_def, _no_reduce)
        variables = {
            position: functional.Variable(value)
            for position, value in zip(loop.variables, state[loop.num_state :])
        }
        tensors = iter(arguments)
        given = [
            next(tensors)
            if position is None
            else variables.setdefault(position, functional.Variable())
            for position in loop.arguments
        ]
        results = evaluator.call_function(
            loop.step, [*state[: loop.num_state], *element, *given]
        )
        carried = [variables[position].value for position in loop.variables]
        return variables, evaluator, [*results, *carried]

    def _run(
        self, values: Sequence[Any], done: Sequence[Tensors], stop_at: int | None
    ) -> tuple[functional.Evaluator, functional.Reduce | None]:
        """Evaluates the computation of one client up to a loop."""
        evaluator, _, reduce = self._evaluate(values, done, stop_at)
        return evaluator, reduce

    def _evaluate(
        self, values: Sequence[Any], done: Sequence[Tensors], stop_at: int | None
    ) -> tuple[functional.Evaluator, Tensors, functional.Reduce | None]:
        loops = iter(zip(self.loops, done))
        reached = 0

        def on_reduce(reduce: functional.Reduce) -> Tensors:
            nonlocal reached
            if reached == stop_at:
                raise _ReachedLoopError(reduce)
            reached += 1
            loop, state = next(loops)
            for position, value in zip(loop.variables, state[loop.num_state :]):
                # Not `assign`: whether this value is read is worth knowing.
                evaluator.variables[position].restart(value)
            return list(state[: loop.num_state])

        evaluator = functional.Evaluator(self._graph.graph_def, on_reduce)
        feeds = {
            name: _Dataset(position) if _is_dataset(spec) else value
            for position, (name, spec, value) in enumerate(
                zip(self._graph.inputs, self._graph.specs, values)
            )
        }
        try:
            return evaluator, evaluator.evaluate(feeds, self._graph.outputs), None
        except _ReachedLoopError as stop:
            return evaluator, [], stop.reduce

    def _build_start(self, number: int) -> Callable[..., Any]:
        loop = self.loops[number]

        def start(values: Sequence[Any], done: Sequence[Tensors]) -> Tensors:
            evaluator, reduce = self._run(values, done, number)
            assert reduce is not None
            carried = [evaluator.variables[k].read() for k in loop.variables]
            arguments = [a for a in reduce.arguments if tf.is_tensor(a)]
            return [*reduce.state, *carried, *arguments]

        num_state = len(loop.state_specs)
        vectorized = self._vectorize(start, number)

        def split(*arguments: Any) -> tuple[Tensors, Tensors]:
            results = vectorized(*arguments)
            return results[:num_state], results[num_state:]

        return split

    def _build_step(self, number: int) -> Callable[..., Tensors]:
        loop = self.loops[number]

        def step(parts: tuple[Tensors, Tensors, Tensors]) -> Tensors:
            return self._take_step(loop, *parts)[2]

        element_specs = self._graph.specs[loop.dataset]
        signature = tuple(
            [_stacked(spec) for spec in specs]
            for specs in (loop.state_specs, loop.argument_specs, element_specs)
        )
        return _concrete(lambda *parts: _vectorized_map(step, parts), signature)

    def _build_finish(self) -> Callable[..., Tensors]:
        def finish(values: Sequence[Any], done: Sequence[Tensors]) -> Tensors:
            return self._evaluate(values, done, None)[1]

        return self._vectorize(finish, len(self.loops))

    def _vectorize(
        self, part: Callable[[Sequence[Any], Sequence[Tensors]], Tensors], loops: int
    ) -> Callable[..., Tensors]:
        """Vectorizes a function of the inputs and of the states of finished loops."""
        each = [
            position
            for position, (spec, own) in enumerate(
                zip(self._graph.specs, self._graph.each)
            )
            if own and not _is_dataset(spec)
        ]
        shared = [position for position, own in enumerate(self._graph.each) if not own]

        def of_clients(
            common: Tensors, own: Tensors, clients: tf.Tensor, done: list[Tensors]
        ) -> Tensors:
            def of_client(parts: Any) -> Tensors:
                values: dict[int, tf.Tensor] = dict(zip(shared, common))
                values.update(zip(each, parts[0]))
                return part(
                    [values.get(k) for k in range(len(self._graph.inputs))], parts[2]
                )

            return _vectorized_map(of_client, (own, clients, done))

        function = _concrete(
            of_clients,
            (
                [self._graph.specs[position] for position in shared],
                [_stacked(self._graph.specs[position]) for position in each],
                tf.TensorSpec([None], tf.int32),
                [
                    [_stacked(spec) for spec in loop.state_specs]
                    for loop in self.loops[:loops]
                ],
            ),
        )

        def call(
            inputs: Sequence[Any], clients: tf.Tensor, done: list[Tensors]
        ) -> Tensors:
            return function(
                [inputs[position] for position in shared],
                [inputs[position] for position in each],
                clients,
                done,
            )

        return call


@dataclasses.dataclass(frozen=True)
class _Dataset:
    """Stands for a client's dataset while its computation is evaluated."""

    position: int


class _ReachedLoopError(Exception):
    """Stops the evaluation where a loop begins."""

    def __init__(self, reduce: functional.Reduce) -> None:
        super().__init__()
        self.reduce = reduce


def _describe(
    reduce: functional.Reduce, variables: Sequence[functional.Variable]
) -> Loop:
    if not isinstance(reduce.dataset, _Dataset):
        raise functional.UnsupportedGraphError("it reduces a dataset of its own")
    assigned = [k for k, v in enumerate(variables) if v.value is not None]
    arguments = [
        variables.index(a) if isinstance(a, functional.Variable) else None
        for a in reduce.arguments
    ]
    tensors = [a for a in reduce.arguments if tf.is_tensor(a)]
    return Loop(
        dataset=reduce.dataset.position,
        step=reduce.step,
        num_state=len(reduce.state),
        variables=tuple(assigned),
        arguments=tuple(arguments),
        state_specs=tuple(
            map(_spec, [*reduce.state, *(variables[k].value for k in assigned)])
        ),
        argument_specs=tuple(map(_spec, tensors)),
        operations=frozenset(),
    )


def _concrete(function: Callable[..., Tensors], signature: Any) -> Any:
    """Returns a TensorFlow function, traced."""
    # A function of a flat list of tensors is called with little ado in Python.
    flat = tf.compat.v1.wrap_function(
        lambda *tensors: function(*tf.nest.pack_sequence_as(signature, tensors)),
        tf.nest.flatten(signature),
    )
    return lambda *parts: flat(*tf.nest.flatten(parts))


def _no_reduce(reduce: functional.Reduce) -> Tensors:
    raise functional.UnsupportedGraphError("a step of it reduces a dataset")


def _vectorized_map(function: Callable[[Any], Tensors], elements: Any) -> Tensors:
    return tf.vectorized_map(
        function, elements, fallback_to_while_loop=True, warn=False
    )


def _is_dataset(spec: Any) -> bool:
    return isinstance(spec, list)


def _spec(tensor: Any) -> tf.TensorSpec:
    if tensor.dtype in (tf.variant, tf.resource):
        raise functional.UnsupportedGraphError("its loop carries a resource")
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _stacked(spec: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape), spec.dtype)


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def _placeholders(specs: Sequence[tf.TensorSpec]) -> Tensors:
    return [_placeholder(spec) for spec in specs]
