"""Checks of arguments where models and losses of Keras 2 are taken."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.models.outputs import Outputs, named_outputs


def check_built(name: str, keras_model: Any) -> None:
    """Raises if a model of Keras 2 has no weights yet.

    Args:
      name: The argument, for the message.
      keras_model: A model; one that is not of Keras 2 passes.

    Raises:
      ValueError: If it has none: a subclass, or a sequential model without `Input`,
        that is neither built nor called.
    """
    if isinstance(keras_model, tf.keras.Model) and not keras_model.built:
        raise ValueError(
            f"{name} is a model of Keras 2, {checks.shown(keras_model.name)}, that has "
            "no weights yet. Give it a tf.keras.Input, as in tf.keras.Sequential(["
            "tf.keras.Input([5]), ...]) or tf.keras.Model(inputs, outputs), or call "
            "its build([None, 5])."
        )


@contextlib.contextmanager
def taken_as_not_compiled(keras_model: Any) -> Iterator[None]:
    """Has TFF take a model that is compiled, as `load_model` returns those saved so.

    TFF refuses it for what it would leave out: its loss, metrics and optimizer. These
    are given apart here.

    Args:
      keras_model: The model.

    Yields:
      Nothing; the model is given to TFF within.
    """
    is_compiled = keras_model._is_compiled
    keras_model._is_compiled = False
    try:
        yield
    finally:
        keras_model._is_compiled = is_compiled


def output_of(keras_model: Any) -> Any:
    """Returns the outputs of a model of Keras 2; `None` if it does not know them.

    Neither a subclass nor a sequential model without `Input` does, in graphs.

    Args:
      keras_model: The model.
    """
    return getattr(keras_model, "output", None)


def outputs_by_name(keras_model: Any) -> Outputs:
    """Returns the outputs of a model of Keras 2 in the order of `keras_model.outputs`.

    Args:
      keras_model: The model; one that does not know its outputs has none here.
    """
    output = output_of(keras_model)
    if output is None:
        return Outputs({}, have_order=True)
    outputs = named_outputs(output, keras_model.output_names)
    if outputs.have_order:
        return outputs
    return Outputs({name: outputs[name] for name in sorted(outputs)}, have_order=False)


def check_loss(loss: Any) -> None:
    """Raises unless a loss, or each of several, is one of Keras 2.

    Args:
      loss: A loss, or a mapping or a list of those of the outputs.

    Raises:
      TypeError: If one is not, such as a name or a function.
    """
    if isinstance(loss, Mapping):
        named = {f"loss[{checks.shown(name)}]": each for name, each in loss.items()}
    elif isinstance(loss, list):
        named = {f"loss[{place}]": each for place, each in enumerate(loss)}
    else:
        named = {"loss": loss}
    for name, each in named.items():
        if not isinstance(each, tf.keras.losses.Loss):
            raise TypeError(
                f"{name} must be a tf.keras.losses.Loss, such as "
                "tf.keras.losses.MeanSquaredError(), or of several outputs a list of "
                f"one for each, found {checks.shown(each)}."
            )


def check_metrics(name: str, metrics: Any) -> None:
    """Raises unless metrics are a list of those of Keras 2.

    Args:
      name: The argument.
      metrics: The metrics, or functions that make one; `None` for none.

    Raises:
      TypeError: If they are something else, such as names, or a mapping from outputs.
    """
    if not isinstance(metrics, (list, tuple, types.NoneType)):
        raise TypeError(
            f"{name} must be a list of tf.keras.metrics.Metrics, or of functions that "
            f"make one, found {checks.shown(metrics)}. Each gets all outputs of a "
            "model of several: metrics of single ones are for "
            "tff_drift.models.from_keras3."
        )
    for place, each in enumerate(metrics or ()):
        if not callable(each):
            raise TypeError(
                f"{name}[{place}] must be a tf.keras.metrics.Metric, or a function "
                "that makes one, such as tf.keras.metrics.MeanAbsoluteError, found "
                f"{checks.shown(each)}."
            )


def check_input_spec(input_spec: Any) -> None:
    """Raises unless each part of a batch's specification is one.

    Args:
      input_spec: The structure.

    Raises:
      TypeError: If one is not, such as an array.
    """
    for each in tf.nest.flatten(input_spec):
        if not isinstance(each, tf.TypeSpec):
            raise TypeError(
                "each of input_spec must be a tf.TensorSpec, found "
                f"{checks.shown(each)}. Give train.element_spec."
            )


def check_losses_of_outputs(keras_model: Any, losses: Sequence[Any]) -> None:
    """Raises if one loss of Keras would take all outputs of a model for one.

    TFF gives a loss alone all outputs, as one of the user's own may want them.

    Args:
      keras_model: The model of Keras 2.
      losses: Its losses.

    Raises:
      ValueError: If one would.
    """
    (loss, *others), number = losses, len(outputs_by_name(keras_model))
    module = type(loss).__module__.partition(".")[0]
    if others or number < 2 or module not in ("keras", "tf_keras"):
        return
    raise ValueError(
        f"model_fn gives a model of {number} outputs the one loss "
        f"{type(loss).__name__}, which would take them for one, where Keras' fit takes "
        "the sum over them. Give loss=[...] with a loss for each."
    )


def keras3_refused(function: str, value: Any) -> TypeError:
    """Returns the error of a function for Keras 2 that is given an object of Keras 3.

    Args:
      function: The name of the function.
      value: A model, a loss or a metric: an object, a class or a function.
    """
    is_named = isinstance(value, (type, types.FunctionType))
    name = (value if is_named else type(value)).__name__
    return TypeError(
        f"{function} takes models, losses and metrics of Keras 2 (tf.keras), found "
        f"{name} of Keras 3. Call tff_drift.models.from_keras3(keras_model, loss, "
        "input_spec, metrics) in its place, with model, loss and metrics of Keras 3."
    )
