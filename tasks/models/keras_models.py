"""Models of Keras 2 or 3 as TFF's, with a loss and metrics of the same Keras."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, models
from tff_drift.tensors import eagerly


def built(build_keras_model: Callable[[], Any]) -> Any:
    """Returns the model that a function builds.

    Keras 3 reads the numbers of the optimizer of a compiled model that it clones, and
    graphs, in which TFF builds models, have none. It builds such a model eagerly.

    Args:
      build_keras_model: Builds a model of Keras 2 or 3.
    """
    try:
        return build_keras_model()
    except NotImplementedError:
        keras_model = eagerly(build_keras_model)
        if not checks.is_of_keras3(keras_model):
            raise
        return keras_model


def to_tff(
    build_keras_model: Callable[[], Any],
    input_spec: Any,
    build_loss: Callable[[Any], Any],
    build_metrics: Callable[[Any], list[Any]],
    class_weight: Mapping[int, float] | None = None,
) -> tff.learning.models.VariableModel:
    """Returns a Keras model, built anew, with a loss and metrics as one of TFF.

    Args:
      build_keras_model: Builds a model of Keras 2 or 3.
      input_spec: The `tf.TensorSpec` structure of a batch of inputs and labels.
      build_loss: Returns the loss, given the Keras to take it from, `tf.keras` or
        `keras`.
      build_metrics: Returns the metrics, given the same.
      class_weight: The weights of classes in training, by their numbers.
    """
    keras_model = built(build_keras_model)
    if checks.is_of_keras3(keras_model):
        import keras

        build, of = models.from_keras3, keras
    else:
        build, of = models.from_keras2, tf.keras
    return build(
        keras_model,
        build_loss(of),
        input_spec,
        build_metrics(of),
        class_weight=class_weight,
    )
