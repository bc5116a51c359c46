"""FedNova: normalised averaging of clients that do unequal work.

Wang et al. (2020), Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization. https://arxiv.org/abs/2007.07481
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import autograph, checks, client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors

_NOT_LINEAR = (
    "client_optimizer_fn must be SGD, with or without momentum, because FedNova "
    "divides by the weight that its steps give to gradients, found {}, whose steps are "
    "not linear in them. Give a rate or tff.learning.optimizers.build_sgdm."
)


class FedNovaWork(client_works.ProximalSgd):
    """The client's half: FedAvg's or FedProx's steps, and how far they would lead.

    η‖a_i‖₁ is the way that the client's optimizer goes where every gradient is 1. It is
    gone beside the model by one number z, which starts at 0.
    """

    normalizes_update = True

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        mu: float,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_optimizer_fn, mu, **local)
        _check_linear(self._optimizer)

    def init(self, context: client_works.LocalContext) -> Any:
        """Returns the state of the local steps and that of z."""
        z = tf.zeros([], context.initial_trainable[0].dtype)
        of_z = autograph.of_user(self._optimizer.initialize)(
            tf.TensorSpec(z.shape, z.dtype)
        )
        of_z = autograph.of_user(self._optimizer.set_hparams)(of_z, context.hparams)
        return super().init(context), (of_z, z)

    def step(
        self, context: client_works.LocalContext, state: Any, step: client_works.Step
    ) -> tuple[Any, Tensors]:
        """Takes a local step, and one of z."""
        local, (of_z, z) = state
        local, trainable = super().step(context, local, step)
        of_z, z = autograph.of_user(self._optimizer.next)(
            of_z, z, 1 + tf.cast(self._mu, z.dtype) * z
        )
        return (local, (of_z, z)), trainable

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns η‖a_i‖₁ for the server."""
        del context
        _, (_, z) = local.work_state
        return client_works.ClientOutput(message=-z)


def _check_linear(optimizer: tff.learning.optimizers.Optimizer) -> None:
    """Raises unless the way of an optimizer is linear in the gradients."""

    def end(start: float, *gradients: float) -> float:
        with tf.init_scope():
            state = optimizer.initialize(tf.TensorSpec([], tf.float32))
            y = tf.constant(start)
            for gradient in gradients:
                state, y = optimizer.next(state, y, tf.constant(gradient))
            return float(y)

    # From 0 some ways grow with the gradients that do not elsewhere. The other start is
    # as far from 0 as steps lead, at any rate: the ways keep their digits.
    for start in (0.0, end(0.0, 1.0, 1.0, 1.0)):
        still = end(start, 0.0, 0.0, 0.0)
        one = end(start, 1.0, 0.0, 2.0) - still
        other = end(start, 0.0, 3.0, -1.0) - still
        both = end(start, 1.0, 3.0, 1.0) - still
        size = abs(one) + abs(other) + abs(both)
        if not np.isclose(both, one + other, rtol=0, atol=1e-4 * size):
            raise ValueError(_NOT_LINEAR.format(checks.shown(optimizer)))


@explicit_options(TrainingOptions)
def build_fed_nova(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    mu: float = 0.0,
    message_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedNova, which averages what clients do per unit of their work.

    Wang et al. (2020). https://arxiv.org/abs/2007.07481

    Where clients take different numbers K_i of local steps, FedAvg's fixed point is not
    the minimum of Σ p_i F_i: a client counts by p_i K_i. FedNova divides each client's
    Δ_i = x - y_i by the weight that its K_i steps give to gradients, and multiplies the
    mean by the cohort's mean weight:

    ```
    d_i = Δ_i / (η‖a_i‖₁),  τ_eff = Σ p_i ‖a_i‖₁
    x <- x - η_g τ_eff η Σ p_i d_i

    ‖a_i‖₁ = K_i                              SGD
             Σ_k (1 - ρ^(K_i - k)) / (1 - ρ)  SGD with momentum ρ, k = 0 … K_i - 1
             (1 - (1 - ημ)^K_i) / (ημ)        SGD on the loss with (μ/2) ‖y - x‖²
    ```

    | paper | argument |
    |---|---|
    | η, ρ | `client_optimizer_fn`: a rate, or `tff.learning.optimizers.build_sgdm` |
    | μ | `mu` |
    | η_g | the rate of `server_optimizer_fn`, any optimizer |
    | p_i | `client_weighting` |

    The division and the multiplication are one here: when all have trained, clients
    tell η‖a_i‖₁, and the cohort's mean of it comes back, before the updates (τ_eff /
    ‖a_i‖₁) Δ_i are sent. So aggregators and the server's optimizer see what they see of
    FedAvg. ‖a_i‖₁ is not worked out by the formulas: the optimizer itself takes a step
    on one more number, whose gradient is 1 + μ z. Momentum and μ can be combined.

    Degenerate case: where all K_i are equal and steps are of plain SGD, it is FedAvg,
    bit for bit.

    The type signatures and metrics are those of `build_fed_avg`, except that the state
    and the measurements of `aggregator` are `<model=..., message=...>`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`, but SGD, with or without momentum.
      server_optimizer_fn: As in `build_fed_avg`.
      mu: μ of FedProx's local loss, at least 0; by default 0, for none.
      message_aggregator: How the mean of ‖a_i‖₁ is taken, a factory such as for
        `model_aggregator`, for instance of a secure sum; by default the mean with the
        weights of the updates.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range, or `client_optimizer_fn` is an
        adaptive optimizer.
    """
    local, shared = split(options, TrainingOptions)
    return compose(
        model_fn,
        FedNovaWork(client_optimizer_fn, mu, **local),
        # No step that measures the clients' Δ_i: their mean is not what it gets.
        optimizers.as_optimizer("server_optimizer_fn", server_optimizer_fn),
        message_aggregator=message_aggregator,
        **shared,
    )


METHOD = register(
    Method(
        name="fed_nova",
        builder=build_fed_nova,
        paper=(
            "Wang et al. (2020), Tackling the Objective Inconsistency Problem in "
            "Heterogeneous Federated Optimization"
        ),
        url="https://arxiv.org/abs/2007.07481",
        scalars=(0, 1),
        client_cost=Cost(products=1),
        server_cost=Cost(repeated_sums=1),
        options=(
            Option(
                "mu",
                "non_negative",
                "Strength μ of FedProx's term in FedNova's local steps.",
                flag="fed_nova_mu",
            ),
        ),
    )
)
