"""Models that predict one number per example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions
from tff_drift import checks, models

HEADLINE = "mae"


def build_model_fn(
    build_keras_model: Callable[[], Any], input_spec: Any
) -> definitions.ModelFn:
    """Returns a model function with the mean squared error as loss.

    Its metrics are the mean absolute error, `mae`, and the root of the mean squared
    error, `rmse`, both in the unit of the number.

    Args:
      build_keras_model: Builds a model of Keras 2 or 3 from scratch with one output.
      input_spec: The `tf.TensorSpec` structure of a batch of inputs and numbers.

    Returns:
      A function without arguments that builds a
      `tff.learning.models.VariableModel`.
    """

    def model_fn() -> tff.learning.models.VariableModel:
        keras_model = build_keras_model()
        if checks.is_of_keras3(keras_model):
            import keras

            loss, metrics = _loss_and_metrics(keras)
            return models.from_keras3(keras_model, loss, input_spec, metrics)
        loss, metrics = _loss_and_metrics(tf.keras)
        return tff.learning.models.from_keras_model(
            keras_model, loss=loss, input_spec=input_spec, metrics=metrics
        )

    return model_fn


def _loss_and_metrics(keras: Any) -> tuple[Any, list[Any]]:
    """Returns those of a version of Keras."""
    return keras.losses.MeanSquaredError(), [
        keras.metrics.MeanAbsoluteError(name=HEADLINE),
        keras.metrics.RootMeanSquaredError(name="rmse"),
    ]
