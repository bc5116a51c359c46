"""Comparisons by `==`, which in TFF's graphs are of objects and not of their values.

TensorFlow compares tensors by `==` and `!=` element by element only in programs without
a `tf.Graph`, and TFF builds models in graphs: a loss that leaves out what
`y_true == 0` selects leaves out nothing there, without a word.
"""

from __future__ import annotations

import contextlib
import inspect
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_KERAS = ("keras", "tf_keras")
_MEANT = ("tensorflow", "tensorflow_federated", "tff_drift")
# TensorFlow's decorators of operators.
_WRAPPERS = "tensorflow.python.util."
_OPERATORS = {
    inspect.unwrap(getattr(kind, name)).__code__: operator
    for kind in (tf.Tensor, tf.Variable)
    for name, operator in (("__eq__", "=="), ("__ne__", "!="))
}
# What of Keras compares tensors so; what else it compares is meant.
OF_KERAS = {"RandAugment.transform_images": "RandAugment", "ctc": "CTC"}
_KERAS_REMEDY = (
    "It is Keras' own: apply such a layer to the data, outside of the model, or take "
    "another layer or loss."
)
_REMEDY = (
    "Write tf.equal(a, b) or tf.not_equal(a, b), or keras.ops.equal and "
    "keras.ops.not_equal."
)
# What AutoGraph puts before the name of a function and of its file.
_CONVERTED, _OF_CONVERTED = "tf__", "__autograph_generated_file"


@contextlib.contextmanager
def refused_comparisons() -> Iterator[None]:
    """Raises if a tensor is compared by `==` or `!=` in a graph inside.

    What TensorFlow, TFF and this library compare is meant.

    Yields:
      Nothing; a model is built or traced inside.

    Raises:
      ValueError: If a tensor is compared, whatever came of it; the message says where.
    """
    found: list[str] = []

    # As a tracer, it is told more of a function for which it returns itself.
    def watch(frame: types.FrameType, event: str, value: Any) -> Any:
        if frame.f_code not in _OPERATORS:
            return None
        is_told = event == "return" and isinstance(value, bool)
        if is_told and frame.f_locals.get("other") is not None:
            found.extend(_said_of(frame, _OPERATORS[frame.f_code]))
        return watch

    # Python tells a profiler of the operators, which are functions of TensorFlow's.
    # One of C, as cProfile is before Python 3.12, could not be set again: a tracer.
    before, replace = sys.getprofile(), sys.setprofile
    if before is not None and not callable(before):
        before, replace = sys.gettrace(), sys.settrace
    replace(watch)
    try:
        yield
    except Exception as error:
        if found:
            raise ValueError(f"model_fn: {found[0]}") from error
        raise
    finally:
        replace(before)
    if found:
        raise ValueError(f"model_fn: {found[0]}")


def _said_of(frame: types.FrameType, operator: str) -> Iterator[str]:
    """Yields who compares, unless it is meant."""
    caller = frame.f_back
    while caller is not None and _is_of_operator(caller):
        caller = caller.f_back
    if caller is None or _root(caller) in _MEANT:
        return
    name = caller.f_code.co_name.removeprefix(_CONVERTED)
    if "self" in caller.f_locals:
        name = f"{type(caller.f_locals['self']).__name__}.{name}"
    is_of_keras = _root(caller) in _KERAS
    if is_of_keras and name not in OF_KERAS:
        return
    file = pathlib.Path(caller.f_code.co_filename).name
    line = f" ({file}, line {caller.f_lineno})"
    where = "" if file.startswith(_OF_CONVERTED) else line
    yield (
        f"{name}{where} compares tensors by {operator}. TFF builds models in graphs, "
        "in which this asks whether two tensors are one object, and is True or False "
        f"for all elements at once. {_KERAS_REMEDY if is_of_keras else _REMEDY}"
    )


def _is_of_operator(frame: types.FrameType) -> bool:
    """Returns whether a frame stands between an operator and who uses it."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_WRAPPERS) or frame.f_code.co_name in ("__eq__", "__ne__")


def _root(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
