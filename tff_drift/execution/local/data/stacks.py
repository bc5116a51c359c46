"""The steps of clients that are trained together, and what they are taken on.

Clients of any sizes train side by side on exactly their own batches. Most batches of
a group have one shape, mostly the full one: these are taken together, and a client
that has no more of them is masked, its state held, until the others are through.
Batches of other shapes, such as the short last ones, are taken alone, client by client,
and so are the last ones of the few clients that have the most. Where a client goes on
with full batches after a short one, as in its next epoch, the others do too: both parts
alternate.

Batches and values are put together in memory that TensorFlow uses as it is.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_drift import aligned_memory
from tff_drift.execution.local import tensors
from tff_drift.execution.local.data.client_data import ClientData, as_tensor


class LockstepSteps(NamedTuple):
    """Steps that clients of a group take together.

    Attributes:
      num_clients: How many clients take them.
      num_steps: How many steps each of these takes.
    """

    num_clients: int
    num_steps: int


class Schedule(NamedTuple):
    """The steps of a group of clients.

    Attributes:
      takes_part: Who takes each of the common steps, `bool[steps, clients]`.
      owners: Of whom the batch is that a client is given in each common step: of
        itself, or, so that there is one, of another client while it is masked.
      numbers: Which of the owner's batches that is.
      common_ends: For each part, the number of common steps up to its end.
      alone: Client and number of each batch that is taken alone, in their order.
      alone_ends: For each part, the number of steps alone up to its end.
    """

    takes_part: np.ndarray
    owners: np.ndarray
    numbers: np.ndarray
    common_ends: np.ndarray
    alone: list[tuple[int, int]]
    alone_ends: np.ndarray

    @property
    def masked(self) -> bool:
        """Whether a client is ever masked, or takes a step alone."""
        return bool(self.alone) or not self.takes_part.all()

    def padded(self, size: int) -> Schedule:
        """Returns the schedule with more clients, who do what the last one does.

        They take no steps alone: their results are dropped.

        Args:
          size: The number of clients with the padding.
        """
        clients = self.takes_part.shape[1]
        if size == clients:
            return self
        absent = [(0, 0), (0, size - clients)]
        return self._replace(
            takes_part=np.pad(self.takes_part, absent, "edge"),
            owners=np.pad(self.owners, absent, "edge"),
            numbers=np.pad(self.numbers, absent, "edge"),
        )

    def lockstep_steps(self) -> list[LockstepSteps]:
        """Returns how many clients take steps together."""
        together = collections.Counter(self.takes_part.sum(axis=1).tolist())
        turns = [LockstepSteps(clients, steps) for clients, steps in together.items()]
        return turns + [LockstepSteps(1, len(self.alone))] * bool(self.alone)


def build_schedule(batches: Sequence[ClientData], shape: Any, few: int) -> Schedule:
    """Builds the schedule of a group.

    Args:
      batches: The batches of every client.
      shape: The shapes of the batches that are taken together.
      few: Steps that no more clients than this would take together are taken alone.

    Returns:
      The schedule.
    """
    clients = len(batches)
    counts = np.array([len(own) for own in batches])
    position = np.zeros(clients, int)
    # The last batch of that shape of each client, which it is given while masked.
    last = np.full(clients, -1)
    takes_part = [np.zeros([0, clients], bool)]
    numbers = [np.zeros([0, clients], int)]
    alone: list[tuple[int, int]] = []
    common_ends: list[int] = [0]
    alone_ends: list[int] = []
    while (position < counts).any():
        runs = np.array(
            [_run(own, at, shape) for own, at in zip(batches, position, strict=True)]
        )
        ends = position + runs
        # How many steps more than a few clients take.
        runs = np.minimum(runs, np.sort(runs)[-1 - few])
        steps = np.arange(runs.max())[:, np.newaxis]
        takes_part.append(steps < runs)
        own_number = position + np.minimum(steps, runs - 1)
        numbers.append(np.where(runs, own_number, last))
        position += runs
        last = np.where(runs, position - 1, last)
        for client, own in enumerate(batches):
            end = int(ends[client])
            while end < counts[client] and not _run(own, end, shape):
                end += 1
            alone += [(client, number) for number in range(position[client], end)]
            position[client] = end
        common_ends.append(common_ends[-1] + len(steps))
        alone_ends.append(len(alone))
    given = np.concatenate(numbers)
    owners = np.broadcast_to(np.arange(clients), given.shape)
    missing = given < 0
    if missing.any():
        # Clients that have had none are given that of one who has.
        giver = int(np.argmax(given[0] >= 0))
        owners = np.where(missing, giver, owners)
        given = np.where(missing, given[0, giver], given)
    return Schedule(
        np.concatenate(takes_part),
        owners,
        given,
        np.array(common_ends[1:], np.int32),
        alone,
        np.array(alone_ends, np.int32),
    )


def _run(batches: ClientData, position: int, shape: Any) -> int:
    """Returns how many batches of a shape follow each other from a position on."""
    if position < len(batches) and batches.shapes[position] == shape:
        return batches.run_lengths[position]
    return 0


def most_frequent_shape(batches: Sequence[ClientData]) -> Any:
    """Returns the shapes that most batches have; None if there are no batches."""
    counts = collections.Counter(shape for own in batches for shape in own.shapes)
    return max(counts, key=counts.__getitem__, default=None)


def put_side_by_side(
    batches: Sequence[ClientData],
    owners: np.ndarray,
    numbers: np.ndarray,
    specs: Sequence[tf.TensorSpec],
    shapes: Any,
) -> list[tf.Tensor]:
    """Returns the batches of the steps that clients take together.

    Args:
      batches: The batches of every client.
      owners: Whose batch it is, `[steps, clients]`.
      numbers: Which one, `[steps, clients]`.
      specs: The specs of the components of a batch.
      shapes: Their shapes in these batches; None if there are no steps.

    Returns:
      For each component a tensor `[steps, clients, ...]`.
    """
    stacks = []
    for component, spec in enumerate(specs):
        shape = [size or 0 for size in spec.shape or ()]
        if shapes is not None:
            shape = list(shapes[component])
        stack = _uninitialized([*owners.shape, *shape], spec.dtype)
        for step, (of_step, which) in enumerate(
            zip(owners.tolist(), numbers.tolist(), strict=True)
        ):
            for place, (client, number) in enumerate(zip(of_step, which, strict=True)):
                batches[client].copy(number, component, stack[step, place, ...])
        stacks.append(_in_main_memory(stack))
    return stacks


def put_end_to_end(
    batches: Sequence[ClientData],
    positions: Sequence[tuple[int, int]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[list[tf.Tensor], np.ndarray]:
    """Returns batches of any shapes, one after the other.

    Args:
      batches: The batches of every client.
      positions: Client and number of each batch, in their order.
      specs: The specs of the components of a batch.

    Returns:
      For each component the elements of all of them, a vector; and a row of numbers
      for each batch: for each component where its elements begin and end, and its
      shape.
    """
    vectors, columns = [], [np.zeros([len(positions), 0], int)]
    for component, spec in enumerate(specs):
        own = [
            batches[client].shapes[number][component] for client, number in positions
        ]
        ends = np.cumsum([0, *map(math.prod, own)])
        vector = _uninitialized([ends[-1]], spec.dtype)
        for (client, number), shape, start, end in zip(
            positions, own, ends[:-1], ends[1:], strict=True
        ):
            batches[client].copy(number, component, vector[start:end].reshape(shape))
        vectors.append(_in_main_memory(vector))
        shapes = np.reshape(own, [len(own), spec.shape.rank or 0])
        columns += [ends[:-1, np.newaxis], ends[1:, np.newaxis], shapes]
    return vectors, np.concatenate(columns, axis=1).astype(np.int32)


def rows_named(
    batches: Sequence[ClientData], component: int, num_rows: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns which rows of a table the batches of clients name.

    Args:
      batches: The batches of every client.
      component: The component that names rows.
      num_rows: The number of rows of the table.

    Returns:
      For each client the numbers of these rows, and of others so that all clients have
      as many; and for every row of the table at which place of them it is, if it is.
    """
    named = []
    for own in batches:
        is_named = np.zeros(num_rows, bool)
        for numbers in own.values(component):
            numbers = numbers.astype(np.int64, copy=False)
            # A number of no row is for TensorFlow to refuse.
            np.put(is_named, numbers, True, mode="clip")
        named.append(is_named)
    most = max(map(np.count_nonzero, named))
    rows, places = [], []
    for is_named in named:
        first = np.flatnonzero(is_named)
        others = np.flatnonzero(~is_named)[: most - len(first)]
        rows.append(np.concatenate([first, others]).astype(np.int32))
        places.append(np.zeros(num_rows, np.int32))
        places[-1][rows[-1]] = np.arange(most)
    return rows, places


class StackedValues(Sequence[tf.Tensor]):
    """A tensor of each client of a cohort, in the stacks of the groups that made them.

    Args:
      num_clients: The number of clients.
    """

    def __init__(self, num_clients: int) -> None:
        self._stacks: dict[tuple[int, ...], tf.Tensor] = {}
        self._places: list[Any] = [None] * num_clients

    def add(self, clients: Sequence[int], stack: tf.Tensor) -> None:
        """Adds the stack of a group.

        Args:
          clients: The numbers of the clients.
          stack: Their tensors, in this order.
        """
        self._stacks[tuple(clients)] = stack
        for row, client in enumerate(clients):
            self._places[client] = stack, row

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The clients of each group, in the order in which they were added."""
        return list(self._stacks)

    def of_group(self, clients: Sequence[int]) -> tf.Tensor | None:
        """Returns the stack of some clients, None if they are not a group."""
        return self._stacks.get(tuple(clients))

    def __getitem__(self, client: Any) -> Any:
        """Returns the tensor of a client."""
        stack, row = self._places[client]
        tensor = stack[row]
        tensors.give_back_attributes([tensor])
        return tensor

    def __len__(self) -> int:
        """Returns the number of clients."""
        return len(self._places)


def stack_values(values: Sequence[np.ndarray | tf.Tensor]) -> tf.Tensor:
    """Returns values of clients, stacked; arrays are copied once."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return tf.stack(list(map(as_tensor, values)))
    shape = [len(values), *values[0].shape]
    stack = _uninitialized(shape, tf.as_dtype(values[0].dtype))
    np.stack(values, out=stack)
    return _in_main_memory(stack)


def _uninitialized(shape: Sequence[int], dtype: tf.DType) -> np.ndarray:
    """Returns an array whose memory TensorFlow can use as it is."""
    if dtype == tf.string:
        return np.empty(shape, object)
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    memory = aligned_memory.aligned_bytes(math.prod(shape) * numpy_dtype.itemsize)
    return memory.view(numpy_dtype).reshape(shape)


def _in_main_memory(array: np.ndarray) -> tf.Tensor:
    """Returns an array as a tensor, which uses its memory if it can."""
    with tf.device("/CPU:0"):
        tensor = tf.raw_ops.Identity(input=array)
    tensors.give_back_attributes([tensor])
    return tensor
