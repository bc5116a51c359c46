"""Adam as a server step, without bias correction and with.

Kingma and Ba (2015), Adam: A Method for Stochastic Optimization.
https://arxiv.org/abs/1412.6980
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.optimizers import adaptive, tensorwise


class AdamOptimizer(adaptive.AdaptiveOptimizer):
    """See `build_adam`."""

    def __init__(
        self,
        learning_rate: tensorwise.Float,
        beta_1: float,
        beta_2: float,
        tau: float,
        initial_accumulator: float,
        bias_correction: bool = False,
        **others: float,
    ) -> None:
        """See `build_adam`; `others` are a subclass's hyperparameters."""
        checks.check_decay("beta_2", beta_2)
        checks.check_flag("bias_correction", bias_correction)
        if bias_correction and initial_accumulator != 0:
            raise ValueError(
                "initial_accumulator must be 0 with bias_correction, which is for "
                f"moments that start at 0, found {checks.shown(initial_accumulator)}."
            )
        self.counts_steps = bias_correction
        super().__init__(
            learning_rate, beta_1, tau, initial_accumulator, beta_2=beta_2, **others
        )

    def second_moment(
        self, hparams: tensorwise.Hparams, v: tf.Tensor, delta: tf.Tensor
    ) -> tf.Tensor:
        """Returns v after having seen `delta`."""
        beta_2 = hparams["beta_2"]
        return beta_2 * v + (1 - beta_2) * tf.square(delta)

    def update(
        self, hparams: tensorwise.Hparams, x: tf.Tensor, m: tf.Tensor, v: tf.Tensor
    ) -> tf.Tensor:
        """Returns m / (√v + τ), of moments without their bias towards 0 if asked."""
        if self.counts_steps:
            step = hparams[tensorwise.STEP]
            m = m / (1 - tf.pow(hparams["beta_1"], step))
            v = v / (1 - tf.pow(hparams["beta_2"], step))
        return super().update(hparams, x, m, v)


def build_adam(
    learning_rate: tensorwise.Float,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    initial_accumulator: float = 0.0,
    bias_correction: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """Builds Adam as FedAdam's server step uses it.

    Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
    https://arxiv.org/abs/2003.00295

    With the weights x and the gradient (on the server the pseudo_gradient)
    delta, and m = 0 and v = `initial_accumulator` at the start, a step is

    ```
    m <- beta_1 m + (1 - beta_1) delta
    v <- beta_2 v + (1 - beta_2) delta^2
    x <- x - learning_rate m / (sqrt(v) + tau)
    ```

    where all operations are entry by entry. There is no bias correction, unlike
    in Kingma and Ba and in `tff.learning.optimizers.build_adam`, by default: the first
    steps follow from small m and v as they are. The state is

    ```
    <learning_rate=float32,beta_1=float32,tau=float32,beta_2=float32,
     first_moment=W,second_moment=W>
    ```

    for weights of type W; the first four are the hyperparameters.

    With `bias_correction`, as in Kingma and Ba and in the experiments of Charles et
    al. (2021), On Large-Cohort Training for Federated Learning
    (https://arxiv.org/abs/2106.07820, Table 3), step t takes m / (1 - beta_1^t) and
    v / (1 - beta_2^t) in their place, and the state holds t besides, as
    `step=int32`, after the hyperparameters.

    Args:
      learning_rate: The paper's eta: a number of at least 0 (0 takes no step),
        or a scalar float tensor of the computation that uses the optimizer.
      beta_1: The decay of the first moment, per step, in [0, 1). At 0 there is
        no momentum: m is the gradient itself.
      beta_2: The decay of the second moment, per step, in [0, 1).
      tau: The degree of adaptivity, above 0: the smaller, the more the entries'
        steps are equalised. As it grows with learning_rate / tau fixed, the step
        approaches that of SGD with momentum.
      initial_accumulator: What every entry of v starts with, at least 0. Reddi
        et al. ask for tau^2 or more, the Large-Cohort experiments use 0.
      bias_correction: Whether the moments are freed of their bias towards the 0 that
        they start from.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    return AdamOptimizer(
        learning_rate, beta_1, beta_2, tau, initial_accumulator, bias_correction
    )
