"""Which functions AutoGraph converts while TensorFlow traces them.

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

import collections
import functools
import types
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
# The module of TFF's models around Keras 2 models.
_KERAS_MODELS = tff.learning.models.from_keras_model.__module__
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


def of_model(model: tff.learning.models.VariableModel, name: str) -> Any:
    """Returns a method of a model, as TFF would trace it.

    Of a Keras 2 model, TFF's own lines around it are traced as they are written: Keras
    has AutoGraph convert what a user writes in layers, losses and metrics.

    Args:
      model: The model.
      name: The method's name.
    """
    if not _is_of_keras2(model):
        return of_user(getattr(model, name))
    _have_called_without_border(model)
    function = getattr(type(model), name).python_function
    return _traced_as_written(types.MethodType(function, model))


def metric_finalizers(model: tff.learning.models.VariableModel) -> Any:
    """Returns a model's metric finalizers, by name; TFF's own as they are written.

    Args:
      model: The model.
    """
    finalizers = model.metric_finalizers()
    if not _is_of_keras2(model):
        return finalizers
    return collections.OrderedDict(
        (name, _traced_as_written(finalizer.python_function))
        for name, finalizer in finalizers.items()
    )


def _have_called_without_border(model: Any) -> None:
    """Has the forward pass call its Keras 2 model directly, not as a `tf.function`.

    Across that border the mask of the predictions would not reach the loss, and losses
    that layers add would belong to another graph.

    Args:
      model: What TFF makes of the Keras model.
    """
    keras_model = model._keras_model

    def predict_on_batch(x: Any, training: bool = True) -> Any:
        # Of calls before, such as the one on placeholders that built the model.
        for layer in keras_model._flatten_layers():
            layer._losses.clear()
        return keras_model(x, training=training)

    model.predict_on_batch = predict_on_batch


def _is_of_keras2(model: tff.learning.models.VariableModel) -> bool:
    return type(model).__module__ == _KERAS_MODELS


def _traced_as_written(function: Callable[..., Any]) -> Any:
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
