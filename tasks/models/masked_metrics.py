"""Metrics of sequence models that leave some labels out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf


def _weights(labels: tf.Tensor, masked: Collection[int]) -> tf.Tensor:
    weights = tf.ones_like(labels, tf.float32)
    for label in masked:
        weights *= tf.cast(tf.not_equal(labels, label), tf.float32)
    return weights


class MaskedAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
    """The fraction of positions with the right label, some labels left out.

    Attributes:
      masked_labels: The labels whose positions do not count.
    """

    def __init__(
        self,
        masked_labels: Collection[int] = (),
        name: str = "accuracy",
        dtype: Any = None,
    ) -> None:
        """Initializes the metric.

        Args:
          masked_labels: The labels whose positions do not count.
          name: The metric's name.
          dtype: The type of its result.
        """
        super().__init__(name=name, dtype=dtype)
        self.masked_labels = tuple(masked_labels)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None
    ) -> None:
        """Adds a batch: labels `[batch, length]`, logits `[batch, length, classes]`."""
        weights = _weights(y_true, self.masked_labels)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)
        super().update_state(y_true, y_pred, weights)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the metric."""
        return {**super().get_config(), "masked_labels": self.masked_labels}


class NumTokens(tf.keras.metrics.Sum):
    """The number of positions, some labels left out.

    Attributes:
      masked_labels: The labels whose positions do not count.
    """

    def __init__(
        self,
        masked_labels: Collection[int] = (),
        name: str = "num_tokens",
        dtype: Any = tf.int64,
    ) -> None:
        """Initializes the metric.

        Args:
          masked_labels: The labels whose positions do not count.
          name: The metric's name.
          dtype: The type of its result.
        """
        super().__init__(name=name, dtype=dtype)
        self.masked_labels = tuple(masked_labels)

    def update_state(
        self, y_true: tf.Tensor, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds the positions of a batch of labels `[batch, length]`."""
        super().update_state(_weights(y_true, self.masked_labels), sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the metric."""
        return {**super().get_config(), "masked_labels": self.masked_labels}
