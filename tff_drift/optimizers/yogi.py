"""Yogi as a server step, without bias correction.

Zaheer et al. (2018), Adaptive Methods for Nonconvex Optimization.
https://papers.nips.cc/paper/8186-adaptive-methods-for-nonconvex-optimization
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift.optimizers import adam, tensorwise


class _Yogi(adam.AdamOptimizer):
    """See `build_yogi`."""

    def second_moment(
        self, hparams: tensorwise.Hparams, v: tf.Tensor, delta: tf.Tensor
    ) -> tf.Tensor:
        squared = tf.square(delta)
        # The sign compares v with the *squared* gradient: towards delta^2, by a
        # step whose size does not depend on v. v cannot fall below 0, because it
        # falls by less than delta^2, and only where it is larger than delta^2.
        return v - (1 - hparams["beta_2"]) * squared * tf.sign(v - squared)


def build_yogi(
    learning_rate: tensorwise.Float,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    initial_accumulator: float = 0.0,
) -> tff.learning.optimizers.Optimizer:
    """Builds Yogi as FedYogi's server step uses it.

    Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
    https://arxiv.org/abs/2003.00295

    With the weights x and the gradient (on the server the pseudo_gradient)
    delta, and m = 0 and v = `initial_accumulator` at the start, a step is

    ```
    m <- beta_1 m + (1 - beta_1) delta
    v <- v - (1 - beta_2) delta^2 sign(v - delta^2)
    x <- x - learning_rate m / (sqrt(v) + tau)
    ```

    where all operations are entry by entry. There is no bias correction, unlike
    in `tff.learning.optimizers.build_yogi`. The state is

    ```
    <learning_rate=float32,beta_1=float32,tau=float32,beta_2=float32,
     first_moment=W,second_moment=W>
    ```

    for weights of type W; the first four are the hyperparameters.

    Args:
      learning_rate: The paper's eta: a number of at least 0 (0 takes no step),
        or a scalar float tensor of the computation that uses the optimizer.
      beta_1: The decay of the first moment, per step, in [0, 1). At 0 there is
        no momentum: m is the gradient itself.
      beta_2: 1 minus the share of delta^2 by which v may change, per step, in
        [0, 1).
      tau: The degree of adaptivity, above 0: the smaller, the more the entries'
        steps are equalised. As it grows with learning_rate / tau fixed, the step
        approaches that of SGD with momentum.
      initial_accumulator: What every entry of v starts with, at least 0. Reddi
        et al. ask for tau^2 or more.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    return _Yogi(learning_rate, beta_1, beta_2, tau, initial_accumulator)
