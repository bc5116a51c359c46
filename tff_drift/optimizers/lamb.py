"""LAMB as a server step: Adam's step, scaled layer by layer."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.optimizers import adam, tensorwise
from tff_drift.optimizers.trust_ratio import trust_ratio


class _Lamb(adam.AdamOptimizer):
    """See `build_lamb`."""

    def update(
        self, hparams: tensorwise.Hparams, x: tf.Tensor, m: tf.Tensor, v: tf.Tensor
    ) -> tf.Tensor:
        u = super().update(hparams, x, m, v) + hparams["weight_decay"] * x
        return trust_ratio(x, u, hparams["epsilon"]) * u


def build_lamb(
    learning_rate: tensorwise.Float,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    weight_decay: float = 0.0,
    epsilon: float = 0.0,
    initial_accumulator: float = 0.0,
    bias_correction: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """Builds LAMB as FedLamb's server step uses it.

    You et al. (2020), Large Batch Optimization for Deep Learning: Training BERT
    in 76 minutes, Algorithm 2, https://arxiv.org/abs/1904.00962, with the
    hyperparameters of Charles et al. (2021), On Large-Cohort Training for
    Federated Learning, section 5.2 and Table 3: https://arxiv.org/abs/2106.07820

    For every layer l on its own, with its weights x_l and its gradient (on the
    server the pseudo_gradient) delta_l, and m_l = 0 and
    v_l = `initial_accumulator` at the start, a step is

    ```
    m_l <- beta_1 m_l + (1 - beta_1) delta_l
    v_l <- beta_2 v_l + (1 - beta_2) delta_l^2
    u_l <- m_l / (sqrt(v_l) + tau) + weight_decay x_l
    x_l <- x_l - learning_rate (||x_l|| / (||u_l|| + epsilon)) u_l
    ```

    A layer is one weight tensor, so that a kernel and its bias are two layers.
    Where x_l or u_l is zero the ratio is 1. By default there is no bias correction, as
    in the other server steps here and unlike in Algorithm 2; `bias_correction` is that
    of `build_adam`. As the ratio removes any factor common to u_l, the correction
    does, with `weight_decay` and `epsilon` 0, no more than make tau smaller in step t,
    by sqrt(1 - beta_2^t). With `epsilon` 0 every
    layer of non-zero x_l and u_l moves by exactly learning_rate ||x_l||. The state is

    ```
    <learning_rate=float32,beta_1=float32,tau=float32,beta_2=float32,
     weight_decay=float32,epsilon=float32,first_moment=W,second_moment=W>
    ```

    for weights of type W; the first six are the hyperparameters.

    Args:
      learning_rate: A number of at least 0 (0 takes no step), or a scalar float
        tensor of the computation that uses the optimizer: the share of its norm
        by which a layer moves per step.
      beta_1: The decay of the first moment, per step, in [0, 1).
      beta_2: The decay of the second moment, per step, in [0, 1).
      tau: The constant beside the root, above 0 (You et al. write epsilon).
      weight_decay: The paper's lambda, at least 0, added to the update as
        weight_decay x_l.
      epsilon: Added to the norm of u_l, at least 0; the paper has none.
      initial_accumulator: What every entry of v starts with, at least 0.
      bias_correction: As in `build_adam`.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    checks.check_non_negative("weight_decay", weight_decay)
    checks.check_non_negative("epsilon", epsilon)
    return _Lamb(
        learning_rate,
        beta_1,
        beta_2,
        tau,
        initial_accumulator,
        bias_correction,
        weight_decay=weight_decay,
        epsilon=epsilon,
    )
