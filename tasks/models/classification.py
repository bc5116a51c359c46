"""Models that name one class per example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions
from tasks.models import keras_models


def batch_spec(
    shape: Sequence[int], label_type: tf.DType = tf.int32
) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Returns the type of a batch of inputs and labels.

    Args:
      shape: The shape of an example's inputs, which are `float32`.
      label_type: The type of a label.
    """
    return tf.TensorSpec((None, *shape), tf.float32), tf.TensorSpec((None,), label_type)


def build_model_fn(
    build_keras_model: Callable[[], Any],
    input_spec: Any,
    class_weight: Mapping[int, float] | None = None,
) -> definitions.ModelFn:
    """Returns a model function with cross-entropy as loss and accuracy as metric.

    Args:
      build_keras_model: Builds a model of Keras 2 or 3 from scratch whose outputs are
        logits.
      input_spec: The `tf.TensorSpec` structure of a batch of inputs and labels.
      class_weight: The weights of the examples of each class, in training alone.

    Returns:
      A function without arguments that builds a
      `tff.learning.models.VariableModel`.
    """

    def model_fn() -> tff.learning.models.VariableModel:
        return keras_models.to_tff(
            build_keras_model,
            input_spec,
            lambda keras: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            lambda keras: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            class_weight,
        )

    return model_fn
