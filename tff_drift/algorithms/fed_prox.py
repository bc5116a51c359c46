"""FedProx: federated averaging with a proximal term.

Li et al. (2020), Federated Optimization in Heterogeneous Networks, Algorithm 2.
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.method_specs import Method, Option, register


@explicit_options(TrainingOptions)
def build_fed_prox(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    mu: float = 2e-4,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedProx, which pulls local training back to the server's model.

    Li et al. (2020), Algorithm 2. https://arxiv.org/abs/1812.06127

    Each client i of the cohort minimises f_i(y) + (μ / 2) ‖y - x‖² from the server
    model x,

    ```
    y_i <- x;  for every minibatch:  y_i <- y_i - η (g(y_i) + μ (y_i - x))
    Δ = Σ p_i (x - y_i) / Σ p_i;   x <- ServerOpt(x, η_g, Δ)
    ```

    with η the learning rate of `client_optimizer_fn`, per local step; μ = `mu`; p_i by
    `client_weighting`. The rest is FedAvg's: with μ = 0 it is FedAvg, bit for bit. The
    term enters the gradient, so that any client optimizer can be used.

    The type signatures and metrics are those of `build_fed_avg`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_optimizer_fn: As in `build_fed_avg`.
      mu: μ, finite and at least 0. The default is that of Yao et al. (2019,
        https://arxiv.org/abs/1910.08234); Li et al. choose among 0.001 … 1 by task.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If a rate is not a finite positive number, `mu` is not finite or
        below 0, or a schedule has no learning rate to act on.
    """
    local, shared = split(options, TrainingOptions)
    return compose(
        model_fn,
        client_works.ProximalSgd(client_optimizer_fn, mu, **local),
        server_optimizer_fn,
        **shared,
    )


METHOD = register(
    Method(
        name="fed_prox",
        builder=build_fed_prox,
        paper="Li et al. (2020), Federated Optimization in Heterogeneous Networks",
        url="https://arxiv.org/abs/1812.06127",
        options=(
            Option(
                "mu",
                "non_negative",
                "Strength μ of FedProx's proximal term.",
                flag="fed_prox_mu",
            ),
        ),
    )
)
