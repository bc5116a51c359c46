"""Normalised FedAvg: server steps of a fixed length.

Charles et al. (2021), On Large-Cohort Training for Federated Learning.
https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms.fed_avg import build_fed_avg
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_specs import Method, register


@explicit_options(TrainingOptions)
def build_normalized_fed_avg(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_learning_rate: float,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds normalised FedAvg: the server model moves by exactly η_g per round.

    Charles et al. (2021). https://arxiv.org/abs/2106.07820

    ```
    x <- x - η_g Δ / ‖Δ‖
    ```

    with Δ the cohort's mean pseudo-gradient, ‖·‖ the L2 norm over the whole model
    and η_g = `server_learning_rate`. The step is zero if Δ is: this is the
    degenerate case.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, the length of every server step, in the unit of
        the weights; finite and greater than 0.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    checks.check_positive("server_learning_rate", server_learning_rate)
    server_optimizer = optimizers.build_normalized_sgd(server_learning_rate)
    return build_fed_avg(model_fn, client_optimizer_fn, server_optimizer, **options)


METHOD = register(
    Method(
        name="normalized_fed_avg",
        builder=build_normalized_fed_avg,
        paper=(
            "Charles et al. (2021), On Large-Cohort Training for Federated Learning"
        ),
        url="https://arxiv.org/abs/2106.07820",
    )
)
