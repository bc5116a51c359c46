"""FedMeta over UGA: both halves of Yao et al.'s method.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, Algorithm 2. https://arxiv.org/abs/1910.08234
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms import fed_meta, uga
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_options import shared_options
from tff_drift.method_specs import Method, register


@explicit_options(TrainingOptions)
def build_fed_meta_uga(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    server_optimizer_fn: optimizers.OptimizerOrRate,
    meta_data: tf.data.Dataset,
    *,
    local_epochs: int,
    meta_learning_rate: float | None = None,
    meta_epochs: int = 1,
    meta_batch_size: int | None = None,
    meta_rate_decay: float | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedMeta over UGA.

    Yao et al. (2019), Algorithm 2. https://arxiv.org/abs/1910.08234

    ```
    ω <- a round of UGA
    ω <- ω - η_meta ∇L(ω; D_meta)
    ```

    with D_meta = `meta_data` and η_meta = `meta_learning_rate`, per round. With
    η_meta = 0 it is UGA, bit for bit. `add_meta_step` tells the type signatures and
    metrics.

    Args:
      model_fn: As in `build_uga`.
      client_learning_rate: As in `build_uga`.
      server_optimizer_fn: As in `build_uga`.
      meta_data: As in `add_meta_step`.
      local_epochs: As in `build_uga`.
      meta_learning_rate: η_meta, finite and at least 0. By default the clients' rate,
        as in the paper.
      meta_epochs: As in `add_meta_step`.
      meta_batch_size: As in `add_meta_step`.
      meta_rate_decay: The factor of η_meta per round, in (0, 1]. By default η_meta
        follows `client_rate_schedule`.
      **options: As in `build_uga`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    checks.check_positive("client_learning_rate", client_learning_rate)
    step = fed_meta.step_after_clients(
        model_fn,
        meta_data,
        meta_learning_rate,
        meta_epochs,
        meta_batch_size,
        meta_rate_decay,
        client_rate=client_learning_rate,
        options=options,
    )
    process = uga.build_uga(
        model_fn,
        client_learning_rate,
        server_optimizer_fn,
        local_epochs=local_epochs,
        **options,
    )
    return step.after(process)


METHOD = register(
    Method(
        name="fed_meta_uga",
        builder=build_fed_meta_uga,
        paper=(
            "Yao et al. (2019), Federated Learning with Unbiased Gradient "
            "Aggregation and Controllable Meta Updating"
        ),
        url="https://arxiv.org/abs/1910.08234",
        sends_gradients=True,
        second_gradients=True,
        needs=("local_epochs", "meta_data"),
        options=shared_options(
            "meta_learning_rate", "meta_epochs", "meta_batch_size", "meta_rate_decay"
        ),
    )
)
