"""Clients that run their whole computation together, in step.

A computation that gathers its batches, as that of UGA does to pass over them again,
cannot be cut at its loop over the dataset. It is vectorized as a whole, and runs for
those clients at a time whose batches are of the same shapes from the first to the
last.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift.execution.local import patterns, policy, tensors
from tff_drift.execution.local.placement import Placement
from tff_drift.execution.local.policy import TurnSize
from tff_drift.execution.local.pure import graph_interpreter
from tff_drift.execution.local.pure.client_graph import (
    ClientGraph,
    DatasetInput,
    is_dataset,
)
from tff_drift.execution.local.pure.graph_interpreter import GraphInterpreter, Reduce
from tff_drift.execution.local.pure.variables import UnsupportedGraphError
from tff_drift.execution.local.stacked.functions import (
    StackedFunctions,
    concrete,
    num_bytes,
    vectorized_map,
)
from tff_drift.execution.local.stacked.interface import Group, StackedComputation
from tff_drift.execution.local.tensors import TensorList
from tff_drift.execution.local.values.batches import Batches, stack_batches
from tff_drift.execution.local.values.client_batches import stack_values
from tff_drift.tensors import ANY_SHAPE


@dataclasses.dataclass(frozen=True)
class _Group(Group):
    """A group, with the batches of each dataset."""

    batches: Sequence[Sequence[Batches]]


class InLockstep(StackedComputation):
    """A computation that is vectorized as a whole.

    Args:
      graph: The computation of one client.

    Raises:
      variables.UnsupportedGraphError: If it cannot be.
    """

    manner = "in lockstep"

    def __init__(self, graph: ClientGraph) -> None:
        self._graph = graph
        self._functions = StackedFunctions(graph, parts=1)
        self._datasets = [k for k, spec in enumerate(graph.specs) if is_dataset(spec)]
        inputs = [spec for spec in graph.specs if not is_dataset(spec)]
        self.state_bytes = num_bytes(inputs)
        operations, self.passes = self._look_into()
        if graph_interpreter.NESTED_LOOP in operations:
            # As in `pure.client_graph`.
            raise UnsupportedGraphError("it has loops in loops, as recurrent layers do")
        if not patterns.gathers_batches(operations):
            raise UnsupportedGraphError("it does not gather its batches")
        self.has_convolution = patterns.has_convolution(operations)

    def groups(
        self, datasets: Mapping[int, Sequence[Batches]], placement: Placement
    ) -> list[Group]:
        """See `StackedComputation.groups`."""
        own = [datasets[position] for position in self._datasets]
        # Those of the same shapes side by side, the cohort's order kept otherwise.
        order = [client for group in _of_one_shape(own) for client in group]
        groups: list[Group] = []
        num_devices = len(placement.client_devices)
        for chunk in policy.chunks(len(order), num_devices, self.state_bytes):
            clients = sorted(order[number] for number in chunk)
            batches = [[each[client] for client in clients] for each in own]
            turns = [
                TurnSize(len(equal), len(each[equal[0]]))
                for each in batches
                for equal in _of_one_shape([each])
            ]
            groups.append(_Group(clients, turns, batches))
        return groups

    def build(self, group: Group) -> None:
        """See `StackedComputation.build`."""
        del group  # The function takes any.
        try:
            self._function()
        except (ValueError, TypeError, NotImplementedError) as error:
            raise UnsupportedGraphError(str(error)) from error

    def run(self, inputs: Sequence[Any], group: Group) -> TensorList:
        """See `StackedComputation.run`."""
        assert isinstance(group, _Group)
        parts = _of_one_shape(group.batches)
        results = [self._run_part(inputs, group.batches, part) for part in parts]
        if len(parts) == 1:
            return results[0]
        order = np.argsort([client for part in parts for client in part])
        return [
            tf.add_n(of_parts)
            if summed
            else tf.gather(tf.concat(of_parts, axis=0), order)
            for of_parts, summed in zip(zip(*results), self._graph.summed)
        ]

    def _run_part(
        self,
        inputs: Sequence[Any],
        datasets: Sequence[Sequence[Batches]],
        part: Sequence[int],
    ) -> TensorList:
        of_part = list(inputs)
        for position in self._functions.own:
            of_part[position] = stack_values(
                [inputs[position][client] for client in part]
            )
        lists = [
            _as_list([batches[client] for client in part], self._graph.specs[position])
            for position, batches in zip(self._datasets, datasets)
        ]
        function = self._function()
        results = function(*self._functions.split(of_part, len(part)), lists)
        tensors.give_back_attributes(results)
        return results

    def _function(self) -> Any:
        # One for any number of clients: it takes long to build, and copies little
        # where the number is not known.
        return self._functions.cached(None, self._build)

    def _build(self) -> Any:
        def of_clients(
            common: TensorList, own: TensorList, clients: tf.Tensor, lists: Any
        ) -> TensorList:
            def of_client(parts: Any) -> TensorList:
                values = self._functions.of_client(common, parts[0])
                elements = {
                    position: _Elements(
                        count, handles, self._graph.specs[position], parts[1]
                    )
                    for position, (count, handles) in zip(self._datasets, lists)
                }
                return self._evaluate(values, elements)[0]

            results = vectorized_map(of_client, (own, clients))
            return [
                tf.reduce_sum(stack, axis=0) if summed else stack
                for stack, summed in zip(results, self._graph.summed)
            ]

        lists = [
            (
                tf.TensorSpec([], tf.int32),
                [tf.TensorSpec([], tf.variant) for _ in self._graph.specs[position]],
            )
            for position in self._datasets
        ]
        return concrete(of_clients, (*self._functions.signature(None), lists))

    def _evaluate(
        self, values: Sequence[Any], elements: Mapping[int, _Elements]
    ) -> tuple[TensorList, set[str], collections.Counter[int]]:
        """Evaluates the computation of one client.

        Returns:
          The results, the kinds of operations, and the passes over each dataset.
        """
        passes: collections.Counter[int] = collections.Counter()

        def on_reduce(reduce: Reduce) -> TensorList:
            if not isinstance(reduce.dataset, DatasetInput):
                raise UnsupportedGraphError("it reduces a dataset of its own")
            passes[reduce.dataset.position] += 1
            own = elements[reduce.dataset.position]

            def take_step(current: list[Any]) -> list[Any]:
                number, *rest = current
                state, arguments = rest[:num_state], rest[num_state:]
                results = interpreter.call_function(
                    reduce.step, [*state, *own.read(number), *arguments]
                )
                return [number + 1, *results, *arguments]

            num_state = len(reduce.state)
            first = [tf.constant(0), *reduce.state, *reduce.arguments]
            shapes = [tf.TensorShape([]), *reduce.shapes]
            shapes += [_shape(argument) for argument in reduce.arguments]
            last = interpreter.loop(
                lambda current: [current[0] < own.count], take_step, first, shapes
            )
            return last[1 : 1 + num_state]

        interpreter = GraphInterpreter(self._graph.graph_def, on_reduce)
        feeds = {
            name: DatasetInput(position) if is_dataset(spec) else value
            for position, (name, spec, value) in enumerate(
                zip(self._graph.inputs, self._graph.specs, values)
            )
        }
        results = interpreter.evaluate(feeds, self._graph.outputs)
        return results, interpreter.operations, passes

    def _look_into(self) -> tuple[set[str], int]:
        """Evaluates the computation once, in a graph that is thrown away.

        Returns:
          The kinds of its operations, and `StackedComputation.passes`.
        """
        placeholder = tf.compat.v1.placeholder
        with tf.Graph().as_default():
            values = [
                None if is_dataset(spec) else placeholder(spec.dtype, spec.shape)
                for spec in self._graph.specs
            ]
            elements = {
                position: _Elements(
                    placeholder(tf.int32, []),
                    [placeholder(tf.variant, []) for _ in self._graph.specs[position]],
                    self._graph.specs[position],
                    placeholder(tf.int32, []),
                )
                for position in self._datasets
            }
            _, operations, passes = self._evaluate(values, elements)
            return operations, max(passes.values(), default=0)


class _Elements:
    """The elements of a client's dataset, in lists of those of all clients.

    Args:
      count: The number of elements.
      handles: For each component, a list with the stacked tensors of each element.
      specs: The specs of the components.
      client: The number of the client.
    """

    def __init__(
        self,
        count: tf.Tensor,
        handles: Sequence[tf.Tensor],
        specs: Sequence[tf.TensorSpec],
        client: tf.Tensor,
    ) -> None:
        self.count = count
        self._handles = handles
        self._specs = specs
        self._client = client

    def read(self, number: tf.Tensor) -> TensorList:
        """Returns an element."""
        return [
            tf.ensure_shape(
                tf.gather(
                    tf.raw_ops.TensorListGetItem(
                        input_handle=handle,
                        index=number,
                        element_shape=ANY_SHAPE,
                        element_dtype=spec.dtype,
                    ),
                    self._client,
                ),
                spec.shape,
            )
            for handle, spec in zip(self._handles, self._specs)
        ]


def _shape(value: Any) -> tf.TensorShape:
    return value.shape if tf.is_tensor(value) else tf.TensorShape(None)


def _of_one_shape(datasets: Sequence[Sequence[Batches]]) -> list[list[int]]:
    """Returns the clients in groups of those whose batches are of the same shapes."""
    groups: dict[Any, list[int]] = collections.defaultdict(list)
    for client, own in enumerate(zip(*datasets)):
        groups[tuple(tuple(batches.shapes) for batches in own)].append(client)
    return list(groups.values())


def _as_list(
    batches: Sequence[Batches], specs: Sequence[tf.TensorSpec]
) -> tuple[tf.Tensor, TensorList]:
    """Returns the number of batches, and for each component a list of their stacks."""
    count = len(batches[0])
    with tf.device("/CPU:0"):
        handles = [
            tf.raw_ops.EmptyTensorList(
                element_shape=ANY_SHAPE,
                max_num_elements=-1,
                element_dtype=spec.dtype,
            )
            for spec in specs
        ]
        for number in range(count):
            stacks = stack_batches(batches, number, specs)
            handles = [
                tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=stack)
                for handle, stack in zip(handles, stacks)
            ]
            tensors.give_back_attributes([*stacks, *handles])
    return tf.constant(count), handles
