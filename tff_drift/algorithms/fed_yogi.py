"""FedYogi: Federated Averaging with a server step of Yogi.

Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms.fed_avg import build_fed_avg
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_options import shared_options
from tff_drift.method_specs import Method, register


@explicit_options(TrainingOptions)
def build_fed_yogi(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_learning_rate: float,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    initial_accumulator: float = 0.0,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedYogi, FedAvg with Yogi as the server step.

    Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 2.
    https://arxiv.org/abs/2003.00295

    With Δ the cohort's mean pseudo-gradient, element by element and as published,
    without bias correction and with τ outside the root:

    ```
    m <- β₁ m + (1 - β₁) Δ
    v <- v - (1 - β₂) Δ² sign(v - Δ²)
    x <- x - η_g m / (√v + τ)
    ```

    | paper | argument | unit |
    |---|---|---|
    | η_g | `server_learning_rate` | per round |
    | β₁, β₂ | `beta_1`, `beta_2` | per round |
    | τ (ε in Charles et al., 2021) | `tau` | of a pseudo-gradient |
    | v₀ | `initial_accumulator` | of a squared pseudo-gradient |

    Degenerate case: as `build_fed_adam`. Yogi's v moves by (1 - β₂) Δ² at the most,
    in whichever direction Δ² lies, so that it forgets large values slowly.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, per round, finite and greater than 0.
      beta_1: Decay of the first moment m, in [0, 1).
      beta_2: Decay of the second moment v, in [0, 1).
      tau: Degree of adaptivity, greater than 0: the smaller, the more adaptive.
      initial_accumulator: The value v starts from, at least 0. Reddi et al. (2021)
        start from at least τ², Charles et al. (2021) from 0.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    checks.check_positive("server_learning_rate", server_learning_rate)
    server_optimizer = optimizers.build_yogi(
        server_learning_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        tau=tau,
        initial_accumulator=initial_accumulator,
    )
    return build_fed_avg(model_fn, client_optimizer_fn, server_optimizer, **options)


METHOD = register(
    Method(
        name="fed_yogi",
        builder=build_fed_yogi,
        paper="Reddi et al. (2021), Adaptive Federated Optimization",
        url="https://arxiv.org/abs/2003.00295",
        options=shared_options("beta_1", "beta_2", "tau", "initial_accumulator"),
    )
)
