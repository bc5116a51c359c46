"""Local training with a proximal term.

Li et al. (2020), Federated Optimization in Heterogeneous Networks.
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

from tff_drift import checks, optimizers
from tff_drift.client_works.local_sgd import LocalSgd
from tff_drift.client_works.local_work import LocalContext


class ProximalSgd(LocalSgd):
    """Local training on f_i(y) + (μ / 2) ‖y - x‖²: y <- y - η (g(y) + μ (y - x)).

    The proximal term is clipped with the gradient. With μ = 0 it is `LocalSgd`, bit
    for bit.

    Args:
      client_optimizer_fn: As in `LocalSgd`.
      mu: μ, at least 0.
      client_weight_decay: See `LocalOptions`.
      gradient_clipping_norm: See `LocalOptions`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        mu: float,
        client_weight_decay: float = 0.0,
        gradient_clipping_norm: float | None = None,
    ) -> None:
        super().__init__(
            client_optimizer_fn, client_weight_decay, gradient_clipping_norm
        )
        checks.check_non_negative("mu", mu)
        self._mu = float(mu)

    def proximal_strength(self, context: LocalContext) -> float:
        """Returns μ."""
        del context
        return self._mu
