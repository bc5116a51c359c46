"""Refuses models made outside of model functions: TFF builds them in its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.tensors import eagerly

_REMEDY = (
    "Build the model in model_fn itself, of numbers and NumPy arrays alone, and give "
    "trained weights as run_training(..., initial_weights=keras_model)."
)


class MadeOutsideError(ValueError):
    """A model function uses what was made outside of it."""


def check_made_inside(
    handles: Iterable[Any], what: str = "a model or a layer", remedy: str = _REMEDY
) -> None:
    """Raises if a variable was made outside of the present call of a model function.

    Args:
      handles: The handles of variables.
      what: What they are of, for the message.
      remedy: What to do, for the message.

    Raises:
      MadeOutsideError: If one is of no graph, or of another one than the present.
    """
    if any(map(_is_from_outside, handles)):
        raise MadeOutsideError(
            f"model_fn uses {what} that was made outside of it, and TFF builds models "
            f"in graphs of its own. {remedy}"
        )


def explain_if_outside(model_fn: Callable[[], Any], error: Exception) -> None:
    """Raises if a model function fails in graphs alone.

    Args:
      model_fn: The function.
      error: What it raised in a graph.

    Raises:
      MadeOutsideError: If it does not raise outside of graphs; the message says why.
    """
    if isinstance(error, MadeOutsideError):
        raise error
    try:
        eagerly(model_fn)
    except Exception:
        return
    raise MadeOutsideError(
        "model_fn fails in a graph, as TFF builds models, and not outside of one "
        f"({type(error).__name__}: {checks.shown(str(error))}): it uses a model, a "
        "variable or a tensor that was made outside of it, or reads the value of one. "
        + _REMEDY
    ) from error


def _is_from_outside(handle: Any) -> bool:
    if isinstance(handle, tf.__internal__.EagerTensor):
        return True
    # A layer that is made outside and built inside has variables of the first graph.
    graph = tf.compat.v1.get_default_graph()
    return tf.is_symbolic_tensor(handle) and handle.graph is not graph
