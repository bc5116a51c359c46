"""The computation of one client, cut at the loops over its dataset.

A computation that loops over a dataset by `Dataset.reduce` has the parts

    start   what happens before the loop
    step    what happens for each element, a batch
    finish  what happens after the loop

A computation with several loops has a start for each; loops over gathered batches
count as such, see `loops`. Variables become tensors that go from part to part.
What a loop carries along but never changes, such as the correction of every step by
control variates, becomes an argument of the step.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program import convolutions, vectorizable
from tff_drift.execution.local.client_program.interpreter import (
    LOOPS,
    GraphInterpreter,
)
from tff_drift.execution.local.client_program.loops import (
    ClientGraph,
    DatasetInput,
    DatasetLoop,
    ListInGraph,
    Reduce,
    StepResults,
    described,
    is_dataset,
    placeholder,
    placeholders,
    spec_of,
    with_inputs,
)
from tff_drift.execution.local.client_program.nodes import (
    UnsupportedGraphError,
    Variable,
)
from tff_drift.execution.local.graphs import import_graph
from tff_drift.execution.local.tensors import TensorList


class ClientProgram:
    """The parts of a client's computation, which add themselves to the current graph.

    Args:
      graph: The client's computation.

    Attributes:
      graph: The same, and if it gathers batches with the number of them as another
        input, the last.
      epochs: How many epochs of batches it gathers, 0 if none.
      loops: The loops over datasets, in their order.
      operations: The kinds of operations of all parts.
      content: A digest: programs of one compute the same.

    Raises:
      UnsupportedGraphError: If the computation cannot be cut.
    """

    def __init__(self, graph: ClientGraph) -> None:
        self.epochs = patterns.gathered_epochs(graph.graph_def)
        if self.epochs:
            count = {"number of batches": tf.TensorSpec([], tf.int32)}
            graph = with_inputs(graph, count)
        self.graph = graph
        self.loops: list[DatasetLoop] = []
        self._analyze()

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
        interpreter, _, reduce = self._evaluate(values, done, number)
        assert reduce is not None
        loop = self.loops[number]
        changing = [reduce.state[k] for k in loop.changing]
        fixed = [reduce.state[k] for k in loop.fixed]
        carried = [interpreter.variables[k].read() for k in loop.variables]
        arguments = [a for a in reduce.arguments if tf.is_tensor(a)]
        return [*changing, *carried], [*arguments, *fixed]

    def step(
        self,
        number: int,
        state: TensorList,
        arguments: TensorList,
        element: TensorList,
        *,
        alone: bool = False,
    ) -> StepResults:
        """Evaluates a step.

        Args:
          number: The number of the loop.
          state: The state.
          arguments: What else it takes.
          element: A batch, and the saved iterates that it reads.
          alone: Whether it is run as it is, and not vectorized.
        """
        loop = self.loops[number]
        return self._take_step(loop, state, arguments, element, alone=alone)[2]

    def finish(self, values: Sequence[Any], done: Sequence[TensorList]) -> TensorList:
        """Evaluates what comes after the last loop; returns the results."""
        return self._evaluate(values, done, None)[1]

    def num_patch_values(self, number: int) -> float:
        """Returns how many values the patches have that a step's convolutions take.

        Args:
          number: The number of the loop.

        Returns:
          The number for a batch of one example, if batches are of any size; 0 without
          convolutions, infinite if the sizes of one are not known.
        """
        loop = self.loops[number]
        if not patterns.has_convolution(loop.operations):
            return 0
        element = [
            tf.TensorSpec([spec.shape[0] or 1, *spec.shape[1:]], spec.dtype)
            if spec.shape.rank
            else spec
            for spec in self.element_specs(number)
        ]
        specs = loop.state_specs, loop.argument_specs, element
        with tf.Graph().as_default():
            try:
                results = self.step(number, *map(placeholders, specs))
            except UnsupportedGraphError:
                return math.inf  # It takes no batches of one example.
            # Not that of gradients that nothing is made of.
            needed = patterns.made_by([*results.state, *results.written])
            return convolutions.num_patch_values(needed)

    def _analyze(self) -> None:
        """Evaluates the computation once, in a graph that is thrown away."""
        computed: list[Any] = []
        with tf.Graph().as_default() as graph:
            values = [
                None if is_dataset(spec) else placeholder(spec)
                for spec in self.graph.specs
            ]
            while True:
                done = [placeholders(loop.state_specs) for loop in self.loops]
                interpreter, results, reduce = self._evaluate(
                    values, done, len(self.loops)
                )
                computed += results
                if reduce is None:
                    break
                loop = described(reduce, interpreter.variables)
                carried = [interpreter.variables[k].value for k in loop.variables]
                given = [*reduce.state, *reduce.arguments, *carried]
                computed += given
                if patterns.may_be_random(given):
                    # What comes before a loop is evaluated again after it.
                    raise UnsupportedGraphError(
                        "it draws random numbers before it reduces a dataset"
                    )
                self.loops.append(loop)
            self._variable_shapes = [each.shape for each in interpreter.variables]
            if self.loops:
                computed += self._look_into_steps(interpreter)
            self.content = self._digest(graph, computed)
        self.operations = interpreter.operations.union(
            *(loop.operations for loop in self.loops)
        )
        if LOOPS & self.operations:
            # TensorFlow fails to vectorize some of these, and may abort the program.
            raise UnsupportedGraphError("it has a loop, as recurrent layers do")
        obstacle = vectorizable.obstacle(self.operations)
        if obstacle is not None:
            raise UnsupportedGraphError(obstacle)

    def element_specs(self, number: int) -> list[tf.TensorSpec]:
        """Returns the specs of a loop's batch, and of the saved iterates it reads."""
        loop = self.loops[number]
        saved = {
            number: spec
            for each in self.loops[:number]
            for number, spec in zip(each.writes, each.written_specs, strict=True)
        }
        return [*self.graph.specs[loop.dataset], *(saved[k] for k in loop.reads)]

    def _look_into_steps(self, after: GraphInterpreter) -> TensorList:
        """Notes the operations of the steps, and what need not go from step to step.

        That is state which no step changes. Of the last loop it is also a variable
        that is assigned before it is read, in a step and after the loop; what is
        assigned in the last step is then not even computed.

        Args:
          after: What evaluated the computation beyond its last loop.

        Returns:
          What the steps return.
        """
        computed: TensorList = []
        for number, loop in enumerate(self.loops):
            state = placeholders(loop.state_specs)
            variables, interpreter, results = self._take_step(
                loop,
                state,
                placeholders(loop.argument_specs),
                placeholders(self.element_specs(number)),
            )
            new = results.state
            computed += [*new, *results.written]
            fixed = [k for k in loop.changing if patterns.source(new[k]) is state[k]]
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
            of_variable = dict(
                zip(loop.variables, specs[len(loop.changing) :], strict=True)
            )
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
                written_specs=tuple(map(spec_of, results.written)),
            )
        return computed

    def _digest(self, graph: tf.Graph, computed: Sequence[Any]) -> bytes:
        """Returns a digest of what was evaluated in a graph, and of how it is called.

        What is needed for nothing, such as the first values of variables, does not
        count: they alone differ between seeds.
        """
        checks = [x for x in graph.get_operations() if patterns.has_check([x.type])]
        results = [tensor.name for tensor in computed if tf.is_tensor(tensor)]
        targets = [tensor.op.name for tensor in computed if tf.is_tensor(tensor)]
        graph_def = graph.as_graph_def()
        import_graph.prune(graph_def, [*targets, *(x.name for x in checks)], set())
        own = self.graph
        loops = [
            (x.dataset, x.lists and x.lists.part, x.reads, x.writes, x.state_specs)
            for x in self.loops
        ]
        called = repr((results, own.specs, own.each, own.summed, self.epochs, loops))
        digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True))
        digest.update(called.encode())
        return digest.digest()

    def _take_step(
        self,
        loop: DatasetLoop,
        state: TensorList,
        arguments: TensorList,
        element: TensorList,
        *,
        alone: bool = False,
    ) -> tuple[dict[int, Variable], GraphInterpreter, StepResults]:
        """Evaluates the step of one client."""
        interpreter = GraphInterpreter(
            self.graph.graph_def, no_reduce, with_products=alone
        )
        num_changing = len(loop.changing)
        variables = {
            position: Variable(value, self._variable_shapes[position])
            for position, value in zip(
                loop.variables, state[num_changing:], strict=True
            )
        }
        tensors = iter(arguments)
        given = [
            next(tensors)
            if position is None
            else variables.setdefault(
                position, Variable(shape=self._variable_shapes[position])
            )
            for position in loop.arguments
        ]
        # What is left of the tensors is the fixed state.
        whole_state = dict(
            zip(
                [*loop.changing, *loop.fixed],
                [*state[:num_changing], *tensors],
                strict=True,
            )
        )
        whole = [whole_state[k] for k in sorted(whole_state)]
        results = loop.take_step(interpreter.call_function, whole, element, given)
        changing = [results.state[position] for position in loop.changing]
        carried = [variables[position].value for position in loop.variables]
        return variables, interpreter, results._replace(state=[*changing, *carried])

    def _evaluate(
        self, values: Sequence[Any], done: Sequence[TensorList], stop_at: int | None
    ) -> tuple[GraphInterpreter, TensorList, Reduce | None]:
        """Evaluates the computation of one client, up to a loop or to its results."""
        loops = iter(zip(self.loops, done, strict=False))
        reached = 0

        def on_reduce(reduce: Reduce) -> list[Any]:
            nonlocal reached
            if self.epochs and any(each.dtype == tf.variant for each in reduce.state):
                return self._gather(reduce, values)
            if reached == stop_at:
                raise _ReachedLoopError(reduce)
            reached += 1
            loop, state = next(loops)
            for position, value in zip(
                loop.variables, state[len(loop.changing) :], strict=True
            ):
                # Not `assign`: whether this value is read is worth knowing.
                interpreter.variables[position].restart(value)
            last = list(reduce.state)
            for position, value in zip(loop.changing, state, strict=False):
                last[position] = value
            return last

        interpreter = GraphInterpreter(self.graph.graph_def, on_reduce)
        feeds = {
            name: DatasetInput(position) if is_dataset(spec) else value
            for position, (name, spec, value) in enumerate(
                zip(self.graph.inputs, self.graph.specs, values, strict=True)
            )
        }
        try:
            return interpreter, interpreter.evaluate(feeds, self.graph.outputs), None
        except _ReachedLoopError as stop:
            return interpreter, [], stop.reduce

    def _gather(self, reduce: Reduce, values: Sequence[Any]) -> list[Any]:
        """Returns what a loop that gathers batches ends with: their number, and lists.

        That state is part of the agreement in `patterns`.
        """
        if not isinstance(reduce.dataset, DatasetInput):
            raise UnsupportedGraphError("it gathers batches of a dataset of its own")
        if sum(map(is_dataset, self.graph.specs)) > 1:
            raise UnsupportedGraphError("it gathers batches of several datasets")
        components = range(len(reduce.state) - 1)
        return [values[-1], *(ListInGraph(reduce.dataset, k) for k in components)]


class _ReachedLoopError(Exception):
    """Stops the evaluation where a loop begins."""

    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self.reduce = reduce


def no_reduce(loop: Any) -> list[Any]:
    """Refuses a loop over batches where a step is evaluated."""
    raise UnsupportedGraphError("a step of it has a loop over batches")
