"""What the ways to train many clients at a time have in common."""

from __future__ import annotations

import abc
import collections
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tff_drift.execution.local import tracing
from tff_drift.execution.local.batches import Batches
from tff_drift.execution.local.cutting import ClientGraph, Tensors, is_dataset

# Functions of so many numbers of clients are kept.
_CACHED_NUMBERS = 64
# Up to which number of clients a chunk is a multiple of what.
_UNITS = ((16, 1), (64, 2), (float("inf"), 8))


class StackedClient(abc.ABC):
    """A client's computation, for many clients at a time.

    Attributes:
      pays: Whether stacking may pay at all: operations that are done one client after
        the other anyway gain nothing.
      client_bytes: About the memory that a client takes.
    """

    pays: bool
    client_bytes: int

    @abc.abstractmethod
    def build(self, num_clients: int) -> None:
        """Builds the functions for a number of clients, unless it has been done.

        Args:
          num_clients: The number of clients.

        Raises:
          variables.UnsupportedGraphError: If TensorFlow cannot vectorize an
            operation.
        """

    @abc.abstractmethod
    def num_turns(self, batches: Sequence[Batches]) -> int:
        """Returns how many steps clients take, those taken together counted as one.

        Args:
          batches: The batches of every client.
        """

    @abc.abstractmethod
    def run(
        self,
        inputs: Sequence[Any],
        datasets: Mapping[int, Sequence[Batches]],
        num_clients: int,
    ) -> Tensors:
        """Runs the computation for several clients.

        Args:
          inputs: A value for each of its inputs, stacked if each client has its own;
            None for a dataset.
          datasets: By the position of the input, the batches of every client.
          num_clients: The number of clients, at least 1.

        Returns:
          The results, stacked.
        """


class StackedFunctions:
    """Functions of many clients, each made once.

    Args:
      graph: The computation of one client.
      parts: The number of functions for a number of clients.
    """

    def __init__(self, graph: ClientGraph, parts: int) -> None:
        self._graph = graph
        self._limit = _CACHED_NUMBERS * parts
        self._functions: collections.OrderedDict[Any, Callable[..., Tensors]] = (
            collections.OrderedDict()
        )
        self._lock = threading.RLock()
        # The positions of the inputs that clients share, and of those of their own.
        self.shared: list[int] = []
        self.own: list[int] = []
        for position, (spec, own) in enumerate(zip(graph.specs, graph.each)):
            if not is_dataset(spec):
                (self.own if own else self.shared).append(position)

    def cached(self, key: Any, build: Callable[[], Any]) -> Any:
        """Returns a function, built if it is not there.

        Args:
          key: Its name.
          build: Builds it.
        """
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                # Not where the clients that come first happen to run.
                with tf.device(None):
                    function = build()
                self._functions[key] = function
                if len(self._functions) > self._limit:
                    self._functions.popitem(last=False)
            self._functions.move_to_end(key)
            return function

    def split(
        self, inputs: Sequence[Any], num_clients: int
    ) -> tuple[Tensors, Tensors, tf.Tensor]:
        """Returns the inputs that clients share, those of each, and their numbers."""
        return (
            [inputs[position] for position in self.shared],
            [inputs[position] for position in self.own],
            tracing.integers_below(num_clients),
        )

    def signature(self, num_clients: int | None) -> tuple[Any, Any, tf.TensorSpec]:
        """Returns the signature of what `split` returns."""
        specs = self._graph.specs
        return (
            [specs[position] for position in self.shared],
            [stacked_spec(specs[position], num_clients) for position in self.own],
            tf.TensorSpec([num_clients], tf.int32),
        )

    def of_client(
        self, common: Sequence[tf.Tensor], own: Sequence[tf.Tensor]
    ) -> list[Optional[tf.Tensor]]:  # noqa: UP045
        """Returns a value for each input of one client, None for a dataset."""
        values = dict(zip(self.shared, common))
        values.update(zip(self.own, own))
        return [values.get(k) for k in range(len(self._graph.inputs))]


def chunk_unit(num_clients: int) -> int:
    """Returns of what a chunk of about this size is to be a multiple.

    Cohorts whose size changes from round to round must not need new functions each
    time: there are functions for some numbers of clients, besides those for any.

    Args:
      num_clients: The number of clients.
    """
    return next(unit for size, unit in _UNITS if num_clients <= size)


def known_number(num_clients: int) -> int | None:
    """Returns the number of clients if it is one to have functions for, or None."""
    return None if num_clients % chunk_unit(num_clients) else num_clients


def concrete(function: Callable[..., Tensors], signature: Any) -> Any:
    """Returns a TensorFlow function, traced."""
    # A function of a flat list of tensors is called with little ado in Python.
    flat = tf.compat.v1.wrap_function(
        lambda *tensors: function(*tf.nest.pack_sequence_as(signature, tensors)),
        tf.nest.flatten(signature),
    )
    return lambda *parts: flat(*tf.nest.flatten(parts))


def vectorized_map(function: Callable[[Any], Tensors], elements: Any) -> Tensors:
    """Returns a function's stacked results for stacked elements."""
    return tf.vectorized_map(
        function, elements, fallback_to_while_loop=True, warn=False
    )


def stacked_spec(spec: tf.TensorSpec, num_clients: int | None) -> tf.TensorSpec:
    """Returns the spec of many clients' tensors."""
    shape = tf.TensorShape([num_clients]).concatenate(spec.shape)
    return tf.TensorSpec(shape, spec.dtype)


def num_bytes(specs: Iterable[tf.TensorSpec]) -> int:
    """Returns the memory of tensors, of those of unknown size as if they were one."""
    return sum((spec.shape.num_elements() or 1) * spec.dtype.size for spec in specs)
