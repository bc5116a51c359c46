"""Dropout whose masks are a function of the round, the step and the batch.

See `tff_drift.layers.step_seed` for why.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.layers.step_seed import draw_seed


@tf.keras.utils.register_keras_serializable(package="tff_drift")
class Dropout(tf.keras.layers.Layer):
    """Dropout with reproducible masks, a drop-in for `tf.keras.layers.Dropout`.

    During local training by this library's client works, the mask is a pure
    function of the round number, the local step, the batch's content and the
    layer's position in the model. Anywhere else (Keras' own `fit`, TFF's own
    client works) the masks are drawn as Keras' layer draws them.

    Elements are kept with probability `1 - rate` and then scaled by
    `1 / (1 - rate)` (Srivastava et al., 2014,
    https://jmlr.org/papers/v15/srivastava14a.html). With `rate` 0, and outside
    training, the layer is the identity.

    Args:
      rate: The probability of dropping an element, at least 0 and below 1.
      **kwargs: Passed on to `tf.keras.layers.Layer`.

    Raises:
      TypeError: If `rate` is not a number.
      ValueError: If `rate` is not in [0, 1).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Layers behind this one are to know which time steps are padding.
        self.supports_masking = True
        checks.check_decay("rate", rate)
        self.rate = float(rate)

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Drops elements of `inputs` when `training` is true."""
        if training is None:
            training = tf.keras.backend.learning_phase()
        if isinstance(training, (bool, int)):
            return self._drop(inputs) if training else tf.identity(inputs)
        return tf.cond(
            tf.cast(training, tf.bool),
            lambda: self._drop(inputs),
            lambda: tf.identity(inputs),
        )

    def _drop(self, inputs: tf.Tensor) -> tf.Tensor:
        seed = draw_seed()
        if seed is None:
            return tf.nn.dropout(inputs, self.rate)
        return tf.nn.experimental.stateless_dropout(
            inputs, self.rate, seed=seed, rng_alg="philox"
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns `input_shape`: dropout changes no shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the layer."""
        return {**super().get_config(), "rate": self.rate}
