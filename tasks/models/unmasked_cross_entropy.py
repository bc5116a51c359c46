"""The cross-entropy over all positions of sequences, padding included."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class UnmaskedCrossEntropy(tf.keras.losses.SparseCategoricalCrossentropy):
    """The mean of the cross-entropy over all positions, those that Keras masks too.

    `Embedding(mask_zero=True)` has recurrent layers pass padding over. Keras' `fit` and
    this library leave it out of the loss as well; TFF's baselines do not, and learning
    rates of papers were tuned for theirs.
    """

    def __init__(self, name: str = "unmasked_cross_entropy") -> None:
        """Initializes the loss, of logits.

        Args:
          name: The loss's name.
        """
        super().__init__(from_logits=True, name=name)

    def __call__(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None
    ) -> tf.Tensor:
        """Returns the mean of labels `[batch, length]` and logits of one rank more."""
        # A tensor of its own has no mask.
        return super().__call__(y_true, tf.identity(y_pred), sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the loss."""
        return {"name": self.name}
