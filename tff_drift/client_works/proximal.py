"""Local training with a proximal term.

Li et al. (2020), Federated Optimization in Heterogeneous Networks.
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.client_works.local_work import LocalContext, LocalSgd, Step
from tff_drift.tensors import Tensors


class ProximalSgd(LocalSgd):
    """Local training on f_i(y) + (μ / 2) ‖y - x‖²: y <- y - η (g(y) + μ (y - x)).

    With μ = 0 it is `LocalSgd`, bit for bit.

    Args:
      optimizer: The `tff.learning.optimizers.Optimizer` of the local steps.
      mu: μ, at least 0.

    Raises:
      TypeError: If `mu` is not a number.
      ValueError: If `mu` is not finite or below 0.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer, mu: float) -> None:
        super().__init__(optimizer)
        checks.check_non_negative("mu", mu)
        self._mu = float(mu)

    def correct(self, context: LocalContext, step: Step) -> Tensors:
        """Returns g(y) + μ (y - x)."""
        return tuple(
            gradient + tf.cast(self._mu, gradient.dtype) * (local - server)
            for gradient, local, server in zip(
                step.gradients, step.trainable, context.initial_trainable
            )
        )
