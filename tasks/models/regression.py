"""Models that predict one number per example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tasks import definitions
from tasks.models import keras_models

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
        return keras_models.to_tff(
            build_keras_model,
            input_spec,
            lambda keras: keras.losses.MeanSquaredError(),
            lambda keras: [
                keras.metrics.MeanAbsoluteError(name=HEADLINE),
                keras.metrics.RootMeanSquaredError(name="rmse"),
            ],
        )

    return model_fn
