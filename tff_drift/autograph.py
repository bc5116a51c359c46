"""Chooses the functions that AutoGraph converts while TensorFlow traces them.

AutoGraph rewrites Python's `if` and `for` over tensors, and everything that a function
calls with it. That is for what users write. The library itself says `tf.cond` and
`tf.while_loop` where it means them: its functions are traced as they are written, since
converting them takes three quarters of the time in which a process is built. Where they
call a user's code, `of_user` has it converted as TFF would.

TensorFlow exports what this takes to Keras, which does the same, under
`tf.__internal__`; the public `do_not_convert` would also hold for the user's code that
a function calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_federated as tff

Function = TypeVar("Function", bound=Callable[..., Any])

_tf_convert = tf.__internal__.autograph.tf_convert
_status = tf.__internal__.autograph.control_status_ctx
# Neither on nor off: what is asked to be converted is.
_UNSPECIFIED = _status()

_OPTIMIZERS = tff.learning.optimizers
# Without control flow over tensors: the library's packages, and TFF's optimizers that
# hold no function of a user's.
_TRACED_AS_WRITTEN = (
    __name__.partition(".")[0],
    *(
        type(optimizer).__module__
        for optimizer in (
            _OPTIMIZERS.build_adagrad(0.1),
            _OPTIMIZERS.build_adam(0.1),
            _OPTIMIZERS.build_rmsprop(0.1),
            _OPTIMIZERS.build_sgdm(0.1),
            _OPTIMIZERS.build_yogi(0.1),
        )
    ),
)


def as_written(function: Function) -> Function:
    """Returns a function that is traced as it is written; below `tf.function`.

    Args:
      function: One without control flow over tensors.
    """
    return _tf_convert(function, _UNSPECIFIED, convert_by_default=False)


def converted(function: Function) -> Function:
    """Returns a function with Python's control flow over tensors.

    Args:
      function: What is converted, with all that it calls.
    """
    return _tf_convert(function, _status())


def of_user(function: Function) -> Function:
    """Returns a function that may be a user's, as TFF would trace it.

    Args:
      function: Any function, or a method of an object that a user may have made: it is
        converted unless its class, or the function itself, is one of the library's.
    """
    return function if _is_traced_as_written(function) else converted(function)


def traced_as_written(function: Callable[..., Any]) -> Any:
    """Returns a `tf.function` that is traced as it is written.

    Args:
      function: One without control flow over tensors.
    """
    return tf.function(as_written(function))


def _is_traced_as_written(function: Any) -> bool:
    if isinstance(function, functools.partial):
        return _is_traced_as_written(function.func)
    owner = getattr(function, "__self__", None)
    defined = function if owner is None else type(owner)
    module = defined.__module__
    return module in _TRACED_AS_WRITTEN or module.startswith(
        f"{_TRACED_AS_WRITTEN[0]}."
    )
