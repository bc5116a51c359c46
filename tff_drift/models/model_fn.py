"""Validates the model functions that builders and evaluation take."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.models.first_trace import is_of_keras, what_is_said
from tff_drift.models.keras2 import as_in_fit, check_batches
from tff_drift.models.keras2_arguments import check_built, keras3_refused
from tff_drift.models.keras3 import check_training
from tff_drift.models.loaded_weights import explain_if_outside
from tff_drift.models.stateless import ADAPT_OUTSIDE

# A model: a function without arguments that builds a new
# `tff.learning.models.VariableModel`, or a `tff.learning.models.FunctionalModel`.
ModelFn: TypeAlias = (
    Callable[[], tff.learning.models.VariableModel]
    | tff.learning.models.FunctionalModel
)

_REMEDY = (
    "End a function with tff.learning.models.from_keras_model(...) or, for a model of "
    "Keras 3, tff_drift.models.from_keras3(keras_model, loss, input_spec, metrics)."
)
# TFF's functions that take models, losses and metrics of Keras 2.
_OF_KERAS_2 = ("from_keras_model", "functional_model_from_keras")
_ARGUMENTS = ("keras_model", "loss", "loss_fn", "metrics", "metrics_constructor")


def check_model_fn(model_fn: Any) -> None:
    """Raises unless a value can be a model.

    Args:
      model_fn: A no-arg function that builds a new
        `tff.learning.models.VariableModel` at every call, or a
        `tff.learning.models.FunctionalModel`.

    Raises:
      TypeError: If it is something else; the message says what to pass.
    """
    if isinstance(model_fn, tff.learning.models.FunctionalModel):
        return
    # Models of Keras can be called.
    models = (tf.keras.Model, tff.learning.models.VariableModel)
    is_model = isinstance(model_fn, models) or checks.is_of_keras3(model_fn)
    if is_model or not callable(model_fn):
        raise TypeError(
            "model_fn must be a function without arguments that builds the model anew, "
            "or a tff.learning.models.FunctionalModel, found "
            f"{checks.shown(model_fn)}. {_REMEDY}"
        )


def build_variable_model(
    model_fn: Callable[[], tff.learning.models.VariableModel],
) -> tff.learning.models.VariableModel:
    """Calls a function that builds a model.

    Args:
      model_fn: The function.

    Returns:
      The model.

    Raises:
      TypeError: If the function returns something else, gives TFF's
        `from_keras_model` a model, a loss or a metric of Keras 3, or the model casts
        strings of its batches to numbers; the message says what to do.
      ValueError: If clients cannot train a model of Keras 3, see `from_keras3`, a
        weight's shape is not known, the model or its loss cannot take its batches, or
        the function fails in graphs alone: it uses what was made outside of it.
    """
    try:
        model = model_fn()
    except Exception as error:
        _explain(error)
        found = next(_keras3_arguments(error.__traceback__), None)
        if found is None:
            explain_if_outside(model_fn, error)
            if len(str(error)) > checks.LONGEST_MESSAGE and is_of_keras(error):
                said = f"model_fn fails, {type(error).__name__}: {what_is_said(error)}"
                raise checks.ShortError(said) from error
            raise
        function, value = found
        name = f"tff.learning.models.{function}"
        raise keras3_refused(name, value) from error
    if isinstance(model, tff.learning.models.VariableModel):
        check_training(model)
        model = as_in_fit(model)
        _check_shapes(model)
        check_batches(model)
        return model
    raise TypeError(
        "model_fn must return a tff.learning.models.VariableModel, found "
        f"{checks.shown(model)}. {_REMEDY}"
    )


def _check_shapes(model: tff.learning.models.VariableModel) -> None:
    """Raises if a weight may have several shapes: those of a state have one."""
    for variable in (*model.trainable_variables, *model.non_trainable_variables):
        shape = getattr(variable, "shape", None)
        if isinstance(shape, tf.TensorShape) and not shape.is_fully_defined():
            raise ValueError(
                f"model_fn builds a model whose weight {checks.shown(variable.name)} "
                f"has the shape {shape}, which is not known in full. Give it one; "
                'layers with output_mode="tf_idf", such as TextVectorization, have '
                "such a weight: apply them to the data, outside of the model."
            )


def _explain(error: Exception) -> None:
    """Raises what to do where a model function is right for Keras and not for TFF.

    Args:
      error: What it raised.

    Raises:
      ValueError: If it adapts a layer, has one count its tokens, clones a compiled
        model of Keras 3, or gives TFF's function weights of examples or a model of
        Keras 2 without weights.
    """
    # Of Keras 3, whose own functions are no part of the traceback.
    if "Cannot convert '(None, <tf.Tensor" in str(error):
        raise _counts_tokens(error) from error
    for function, module, values in _calls(error.__traceback__):
        if function == "adapt" and module.startswith(("keras.", "tf_keras.")):
            layer = type(values.get("self")).__name__
            raise ValueError(
                f"model_fn adapts a {layer} layer. {ADAPT_OUTSIDE}"
            ) from error
        if function == "get_compile_config" and module.startswith("keras."):
            raise ValueError(
                "model_fn clones a Keras model that is compiled, whose optimizer has "
                "no values in TFF's graphs. Load it by load_model(path, "
                "compile=False), or clone it outside of model_fn and give the clone to "
                "from_keras3."
            ) from error
        # Where Keras 2 counts tokens, of a lookup layer's table here.
        if function == "dense_bincount" and tf.is_symbolic_tensor(values.get("depth")):
            raise _counts_tokens(error) from error
        spec = values.get("input_spec")
        is_of_tff = module.startswith("tensorflow_federated.")
        if not is_of_tff or function not in _OF_KERAS_2:
            continue
        keras_model = values.get("keras_model")
        check_built("keras_model", keras_model)
        if getattr(keras_model, "_is_compiled", False):
            raise ValueError(
                f"model_fn gives tff.learning.models.{function} a model that is "
                "compiled, as load_model returns it. Load it by load_model(path, "
                "compile=False), or call tff_drift.models.from_keras2 with the same "
                "arguments in its place."
            ) from error
        if _has_weights(spec):
            raise ValueError(
                f"model_fn gives tff.learning.models.{function} batches of three "
                "components, and it takes inputs and labels alone. For weights of "
                "examples call tff_drift.models.from_keras2 with the same arguments in "
                "its place."
            ) from error


def _counts_tokens(error: Exception) -> ValueError:
    return ValueError(
        "model_fn calls a layer, such as StringLookup or TextVectorization, that has a "
        "column for each token and reads their number from its table, which has no "
        f"value in TFF's graphs ({type(error).__name__}: {checks.shown(str(error))}). "
        "Give the layer max_tokens=<number of columns> and pad_to_max_tokens=True, or "
        'apply it to the data, outside of the model, the one way for output_mode="'
        'tf_idf".'
    )


def _has_weights(input_spec: Any) -> bool:
    return isinstance(input_spec, (Mapping, Sequence)) and len(input_spec) == 3


def _calls(
    traceback: types.TracebackType | None,
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields the functions that an error passed: name, module, and values by name."""
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "")
        yield frame.f_code.co_name, module, frame.f_locals
        traceback = traceback.tb_next


def _keras3_arguments(
    traceback: types.TracebackType | None,
) -> Iterator[tuple[str, Any]]:
    """Yields TFF's functions that an error passed, each with an object of Keras 3."""
    for function, module, values in _calls(traceback):
        if function in _OF_KERAS_2 and module.startswith("tensorflow_federated."):
            for name in _ARGUMENTS:
                for value in tf.nest.flatten(values.get(name)):
                    if checks.is_of_keras3(value):
                        yield function, value
