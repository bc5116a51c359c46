"""Errors of a model's first trace, in one line.

TensorFlow traces a cast of a string to a number, and fails where it runs. What Keras
says of a batch that a model cannot take has several lines, with codes for terminals.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.models import example_weights

_FROM_OUTSIDE = ("keras", "tf_keras", "tensorflow")
_FOR_TERMINALS = re.compile(r"\x1b\[[0-9;]*m")
# What Keras writes before and after what another layer of it says.
_CALLING = re.compile(r"^Exception encountered when calling .*\n+")
_ARGUMENTS = re.compile(
    r"\n+(Arguments received by|Call arguments received by) .*", re.S
)


@contextlib.contextmanager
def naming_misfit(input_spec: Any) -> Iterator[None]:
    """Turns what Keras or TensorFlow says of a batch into one line with a remedy.

    Args:
      input_spec: The `tf.TensorSpec` structure of a batch.

    Yields:
      Nothing; a model, its loss and its metrics are traced within.

    Raises:
      ValueError: In place of what Keras or TensorFlow raises.
    """
    try:
        yield
    except (TypeError, ValueError, tf.errors.OpError) as error:
        if not is_of_keras(error):
            raise
        raise checks.ShortError(
            f"input_spec is {checks.shown(input_spec)}, and the model, its loss or a "
            f"metric cannot take such batches: {what_is_said(error)}. Build them for "
            "these batches, or give examples of the form that they take."
        ) from error


def check_no_strings_as_numbers(trace: Any, input_spec: Any) -> None:
    """Raises if a model casts strings to numbers, which fails at the first batch.

    Args:
      trace: The concrete function of its forward pass.
      input_spec: The `tf.TensorSpec` structure of a batch.

    Raises:
      TypeError: If it does.
    """
    parts = _parts_of_strings(input_spec)
    if parts and any(map(_casts_a_string, nodes_of(trace))):
        raise TypeError(
            f"input_spec has strings in {' and '.join(parts)}, which the model, its "
            "loss or a metric casts to numbers. Give numbers: "
            f"{parts[-1]}.astype(np.float32) makes them of texts such as '3', and "
            f"np.unique({parts[-1]}, return_inverse=True)[1] numbers names."
        )


def check_batches_of_keras2(
    forward_pass: Any, input_spec: Any, losses: Sequence[Any], outputs: Any
) -> None:
    """Raises if batches are such that the first one would fail.

    Only those are traced that may: of strings, or with rows of labels where a loss
    takes the number of a class.

    Args:
      forward_pass: A model's, a `tf.function`.
      input_spec: The `tf.TensorSpec` structure of a batch.
      losses: The losses of the model's outputs, in their order.
      outputs: The outputs, a structure of anything with a `shape`.

    Raises:
      TypeError: If strings are cast to numbers.
      ValueError: If the model or its loss cannot take the batches.
    """
    labels = tf.nest.flatten(example_weights.split(input_spec).labels)
    has_rows = any(
        isinstance(loss, tf.keras.losses.SparseCategoricalCrossentropy)
        and label.shape.rank == output.shape.rank
        and label.shape[-1] != 1
        for loss, label, output in zip(
            losses, labels, tf.nest.flatten(outputs), strict=False
        )
    )
    if not has_rows and not _parts_of_strings(input_spec):
        return
    # Of a known number, TensorFlow compares the rows of labels and outputs.
    batch = tf.nest.map_structure(_of_two_rows, input_spec)
    with naming_misfit(input_spec):
        trace = forward_pass.get_concrete_function(batch, training=True)
    check_no_strings_as_numbers(trace, input_spec)


def _of_two_rows(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
        return spec
    return tf.TensorSpec([spec.shape[0] or 2, *spec.shape[1:]], spec.dtype, spec.name)


def _parts_of_strings(input_spec: Any) -> list[str]:
    """Returns which of `x`, `y` and `sample_weight` have strings."""
    names = ("x", "y", "sample_weight")
    return [
        name
        for name, part in zip(names, example_weights.split(input_spec), strict=True)
        if any(spec.dtype == tf.string for spec in tf.nest.flatten(part) if spec)
    ]


def is_of_keras(error: Exception) -> bool:
    """Returns whether Keras or TensorFlow says it: lines of a user's stay.

    Args:
      error: What a model raised.
    """
    text = str(error)
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback else ""
    return "\n" in text or module.partition(".")[0] in _FROM_OUTSIDE


def what_is_said(error: Exception) -> str:
    """Returns on one line what Keras or TensorFlow says, shortened.

    Args:
      error: What a model raised.
    """
    text = _FOR_TERMINALS.sub("", getattr(error, "message", None) or str(error))
    text = _ARGUMENTS.sub("", _CALLING.sub("", text.strip()))
    return checks.shortened(text).rstrip(".")


def nodes_of(trace: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of the functions that it calls.

    Args:
      trace: A concrete function.
    """
    graph = trace.graph.as_graph_def()
    functions = (function.node_def for function in graph.library.function)
    return itertools.chain(graph.node, *functions)


def _casts_a_string(node: Any) -> bool:
    return node.op == "Cast" and node.attr["SrcT"].type == tf.string.as_datatype_enum
