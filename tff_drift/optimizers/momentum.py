"""SGD with heavy-ball momentum, of weights of any float dtype."""

from __future__ import annotations

import tensorflow as tf

from tff_drift.optimizers import tensorwise


class MomentumSgd(tensorwise.TensorwiseOptimizer):
    """The steps of `tff.learning.optimizers.build_sgdm` with momentum.

    TFF's own take a rate and a momentum of float32 times the weights as they are, which
    TensorFlow does not for another dtype. The state is TFF's.
    """

    def __init__(
        self, learning_rate: tensorwise.Float, momentum: tensorwise.Float
    ) -> None:
        super().__init__(
            {tensorwise.LEARNING_RATE: learning_rate, "momentum": momentum},
            {"accumulator": 0.0},
        )

    def step(
        self,
        hparams: tensorwise.Hparams,
        x: tf.Tensor,
        delta: tf.Tensor,
        *slots: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Returns x - learning_rate m and m, which was multiplied and added to."""
        (m,) = slots
        m = hparams["momentum"] * m + delta
        return x - hparams[tensorwise.LEARNING_RATE] * m, m
