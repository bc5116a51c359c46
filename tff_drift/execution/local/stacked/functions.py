"""Functions of many clients, made from a computation of one."""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import tensorflow as tf

from tff_drift.execution.local import patterns, policy, tensors
from tff_drift.execution.local.pure.client_parts import ClientGraph, is_dataset
from tff_drift.execution.local.tensors import TensorList


class StackedFunctions:
    """Functions of many clients, each made once.

    Args:
      graph: The computation of one client.
      parts: The number of functions for a number of clients.
    """

    def __init__(self, graph: ClientGraph, parts: int) -> None:
        self._graph = graph
        self._limit = policy.CACHED_NUMBERS * parts
        self._functions: collections.OrderedDict[Any, Callable[..., TensorList]] = (
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
    ) -> tuple[TensorList, TensorList, tf.Tensor]:
        """Returns the inputs that clients share, those of each, and their numbers."""
        return (
            [inputs[position] for position in self.shared],
            [inputs[position] for position in self.own],
            tensors.integers_below(num_clients),
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


def concrete(function: Callable[..., TensorList], signature: Any) -> Any:
    """Returns a TensorFlow function, traced."""
    # A function of a flat list of tensors is called with little ado in Python.
    flat = tf.compat.v1.wrap_function(
        lambda *flat: function(*tf.nest.pack_sequence_as(signature, flat)),
        tf.nest.flatten(signature),
    )
    return lambda *parts: flat(*tf.nest.flatten(parts))


def vectorized_map(function: Callable[[Any], TensorList], elements: Any) -> TensorList:
    """Returns a function's stacked results for stacked elements."""
    # What TensorFlow would do in a loop may have results of another shape for each
    # client; of what may not, `vectorizable` knows.
    return tf.vectorized_map(
        function, elements, fallback_to_while_loop=False, warn=False
    )


def vectorized_results(
    function: Callable[[Any], TensorList], elements: Any
) -> TensorList:
    """As `vectorized_map`, with less to copy where clients choose a result alike.

    Where a result is one of two tensors, such as the state of a client whose training
    may have broken down, and all clients have the second, it is taken as it is.
    """
    choices: list[Optional[patterns.Choice]] = []  # noqa: UP045

    def parts(element: Any) -> TensorList:
        results = function(element)
        choices[:] = map(patterns.choice, results)
        return tf.nest.flatten(
            [choice or result for result, choice in zip(results, choices)]
        )

    stacks = iter(vectorized_map(parts, elements))
    return [
        next(stacks)
        if choice is None
        else _chosen(*itertools.islice(stacks, len(choice)))
        for choice in choices
    ]


def _chosen(condition: tf.Tensor, if_true: tf.Tensor, if_false: tf.Tensor) -> tf.Tensor:
    """Returns rows of one stack where the condition holds, and else of the other."""
    column = tf.reshape(condition, [-1] + [1] * (if_true.shape.rank - 1))
    return tf.cond(
        tf.reduce_any(condition),
        lambda: tf.where(column, if_true, if_false),
        lambda: tf.identity(if_false),
    )


def stacked_spec(spec: tf.TensorSpec, num_clients: int | None) -> tf.TensorSpec:
    """Returns the spec of many clients' tensors."""
    shape = tf.TensorShape([num_clients]).concatenate(spec.shape)
    return tf.TensorSpec(shape, spec.dtype)


def num_bytes(specs: Iterable[tf.TensorSpec]) -> int:
    """Returns the bytes of tensors, of sizes that are not known as if they were 1."""
    return sum((spec.shape.num_elements() or 1) * spec.dtype.size for spec in specs)
