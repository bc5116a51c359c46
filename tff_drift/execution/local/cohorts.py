"""The clients of a cohort, trained many at a time.

The clients of a cohort are independent of each other, so they need not keep step:
in every turn, those whose next batches are of one shape, and are the most, take a
step together. Clients of any sizes thus train on exactly their own batches; nothing
is padded.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tff_drift.execution.local import batches, functional, sequences
from tff_drift.execution.local.batches import Batches
from tff_drift.execution.local.cutting import ClientGraph, CutClient, Tensors
from tff_drift.execution.local.graphs import GraphCache
from tff_drift.execution.local.phase_functions import PhaseFunction
from tff_drift.execution.local.planning import Leaf, Operation
from tff_drift.execution.local.vectorizing import VectorizedClient

# What gains nothing from stacking: convolutions with a filter of each client's own are
# done one client after the other anyway.
_UNSUITABLE = ("Conv",)
# The states of the clients that are trained at a time take at most this, so that they
# stay in the processor's cache.
_STACK_BYTES = 10 * 2**20
# Where that leaves fewer clients than this, there may be as many, within more memory.
_FEW_CLIENTS = 8
_MOST_STACK_BYTES = 2**27
# The batches that are read for a turn take at most this.
_ELEMENT_BYTES = 2**24
# A step of a stack takes about as long as this many steps of single clients, if the
# model is small; benchmarks/rounds.py measures it.
_STEPS_PER_TURN = 8


class Cohort:
    """A client's computation, for many clients at a time.

    Args:
      client: The vectorized computation.
      function: The computation.
      cache: Holds the batches of datasets.
      always: Whether every cohort is to be trained so.
    """

    def __init__(
        self,
        client: VectorizedClient,
        function: PhaseFunction,
        cache: batches.BatchCache,
        always: bool,
    ) -> None:
        self._client = client
        self._function = function
        self._cache = cache
        self._always = always
        self._unsupported = False
        largest = max(_num_bytes(loop.state_specs) for loop in client.client.loops)
        most = max(_FEW_CLIENTS, _STACK_BYTES // max(1, largest))
        self._most = max(1, min(most, _MOST_STACK_BYTES // max(1, largest)))

    def suits(
        self, values: Mapping[Leaf, Any], chunks: Sequence[Sequence[int]]
    ) -> bool:
        """Whether a cohort is to be trained so.

        It is if its clients take many steps together, which is a matter of the shapes
        of their batches, and if its batches need not be read anew in every round.

        Args:
          values: The values of the leaves that the computation takes.
          chunks: The clients, see `chunks`.
        """
        if self._unsupported or not chunks:
            return False
        if not self._always:
            for leaf in self._sequences():
                if not all(_is_repeatable(value) for value in values[leaf]):
                    return False
                own = [self._batches(value, leaf) for value in values[leaf]]
                turns = sum(_num_turns([own[c] for c in chunk]) for chunk in chunks)
                if sum(map(len, own)) < _STEPS_PER_TURN * turns:
                    return False
        return self._built({len(chunk) for chunk in chunks})

    def _built(self, sizes: Iterable[int]) -> bool:
        """Builds the functions; returns whether it can be done."""
        try:
            for size in sizes:
                self._client.build(size)
        except functional.UnsupportedGraphError as error:
            logging.debug("Clients are trained one by one: %s.", error)
            self._unsupported = True
        return not self._unsupported

    def _sequences(self) -> list[Leaf]:
        return [
            leaf
            for leaf in self._function.inputs
            if sequences.is_sequence(leaf.type_signature)
        ]

    def chunks(self, num_clients: int, at_least: int) -> list[range]:
        """Returns the clients in parts of about one size, to be trained in turn.

        Args:
          num_clients: The number of clients.
          at_least: The number of parts, if there are as many clients.
        """
        if not num_clients:
            return []
        parts = max(-(-num_clients // self._most), min(at_least, num_clients))
        bounds = [num_clients * part // parts for part in range(parts + 1)]
        return [range(*pair) for pair in zip(bounds, bounds[1:])]

    def run(
        self, values: Mapping[Leaf, Any], clients: Sequence[int]
    ) -> dict[Leaf, tf.Tensor]:
        """Runs the computation for some clients.

        Args:
          values: The values of the leaves that the computation takes.
          clients: The numbers of the clients.

        Returns:
          The stacked results.
        """
        inputs: list[Any] = []
        datasets: dict[int, Sequence[Batches]] = {}
        for position, leaf in enumerate(self._function.inputs):
            value = values[leaf]
            if sequences.is_sequence(leaf.type_signature):
                inputs.append(None)
                datasets[position] = [
                    self._batches(value[client], leaf) for client in clients
                ]
            elif leaf.at_clients:
                inputs.append(tf.stack([value[client] for client in clients]))
            else:
                inputs.append(value)
        results = train_cohort(self._client, inputs, datasets, len(clients))
        return dict(zip(self._function.outputs, results))

    def _batches(self, value: Any, leaf: Leaf) -> Batches:
        if isinstance(value, batches.ClientSequence):
            return value.batches(self._cache)
        return batches.read_batches(value, leaf.type_signature.element)


def build_cohort(
    steps: Sequence[Operation],
    wanted: Iterable[Leaf],
    graphs: GraphCache,
    cache: batches.BatchCache,
    batch_clients: bool | None,
) -> Cohort | None:
    """Vectorizes the operations of every client, if that is possible and pays.

    Args:
      steps: The operations.
      wanted: The leaves wanted.
      graphs: Where graphs come from, with `Dataset.reduce` in its first form.
      cache: Holds the batches of datasets.
      batch_clients: False: never; True: whenever possible; None: if it pays.

    Returns:
      A `Cohort`, or None.
    """
    if batch_clients is False or not any(
        sequences.is_sequence(leaf.type_signature) and leaf.at_clients
        for step in steps
        for leaf in step.inputs
    ):
        return None
    function = PhaseFunction(steps, wanted, graphs)
    try:
        client = CutClient(_client_graph(function))
        if batch_clients is None and not _pays(client):
            return None
    except functional.UnsupportedGraphError as error:
        logging.debug("Clients are trained one by one: %s.", error)
        return None
    vectorized = VectorizedClient(client)
    return Cohort(vectorized, function, cache, always=bool(batch_clients))


def _is_repeatable(value: Any) -> bool:
    return isinstance(value, batches.ClientSequence) and value.is_repeatable()


def _pays(client: CutClient) -> bool:
    return not any(
        part in operation
        for loop in client.loops
        for operation in loop.operations
        for part in _UNSUITABLE
    )


def _client_graph(function: PhaseFunction) -> ClientGraph:
    graph = function.function.graph
    for leaf in function.inputs:
        if sequences.is_sequence(leaf.type_signature) and not leaf.at_clients:
            raise functional.UnsupportedGraphError("its clients share a sequence")
    if any(sequences.is_sequence(leaf.type_signature) for leaf in function.outputs):
        raise functional.UnsupportedGraphError("it makes a sequence")
    return ClientGraph(
        graph_def=graph.as_graph_def(),
        inputs=tuple(tensor.op.name for tensor in function.function.inputs),
        specs=tuple(
            tf.nest.flatten(sequences.element_spec(leaf.type_signature.element))
            if sequences.is_sequence(leaf.type_signature)
            else tf.TensorSpec(leaf.type_signature.shape, leaf.type_signature.dtype)
            for leaf in function.inputs
        ),
        each=tuple(leaf.at_clients for leaf in function.inputs),
        outputs=tuple(tensor.name for tensor in function.function.outputs),
    )


def _num_bytes(specs: Iterable[tf.TensorSpec]) -> int:
    return sum((spec.shape.num_elements() or 1) * spec.dtype.size for spec in specs)


def train_cohort(
    client: VectorizedClient,
    inputs: Sequence[Tensors | tf.Tensor | None],
    datasets: dict[int, Sequence[Batches]],
    num_clients: int,
) -> Tensors:
    """Runs the computation of a client for several clients.

    Args:
      client: The computation.
      inputs: A value for each of its inputs, stacked if each client has its own;
        None for a dataset.
      datasets: By the position of the input, the batches of every client.
      num_clients: The number of clients, at least 1.

    Returns:
      The results, stacked.
    """
    done: list[Tensors] = []
    for number, loop in enumerate(client.client.loops):
        state, arguments = client.start(number, inputs, num_clients, done)
        states = _States(num_clients, state)
        batches = datasets[loop.dataset]
        for turn in _turns(batches, states):
            state = client.take_steps(
                number,
                turn.num_steps,
                states.get(turn.clients),
                _rows(arguments, turn.clients),
                _elements(batches, turn),
                # Groups of some clients are of many sizes.
                num_clients if len(turn.clients) == num_clients else None,
            )
            states.set(turn.clients, state)
        done.append(states.get_all())
    return client.finish(inputs, num_clients, done)


class _States:
    """The states of clients that take steps in changing groups.

    The result of a group's step stays one stack of tensors. A client's state is a
    row of the stack that its last step gave: rows are copied only if the next group
    is another one.
    """

    def __init__(self, num_clients: int, state: Tensors) -> None:
        self._stacks: dict[int, Tensors] = {0: list(state)}
        self._place = [(0, row) for row in range(num_clients)]
        self._num_stacks = 1

    def in_order(self, group: Sequence[int]) -> list[int]:
        """Returns the clients of a group in the order that is quickest to `get`."""
        return sorted(group, key=self._place.__getitem__)

    def get(self, group: Sequence[int]) -> Tensors:
        """Returns the states of a group, stacked, given a group in order."""
        rows_of: dict[int, list[int]] = {}
        for stack, row in (self._place[client] for client in group):
            rows_of.setdefault(stack, []).append(row)
        parts = [_rows(self._stacks[stack], rows) for stack, rows in rows_of.items()]
        if len(parts) == 1:
            return parts[0]
        return [tf.concat(tensors, axis=0) for tensors in zip(*parts)]

    def set(self, group: Sequence[int], state: Tensors) -> None:
        """Replaces the states of a group."""
        self._stacks[self._num_stacks] = list(state)
        for row, client in enumerate(group):
            self._place[client] = (self._num_stacks, row)
        self._num_stacks += 1
        in_use = {stack for stack, _ in self._place}
        for stack in [stack for stack in self._stacks if stack not in in_use]:
            del self._stacks[stack]

    def get_all(self) -> Tensors:
        """Returns the states of all clients in the order of the clients."""
        order = self.in_order(range(len(self._place)))
        state = self.get(order)
        return _rows(state, list(np.argsort(order)))


def _rows(tensors: Sequence[tf.Tensor], rows: Sequence[int]) -> Tensors:
    """Returns some rows of stacked tensors, without copying if that is all."""
    if not tensors or list(rows) == list(range(tensors[0].shape[0])):
        return list(tensors)
    return [tf.gather(tensor, rows) for tensor in tensors]


class _Turn(NamedTuple):
    """Steps that clients take together.

    Attributes:
      clients: The clients.
      positions: How many batches each of all clients has behind it.
      num_steps: The number of steps.
    """

    clients: list[int]
    positions: list[int]
    num_steps: int


def _turns(batches: Sequence[Batches], states: _States) -> Iterator[_Turn]:
    """Yields who takes steps together."""
    positions = [0] * len(batches)
    while True:
        waiting: dict[Any, list[int]] = collections.defaultdict(list)
        for client, (own, position) in enumerate(zip(batches, positions)):
            if position < len(own):
                waiting[own.shapes[position]].append(client)
        if not waiting:
            return
        group = states.in_order(max(waiting.values(), key=len))
        # While all of them go on with batches of that shape, no others are more.
        num_steps = min(batches[c].run_lengths[positions[c]] for c in group)
        num_bytes = sum(batches[c].num_bytes[positions[c]] for c in group)
        num_steps = min(num_steps, max(1, _ELEMENT_BYTES // max(1, num_bytes)))
        yield _Turn(group, positions, num_steps)
        for client in group:
            positions[client] += num_steps


def _num_turns(batches: Sequence[Batches]) -> int:
    """Returns how many steps clients take, those taken together counted as one."""
    return sum(turn.num_steps for turn in _turns(batches, _States(len(batches), [])))


def _elements(batches: Sequence[Batches], turn: _Turn) -> Tensors:
    """Returns the batches of a turn, stacked: step by step, client by client."""
    steps = range(turn.num_steps)
    rows = [
        batches[client].tensors[turn.positions[client] + step]
        for step in steps
        for client in turn.clients
    ]
    with tf.device("/CPU:0"):
        return [tf.stack(tensors) for tensors in zip(*rows)]
