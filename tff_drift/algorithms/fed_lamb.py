"""FedLamb: Federated Averaging with layer-wise Adam steps on the server.

Charles et al. (2021), On Large-Cohort Training for Federated Learning, section
5.2. https://arxiv.org/abs/2106.07820

You et al. (2020), Large Batch Optimization for Deep Learning: Training BERT in 76
minutes. https://arxiv.org/abs/1904.00962
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
def build_fed_lamb(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_learning_rate: float,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    server_weight_decay: float = 0.0,
    epsilon: float = 0.0,
    initial_accumulator: float = 0.0,
    bias_correction: bool = False,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedLamb, FedAvg with LAMB as the server step.

    Charles et al. (2021), section 5.2. https://arxiv.org/abs/2106.07820

    With Δ the cohort's mean pseudo-gradient, for every layer l on its own:

    ```
    m_l <- β₁ m_l + (1 - β₁) Δ_l
    v_l <- β₂ v_l + (1 - β₂) Δ_l²
    u_l <- m_l / (√v_l + τ) + λ x_l
    x_l <- x_l - η_g (‖x_l‖ / (‖u_l‖ + ε)) u_l
    ```

    with η_g = `server_learning_rate`, β₁ = `beta_1`, β₂ = `beta_2`, τ = `tau`,
    λ = `server_weight_decay` and ε = `epsilon`. A layer is one weight tensor. Where x_l
    or u_l is zero the ratio is 1, as for a bias that starts at zero: this is the
    degenerate case, the step of `build_fed_adam`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, per round, finite and greater than 0: about the
        share of its norm by which a layer moves in a round.
      beta_1: β₁, decay of the first moment per round, in [0, 1).
      beta_2: β₂, decay of the second moment per round, in [0, 1).
      tau: τ, degree of adaptivity, greater than 0.
      server_weight_decay: λ of the server's step, at least 0.
      epsilon: ε, at least 0.
      initial_accumulator: The value v starts from, at least 0.
      bias_correction: Whether the moments are corrected for their bias towards 0, as in
        You et al. (2020), whose LAMB Charles et al. cite. Not together with
        `initial_accumulator`.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    checks.check_non_negative("server_weight_decay", server_weight_decay)
    checks.check_positive("server_learning_rate", server_learning_rate)
    server_optimizer = optimizers.build_lamb(
        server_learning_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        tau=tau,
        weight_decay=server_weight_decay,
        epsilon=epsilon,
        initial_accumulator=initial_accumulator,
        bias_correction=bias_correction,
    )
    return build_fed_avg(model_fn, client_optimizer_fn, server_optimizer, **options)


METHOD = register(
    Method(
        name="fed_lamb",
        builder=build_fed_lamb,
        paper=(
            "Charles et al. (2021), On Large-Cohort Training for Federated Learning"
        ),
        url="https://arxiv.org/abs/2106.07820",
        options=shared_options(
            "beta_1",
            "beta_2",
            "tau",
            "server_weight_decay",
            "epsilon",
            "initial_accumulator",
            "bias_correction",
        ),
    )
)
