"""Adagrad as a server step.

Duchi et al. (2011), Adaptive Subgradient Methods for Online Learning and
Stochastic Optimization. https://jmlr.org/papers/v12/duchi11a.html
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift.optimizers import adaptive, tensorwise


class _Adagrad(adaptive.AdaptiveOptimizer):
    """See `build_adagrad`."""

    def second_moment(
        self, hparams: tensorwise.Hparams, v: tf.Tensor, delta: tf.Tensor
    ) -> tf.Tensor:
        del hparams  # The sum forgets nothing.
        return v + tf.square(delta)


def build_adagrad(
    learning_rate: tensorwise.Float,
    beta_1: float = 0.0,
    tau: float = 1e-3,
    initial_accumulator: float = 0.0,
) -> tff.learning.optimizers.Optimizer:
    """Builds Adagrad as FedAdagrad's server step uses it.

    Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
    https://arxiv.org/abs/2003.00295

    With the weights x and the gradient (on the server the pseudo_gradient)
    delta, and m = 0 and v = `initial_accumulator` at the start, a step is

    ```
    m <- beta_1 m + (1 - beta_1) delta
    v <- v + delta^2
    x <- x - learning_rate m / (sqrt(v) + tau)
    ```

    where all operations are entry by entry. There is no bias correction.
    The state is

    ```
    <learning_rate=float32,beta_1=float32,tau=float32,first_moment=W,second_moment=W>
    ```

    for weights of type W; the first three are the hyperparameters.

    Args:
      learning_rate: The paper's eta: a number of at least 0 (0 takes no step),
        or a scalar float tensor of the computation that uses the optimizer.
      beta_1: The decay of the first moment, per step, in [0, 1). At 0 there is
        no momentum: m is the gradient itself.
      tau: The degree of adaptivity, above 0: the smaller, the more the entries'
        steps are equalised. As it grows with learning_rate / tau fixed, the step
        approaches SGD's.
      initial_accumulator: What every entry of v starts with, at least 0. Reddi
        et al. ask for tau^2 or more, the Large-Cohort experiments use 0.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    return _Adagrad(learning_rate, beta_1, tau, initial_accumulator)
