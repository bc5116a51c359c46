"""LARS as a server step: layer-wise adaptive rate scaling."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.optimizers import tensorwise
from tff_drift.optimizers.trust_ratio import trust_ratio


class _Lars(tensorwise.TensorwiseOptimizer):
    """See `build_lars`."""

    def step(
        self,
        hparams: tensorwise.Hparams,
        x: tf.Tensor,
        delta: tf.Tensor,
        *slots: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        (m,) = slots
        momentum = hparams["momentum"]
        m = momentum * m + (1 - momentum) * (delta + hparams["weight_decay"] * x)
        ratio = trust_ratio(x, m, hparams["epsilon"])
        return x - hparams[tensorwise.LEARNING_RATE] * ratio * m, m


def build_lars(
    learning_rate: tensorwise.Float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    epsilon: float = 1e-3,
) -> tff.learning.optimizers.Optimizer:
    """Builds LARS as FedLARS's server step uses it.

    You, Gitman and Ginsburg (2017), Large Batch Training of Convolutional
    Networks, https://arxiv.org/abs/1708.03888, in the form of Algorithm 1 of You
    et al. (2020), https://arxiv.org/abs/1904.00962, which Charles et al. (2021),
    On Large-Cohort Training for Federated Learning, section 5.2, use:
    https://arxiv.org/abs/2106.07820

    For every layer l on its own, with its weights x_l and its gradient (on the
    server the pseudo_gradient) delta_l, and m_l = 0 at the start, a step is

    ```
    m_l <- momentum m_l + (1 - momentum) (delta_l + weight_decay x_l)
    x_l <- x_l - learning_rate (||x_l|| / (||m_l|| + epsilon)) m_l
    ```

    A layer is one weight tensor, so that a kernel and its bias are two layers.
    The trust ratio ||x_l|| / (||m_l|| + epsilon) scales the *accumulated*
    gradient; the text of 2017 scales each gradient before it enters the
    momentum, and multiplies by a trust coefficient, which is here part of the
    learning rate. Where x_l or m_l is zero the ratio is 1. With `epsilon`
    0 every layer of non-zero x_l and m_l moves by exactly learning_rate ||x_l||.
    The state is

    ```
    <learning_rate=float32,momentum=float32,weight_decay=float32,epsilon=float32,
     first_moment=W>
    ```

    for weights of type W; the first four are the hyperparameters.

    Args:
      learning_rate: A number of at least 0 (0 takes no step), or a scalar float
        tensor of the computation that uses the optimizer: about the share of its
        norm by which a layer moves per step.
      momentum: The decay of the first moment, per step, in [0, 1).
      weight_decay: The paper's lambda, at least 0, added to the gradient as
        weight_decay x_l.
      epsilon: Added to the norm of m_l, at least 0. It bounds the ratio of a
        layer whose gradient vanishes; the default is the one of Charles et al.,
        Table 3.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    tensorwise.check_learning_rate(learning_rate)
    checks.check_decay("momentum", momentum)
    checks.check_non_negative("weight_decay", weight_decay)
    checks.check_non_negative("epsilon", epsilon)
    return _Lars(
        {
            tensorwise.LEARNING_RATE: learning_rate,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "epsilon": epsilon,
        },
        {"first_moment": 0.0},
    )
