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
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_KERAS = {"keras", "tf_keras"}
_LIBRARIES = {"tensorflow", "tensorflow_federated", "tff_drift", *_KERAS}
_OPERATORS = {
    inspect.unwrap(getattr(kind, name)).__code__: operator
    for kind in (tf.Tensor, tf.Variable)
    for name, operator in (("__eq__", "=="), ("__ne__", "!="))
}
# What of Keras itself compares tensors so.
_OF_KERAS = ("RandAugment", "CTC")
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


def may_compare(part: Any) -> bool:
    """Returns whether a part of a model may compare tensors by `==`, as users do.

    So may parts of other packages.

    Args:
      part: A layer, a loss, a metric or a model.
    """
    functions = [getattr(part, name, None) for name in ("fn", "_fn", "function")]
    modules = [
        getattr(each, "__module__", None)
        for each in (type(part), *functions)
        if each is not None
    ]
    roots = {str(each).partition(".")[0] for each in modules}
    return not roots <= _LIBRARIES or type(part).__name__ in _OF_KERAS


def check_comparisons(function: Callable[[], Any]) -> Any:
    """Raises if a function compares tensors by `==` or `!=` in a graph.

    What TensorFlow, TFF and this library compare in it is meant.

    Args:
      function: Builds or traces a model. What it raises is raised where it is used.

    Returns:
      What it returns; None if it raises.

    Raises:
      ValueError: If a tensor is compared; the message says where.
    """
    result = None
    with contextlib.suppress(Exception), _watched() as found:
        result = function()
    if found:
        raise ValueError(f"model_fn: {found[0]}")
    return result


@contextlib.contextmanager
def _watched() -> Iterator[list[str]]:
    """Yields a list that gets what compares tensors as objects while it is traced."""
    found: list[str] = []

    def watch(frame: types.FrameType, event: str, value: Any) -> None:
        operator = _OPERATORS.get(frame.f_code) if event == "return" else None
        if operator is None or not isinstance(value, bool):
            return
        if frame.f_locals.get("other") is not None:
            found.extend(_said_of(frame, operator))

    before = sys.getprofile()
    # Python tells a profiler of the operators, which are functions of TensorFlow's.
    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(before)


def _said_of(frame: types.FrameType, operator: str) -> Iterator[str]:
    """Yields who compares, unless it is TFF or this library."""
    caller = frame.f_back
    while caller is not None and _is_of_operator(caller):
        caller = caller.f_back
    if caller is None or _root(caller) in ("tensorflow_federated", "tff_drift"):
        return
    is_of_keras = _root(caller) in _KERAS
    name = caller.f_code.co_name.removeprefix(_CONVERTED)
    if "self" in caller.f_locals:
        name = f"{type(caller.f_locals['self']).__name__}.{name}"
    file = pathlib.Path(caller.f_code.co_filename).name
    line = f" ({file}, line {caller.f_lineno})"
    where = "" if file.startswith(_OF_CONVERTED) else line
    yield (
        f"{name}{where} compares tensors by {operator}. TFF builds models in graphs, "
        "in which this asks whether two tensors are one object, and is True or False "
        f"for all elements at once. {_KERAS_REMEDY if is_of_keras else _REMEDY}"
    )


def _is_of_operator(frame: types.FrameType) -> bool:
    return _root(frame) == "tensorflow" or frame.f_code.co_name in ("__eq__", "__ne__")


def _root(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
