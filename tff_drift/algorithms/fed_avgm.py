"""FedAvgM: Federated Averaging with heavy-ball momentum on the server.

Hsu et al. (2019), Measuring the Effects of Non-Identical Data Distribution for
Federated Visual Classification. https://arxiv.org/abs/1909.06335
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
def build_fed_avgm(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_learning_rate: float = 1.0,
    *,
    momentum: float = 0.9,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedAvgM, FedAvg with heavy-ball momentum on the server.

    Hsu et al. (2019). https://arxiv.org/abs/1909.06335

    ```
    m <- β₁ m + Δ;   x <- x - η_g m
    ```

    with Δ the cohort's mean pseudo-gradient, η_g = `server_learning_rate` and
    β₁ = `momentum`, both per round. With momentum 0 this is `build_fed_avg` with
    the same server rate, bit for bit.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, per round, finite and greater than 0.
      momentum: β₁, in [0, 1).
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    checks.check_decay("momentum", momentum)
    checks.check_positive("server_learning_rate", server_learning_rate)
    server_optimizer = tff.learning.optimizers.build_sgdm(
        float(server_learning_rate), float(momentum)
    )
    return build_fed_avg(model_fn, client_optimizer_fn, server_optimizer, **options)


METHOD = register(
    Method(
        name="fed_avgm",
        builder=build_fed_avgm,
        paper=(
            "Hsu et al. (2019), Measuring the Effects of Non-Identical Data "
            "Distribution for Federated Visual Classification"
        ),
        url="https://arxiv.org/abs/1909.06335",
        options=shared_options("momentum"),
    )
)
