"""Losses of Keras 2, and labels and weights as its `fit` gives them to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_drift.models.example_weights import as_argument
from tff_drift.models.outputs import check_masked_labels

# The module of Keras' own losses.
_OF_KERAS = tf.keras.losses.MeanSquaredError.__module__


def loss_of(loss: Any, labels: Any, predictions: Any, weights: Any) -> Any:
    """Returns a loss of Keras, which finds the mask of the predictions itself.

    Args:
      loss: The loss.
      labels: The labels of a batch.
      predictions: The output of the model that they are for.
      weights: The weights of the examples, or `None`.

    Raises:
      ValueError: If the mask or the weights are not of the values of the loss.
    """
    if weights is None:
        labels = as_column(labels, predictions)
    else:
        labels = like(labels, predictions)
        weights = weights_like(weights, predictions)
    if type(loss).__module__ == _OF_KERAS:  # Those of one's own may take any.

        def shape_of_values() -> tf.TensorShape:
            return loss.call(labels, predictions).shape

        check_masked_labels("loss", labels, predictions, shape_of_values)
        _check_weights(weights, shape_of_values)
    return loss(y_true=labels, y_pred=predictions, **as_argument(weights))


def _check_weights(weights: Any, shape_of_values: Callable[[], tf.TensorShape]) -> None:
    """Raises if weights lack more than the last dimension, which Keras gives them."""
    if weights is None or not weights.shape.rank:
        return
    values = shape_of_values()
    if values.rank is not None and values.rank > weights.shape.rank + 1:
        raise ValueError(
            f"sample_weight has the shape {weights.shape} and the loss has values of "
            f"shape {values}: give a weight for each value."
        )


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
