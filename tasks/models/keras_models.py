"""Models of Keras 2 or 3 as TFF's, with a loss and metrics of the same Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, models


def to_tff(
    keras_model: Any,
    input_spec: Any,
    build_loss: Callable[[Any], Any],
    build_metrics: Callable[[Any], list[Any]],
) -> tff.learning.models.VariableModel:
    """Returns a Keras model with a loss and metrics as a model of TFF.

    Args:
      keras_model: A model of Keras 2 or 3.
      input_spec: The `tf.TensorSpec` structure of a batch of inputs and labels.
      build_loss: Returns the loss, given the Keras to take it from, `tf.keras` or
        `keras`.
      build_metrics: Returns the metrics, given the same.
    """
    if checks.is_of_keras3(keras_model):
        import keras

        return models.from_keras3(
            keras_model, build_loss(keras), input_spec, build_metrics(keras)
        )
    return tff.learning.models.from_keras_model(
        keras_model,
        loss=build_loss(tf.keras),
        input_spec=input_spec,
        metrics=build_metrics(tf.keras),
    )
