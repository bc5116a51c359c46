"""The server steps that Adagrad, Adam and Yogi share.

Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

import abc

import tensorflow as tf

from tff_drift import checks
from tff_drift.optimizers import tensorwise


class AdaptiveOptimizer(tensorwise.TensorwiseOptimizer):
    """Divides the first moment, entry by entry, by the root of the second.

    ```
    m <- beta_1 m + (1 - beta_1) delta
    v <- (what the method says)
    x <- x - learning_rate m / (sqrt(v) + tau)
    ```

    tau is added outside the root, and neither moment is bias-corrected.
    """

    def __init__(
        self,
        learning_rate: tensorwise.Float,
        beta_1: float,
        tau: float,
        initial_accumulator: float,
        **others: float,
    ) -> None:
        """Checks the hyperparameters and initializes the optimizer.

        Args:
          learning_rate: The learning rate.
          beta_1: The decay of the first moment.
          tau: The constant added to the root of the second moment.
          initial_accumulator: What every entry of v starts with.
          **others: The method's further hyperparameters, already checked.

        Raises:
          TypeError: If an argument is not a real number.
          ValueError: If an argument is out of its range.
        """
        tensorwise.check_learning_rate(learning_rate)
        checks.check_decay("beta_1", beta_1)
        checks.check_positive("tau", tau)
        checks.check_non_negative("initial_accumulator", initial_accumulator)
        super().__init__(
            {
                tensorwise.LEARNING_RATE: learning_rate,
                "beta_1": beta_1,
                "tau": tau,
                **others,
            },
            {"first_moment": 0.0, "second_moment": initial_accumulator},
        )

    @abc.abstractmethod
    def second_moment(
        self, hparams: tensorwise.Hparams, v: tf.Tensor, delta: tf.Tensor
    ) -> tf.Tensor:
        """Returns v after having seen `delta`."""

    def update(
        self, hparams: tensorwise.Hparams, x: tf.Tensor, m: tf.Tensor, v: tf.Tensor
    ) -> tf.Tensor:
        """Returns what is subtracted from `x`, before the learning rate."""
        del x  # Of use to the layer-wise methods.
        return m / (tf.sqrt(v) + hparams["tau"])

    def step(
        self,
        hparams: tensorwise.Hparams,
        x: tf.Tensor,
        delta: tf.Tensor,
        *slots: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Returns `x`, m and v after a step."""
        m, v = slots
        beta_1 = hparams["beta_1"]
        m = beta_1 * m + (1 - beta_1) * delta
        v = self.second_moment(hparams, v, delta)
        x = x - hparams[tensorwise.LEARNING_RATE] * self.update(hparams, x, m, v)
        return x, m, v
