"""FedMeta: FedAvg and a step on the server's own data after every round.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, section 3.2. https://arxiv.org/abs/1910.08234
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms import meta_step
from tff_drift.algorithms.fed_avg import build_fed_avg
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_options import shared_options
from tff_drift.method_specs import Method, register


@explicit_options(TrainingOptions)
def build_fed_meta(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    meta_data: tf.data.Dataset,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    meta_learning_rate: float | None = None,
    meta_epochs: int = 1,
    meta_batch_size: int | None = None,
    meta_rate_decay: float | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedMeta over FedAvg.

    Yao et al. (2019), section 3.2. https://arxiv.org/abs/1910.08234

    ```
    ω <- a round of FedAvg
    ω <- ω - η_meta ∇L(ω; D_meta)
    ```

    with D_meta = `meta_data` and η_meta = `meta_learning_rate`, per round. With
    η_meta = 0 it is FedAvg, bit for bit. `add_meta_step` adds the step to any other
    method, and documents the type signatures and metrics.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      meta_data: As in `add_meta_step`.
      server_optimizer_fn: As in `build_fed_avg`.
      meta_learning_rate: η_meta, finite and at least 0. By default the clients' rate,
        as in the paper: `client_optimizer_fn` is a number then.
      meta_epochs: As in `add_meta_step`.
      meta_batch_size: As in `add_meta_step`.
      meta_rate_decay: The factor of η_meta per round, in (0, 1]. By default η_meta
        follows `client_rate_schedule`.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range, or `meta_learning_rate` is not
        given with an optimizer for the clients; the message names it.
    """
    client_optimizer = optimizers.as_optimizer(
        "client_optimizer_fn", client_optimizer_fn
    )
    step = step_after_clients(
        model_fn,
        meta_data,
        meta_learning_rate,
        meta_epochs,
        meta_batch_size,
        meta_rate_decay,
        client_rate=client_optimizer_fn,
        options=options,
    )
    return step.after(
        build_fed_avg(model_fn, client_optimizer, server_optimizer_fn, **options)
    )


def step_after_clients(
    model_fn: client_works.ModelFn,
    meta_data: tf.data.Dataset,
    learning_rate: float | None,
    epochs: int,
    batch_size: int | None,
    rate_decay: float | None,
    *,
    client_rate: optimizers.OptimizerOrRate,
    options: TrainingOptions,
) -> meta_step.MetaStep:
    """Returns the meta step whose rate and schedule are by default the clients'.

    Args:
      model_fn: As in `add_meta_step`, as the next four.
      meta_data: D_meta.
      learning_rate: η_meta, or `None` for the default.
      epochs: `meta_epochs`.
      batch_size: `meta_batch_size`.
      rate_decay: The factor of η_meta per round, or `None` for the default.
      client_rate: The clients' rate, or an optimizer, whose rate is unknown.
      options: The builder's, of which `client_rate_schedule` counts.

    Raises:
      TypeError: As in `add_meta_step`, or if `meta_rate_decay` is not a number.
      ValueError: As in `add_meta_step`, if `meta_rate_decay` is out of its range, or
        there is neither rate.
    """
    schedule = options.get("client_rate_schedule")
    if schedule is not None:  # The meta step knows it by another name.
        optimizers.as_schedule(schedule, "client_rate_schedule")
    if rate_decay is not None:
        checks.check_fraction("meta_rate_decay", rate_decay)
        schedule = optimizers.per_round_factor(rate_decay)
    if learning_rate is None:
        if isinstance(client_rate, tff.learning.optimizers.Optimizer):
            raise ValueError(
                "meta_learning_rate must be given where client_optimizer_fn is an "
                "optimizer, whose rate is not known here, found None."
            )
        learning_rate = client_rate
    return meta_step.MetaStep(
        model_fn, meta_data, learning_rate, epochs, batch_size, schedule
    )


METHOD = register(
    Method(
        name="fed_meta",
        builder=build_fed_meta,
        paper=(
            "Yao et al. (2019), Federated Learning with Unbiased Gradient "
            "Aggregation and Controllable Meta Updating"
        ),
        url="https://arxiv.org/abs/1910.08234",
        needs=("meta_data",),
        options=shared_options(
            "meta_learning_rate", "meta_epochs", "meta_batch_size", "meta_rate_decay"
        ),
    )
)
