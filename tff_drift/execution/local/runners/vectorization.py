"""Functions of stacks of tensors, made from functions of one client's tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tff_drift.execution.local import patterns
from tff_drift.execution.local.runners import threads
from tff_drift.execution.local.tensors import TensorList


def concrete(function: Callable[..., TensorList], signature: Any) -> Any:
    """Returns a TensorFlow function, traced."""
    # A function of a flat list of tensors is called with little ado in Python.
    flat = tf.compat.v1.wrap_function(
        lambda *flat: function(*tf.nest.pack_sequence_as(signature, flat)),
        tf.nest.flatten(signature),
    )
    run = threads.one_at_a_time(flat, of_clients=True)
    return lambda *parts: run(*tf.nest.flatten(parts))


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
    """Applies `vectorized_map`, copying less where all clients choose the same result.

    Where a result is one of two tensors, such as the state of a client whose training
    may have broken down, and all clients have the second, it is taken as it is.
    """
    choices: list[patterns.Choice | None] = []

    def parts(element: Any) -> TensorList:
        results = function(element)
        choices[:] = map(patterns.choice, results)
        return tf.nest.flatten(
            [choice or result for result, choice in zip(results, choices, strict=True)]
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
