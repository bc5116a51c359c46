"""Labels and weights as Keras 2's `fit` gives them to losses and metrics."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def like(labels: Any, predictions: Any) -> Any:
    """Returns labels with dtype and rank of the predictions, as Keras' `fit` does.

    Labels `[n]` of predictions `[n, m]` become `[n, 1]`: otherwise some losses have one
    value for all examples, which cannot be weighted.

    Args:
      labels: The labels of a batch.
      predictions: The model's outputs.
    """
    if tf.nest.is_nested(labels) or tf.nest.is_nested(predictions):
        return labels
    labels = _with_dtype_of(labels, predictions)
    is_short = labels.shape.rank == 1 and predictions.shape.rank == 2
    return tf.expand_dims(labels, 1) if is_short else labels


def weights_like(weights: Any, predictions: Any) -> Any:
    """Returns weights with the dtype of the predictions, as Keras' `fit` does.

    Args:
      weights: The weights of the examples.
      predictions: The model's outputs.
    """
    if tf.nest.is_nested(weights) or tf.nest.is_nested(predictions):
        return weights
    return tf.cast(weights, predictions.dtype)


def as_column(labels: Any, predictions: Any) -> Any:
    """Returns labels as Keras' `fit` gives them to losses and metrics.

    With the dtype of the predictions, and labels `[n]` of predictions `[n, 1]` as
    `[n, 1]`. Otherwise some losses and metrics, such as the cosine similarity, take a
    batch for one example.

    Args:
      labels: The labels of a batch.
      predictions: The model's outputs.
    """
    if tf.nest.is_nested(labels) or tf.nest.is_nested(predictions):
        return labels
    is_column = predictions.shape.rank == 2 and predictions.shape[1] == 1
    return (like if is_column else _with_dtype_of)(labels, predictions)


def masked(weights: Any, mask: Any) -> Any:
    """Returns weights of examples, or of their steps, that are 0 where a mask hides.

    Args:
      weights: The weights, or `None`.
      mask: The mask of the model's outputs.
    """
    shown = tf.cast(mask, tf.float32)
    if weights is None:
        return shown
    extra = [1] * (shown.shape.rank - weights.shape.rank)
    return shown * tf.cast(
        tf.reshape(weights, tf.concat([tf.shape(weights), extra], 0)), tf.float32
    )


def _with_dtype_of(labels: Any, predictions: Any) -> Any:
    """Returns labels with the dtype of predictions of their kind, floats or integers.

    Losses and metrics of one's own may not cast them.
    """
    own, wanted = labels.dtype, predictions.dtype
    are_floats = own.is_floating and wanted.is_floating
    if are_floats or (own.is_integer and wanted.is_integer):
        return tf.cast(labels, wanted)
    return labels
