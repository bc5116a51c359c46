"""Validates the model functions that builders and evaluation take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.models.comparisons import refused_comparisons
from tff_drift.models.explained import explain, keras3_arguments
from tff_drift.models.first_trace import is_of_keras, what_is_said
from tff_drift.models.keras2 import as_in_fit, check_batches
from tff_drift.models.keras2_arguments import keras3_refused
from tff_drift.models.keras3 import check_training
from tff_drift.models.keras_internals import name_scopes_closed
from tff_drift.models.outside import explain_if_outside
from tff_drift.models.own_code import check_own_code

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


def check_model_fn(model_fn: Any) -> None:
    """Raises unless a value can be a model.

    Args:
      model_fn: A no-arg function that builds a new
        `tff.learning.models.VariableModel` at every call, or a
        `tff.learning.models.FunctionalModel`.

    Raises:
      TypeError: If it is something else; the message says what to pass.
      ValueError: If TensorFlow runs functions eagerly.
    """
    if tf.config.functions_run_eagerly():
        # Layers' functions would take part in no graph, without a word.
        raise ValueError(
            "model_fn is traced, but functions run eagerly. Call "
            "tf.config.run_functions_eagerly(False) before; tf.print shows values."
        )
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
    with refused_comparisons():
        model = _built(model_fn)
    if isinstance(model, tff.learning.models.VariableModel):
        model = as_in_fit(model)
        check_own_code(model)
        check_training(model)
        _check_shapes(model)
        check_batches(model)
        return model
    raise TypeError(
        "model_fn must return a tff.learning.models.VariableModel, found "
        f"{checks.shown(model)}. {_REMEDY}"
    )


def _built(model_fn: Callable[[], Any]) -> Any:
    """Returns what a model function returns, and explains what it raises."""
    try:
        with name_scopes_closed():
            return model_fn()
    except Exception as error:
        explain(error)
        found = next(keras3_arguments(error), None)
        if found is None:
            explain_if_outside(model_fn, error)
            if len(str(error)) > checks.LONGEST_MESSAGE and is_of_keras(error):
                said = f"model_fn fails, {type(error).__name__}: {what_is_said(error)}"
                raise checks.ShortError(said) from error
            raise
        function, value = found
        name = f"tff.learning.models.{function}"
        raise keras3_refused(name, value) from error


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
