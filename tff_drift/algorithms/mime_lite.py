"""MimeLite: Mime without the correction of the local gradients.

Karimireddy et al. (2020), Mime: Mimicking Centralized Stochastic Algorithms in
Federated Learning, Algorithm 1. https://arxiv.org/abs/2008.03606
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import client_works, optimizers
from tff_drift.algorithms.mime import MimeLiteWork, compose_mime
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_specs import Cost, Method, register


@explicit_options(TrainingOptions)
def build_mime_lite(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    message_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds MimeLite, whose clients train with the server's momentum, held fixed.

    Karimireddy et al. (2020), Algorithm 1. https://arxiv.org/abs/2008.03606

    ```
    client:  y_i <- y_i - η U(g_i(y_i), s)
    server:  s <- V(Σ p_i ∇f_i(x), s);  x <- ServerOpt(x, Σ p_i (x - y_i))
    ```

    with the symbols of `build_mime`: the base optimizer (U, V) and η are
    `client_optimizer_fn`, p_i is `client_weighting`. A client sends the gradient
    ∇f_i(x) of its whole loss besides its update.

    Degenerate case: with SGD as the base, which has no statistics, it is FedAvg, bit
    for bit. It trains the models of `tff.learning.algorithms.build_weighted_mime_lite`.

    The type signatures and metrics are those of `build_fed_avg`, except that
    `aggregator` is `<model=..., message=...>`. The traffic is n down and the size of s,
    and 2n up, for n weights of one float dtype. Each example costs two gradients, of
    which FedAvg takes one.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: The base optimizer, as in `build_fed_avg`.
      server_optimizer_fn: As in `build_fed_avg`.
      message_aggregator: How the mean of the ∇f_i(x) is taken, a factory such as for
        `model_aggregator`; by default the mean with the weights of the updates.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    return compose_mime(
        MimeLiteWork,
        model_fn,
        client_optimizer_fn,
        server_optimizer_fn,
        message_aggregator,
        options,
    )


METHOD = register(
    Method(
        name="mime_lite",
        builder=build_mime_lite,
        paper=(
            "Karimireddy et al. (2020), Mime: Mimicking Centralized Stochastic "
            "Algorithms in Federated Learning"
        ),
        url="https://arxiv.org/abs/2008.03606",
        traffic=(1, 2),
        second_gradients=True,
        client_cost=Cost(repeated_sums=1, repeated_products=1, products=1),
        server_cost=Cost(repeated_sums=2),
    )
)
