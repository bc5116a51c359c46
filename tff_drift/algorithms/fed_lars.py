"""FedLARS: Federated Averaging with layer-wise rate scaling on the server.

Charles et al. (2021), On Large-Cohort Training for Federated Learning, section
5.2. https://arxiv.org/abs/2106.07820

You et al. (2017), Large Batch Training of Convolutional Networks.
https://arxiv.org/abs/1708.03888
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
def build_fed_lars(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_learning_rate: float,
    *,
    momentum: float = 0.9,
    server_weight_decay: float = 0.0,
    epsilon: float = 1e-3,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedLARS, FedAvg with LARS as the server step.

    Charles et al. (2021), section 5.2. https://arxiv.org/abs/2106.07820

    With Δ the cohort's mean pseudo-gradient, for every layer l on its own:

    ```
    m_l <- β₁ m_l + (1 - β₁) (Δ_l + λ x_l)
    x_l <- x_l - η_g (‖x_l‖ / (‖m_l‖ + ε)) m_l
    ```

    with η_g = `server_learning_rate`, β₁ = `momentum`, λ = `server_weight_decay` and
    ε = `epsilon`. A layer is one weight tensor. Where x_l or m_l is zero the ratio
    is 1, as for a bias that starts at zero: this is the degenerate case, FedAvgM
    with momentum (1 - β₁) Δ.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, per round, finite and greater than 0: about the
        share of its norm by which a layer moves in a round.
      momentum: β₁, per round, in [0, 1).
      server_weight_decay: λ of the server's step, at least 0.
      epsilon: ε, at least 0; bounds the ratio of a layer whose update vanishes.
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
    server_optimizer = optimizers.build_lars(
        server_learning_rate,
        momentum=momentum,
        weight_decay=server_weight_decay,
        epsilon=epsilon,
    )
    return build_fed_avg(model_fn, client_optimizer_fn, server_optimizer, **options)


METHOD = register(
    Method(
        name="fed_lars",
        builder=build_fed_lars,
        paper=(
            "Charles et al. (2021), On Large-Cohort Training for Federated Learning"
        ),
        url="https://arxiv.org/abs/2106.07820",
        options=shared_options("momentum", "server_weight_decay", "epsilon"),
    )
)
