"""Dropout whose masks are a function of the round, the step and the batch.

See `tff_drift.layers.step_seed` for why.
"""

from __future__ import annotations

from collections.abc import Sequence
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
      noise_shape: The shape of the mask, a list or tuple with 1 where elements are
        dropped together and `None` for a size of the input; by default the input's.
      seed: What masks are drawn with elsewhere. In training by this library it has no
        effect.
      **kwargs: Passed on to `tf.keras.layers.Layer`.

    Raises:
      TypeError: If `rate` is not a number, `noise_shape` no list or tuple, or `seed` no
        integer.
      ValueError: If `rate` is not in [0, 1), or `seed` is negative.
    """

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Layers behind this one are to know which time steps are padding.
        self.supports_masking = True
        checks.check_decay("rate", rate)
        self.rate = float(rate)
        if noise_shape is not None:
            what = "a list or tuple of sizes, such as (None, 1, None)"
            checks.check_instance("noise_shape", noise_shape, (list, tuple), what)
        if seed is not None:
            checks.check_integer("seed", seed, at_least=0)
        self.noise_shape, self.seed = noise_shape, seed

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
        seed, shape = draw_seed(), self._mask_shape(inputs)
        if seed is None:
            return tf.nn.dropout(inputs, self.rate, shape, self.seed)
        return tf.nn.experimental.stateless_dropout(
            inputs, self.rate, seed=seed, rng_alg="philox", noise_shape=shape
        )

    def _mask_shape(self, inputs: tf.Tensor) -> Any:
        if self.noise_shape is None:
            return None
        sizes = enumerate(self.noise_shape)
        shape = tf.shape(inputs)
        return tf.stack([shape[k] if size is None else size for k, size in sizes])

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns `input_shape`: dropout changes no shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the layer."""
        return {
            **super().get_config(),
            "rate": self.rate,
            "noise_shape": self.noise_shape,
            "seed": self.seed,
        }
