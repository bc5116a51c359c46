"""FedExP: a server step that grows where clients' updates point apart.

Jhunjhunwala et al. (2023), FedExP: Speeding Up Federated Averaging via Extrapolation.
https://arxiv.org/abs/2301.09604
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.aggregators import wrapping
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.algorithms.server_steps import (
    Cohort,
    ServerResult,
    ServerState,
    ServerStep,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors, global_norm, minus, scaled


class FedExpWork(client_works.ProximalSgd):
    """The client's half: FedAvg's or FedProx's, and ‖Δ_i‖² for the server."""

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns ‖Δ_i‖², finite even where it overflows, so that it can be clipped."""
        del context
        squared_norm = tf.square(global_norm(local.update))
        return client_works.ClientOutput(
            message=tf.minimum(squared_norm, squared_norm.dtype.max)
        )


class FedExpStep(ServerStep):
    """x <- x - η_g Δ̄ with η_g = max(1, mean ‖Δ_i‖² / (2 (‖Δ̄‖² + ε))).

    It is a `server_optimizer_fn` of `build_fed_avg`, `build_fed_prox` and
    `build_scaffold` too, with the weights of the clients' updates in both means. There
    the ‖Δ_i‖² are of the updates before any clipping, while Δ̄ would be the mean of the
    clipped ones, so that the step would undo the clipping: it refuses a
    `model_aggregator` that clips. `build_fed_exp` can clip both.

    Args:
      epsilon: ε, greater than 0.
      of_messages: Whether the clients' messages are ‖Δ_i‖²; if not, the mean is that of
        `Cohort.mean_squared_drift`.
    """

    def __init__(self, epsilon: float = 1e-3, of_messages: bool = False) -> None:
        checks.check_positive("epsilon", epsilon)
        self._epsilon, self._of_messages = float(epsilon), of_messages

    def check_aggregator(self, model_aggregator: Any) -> None:
        """Raises a `ValueError` if it clips, and ‖Δ_i‖² cannot be clipped alike."""
        if not self._of_messages:
            remedy = "build_fed_exp has a message_aggregator that can clip alike."
            wrapping.refuse_clipping(model_aggregator, remedy)

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the initial model as that of the round before."""
        return collections.OrderedDict(last_model=tuple(trainable))

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        del state
        squared_norm = tf.math.divide_no_nan(
            cohort.mean_squared_drift, cohort.mean_scale
        )
        if self._of_messages:
            squared_norm = cohort.message
        of_mean = tf.square(global_norm(pseudo_gradient))
        rate = tf.maximum(1.0, squared_norm / (2 * (of_mean + self._epsilon)))
        return ServerResult(
            collections.OrderedDict(last_model=tuple(trainable)),
            minus(trainable, scaled(pseudo_gradient, rate)),
            collections.OrderedDict(extrapolation=rate),
        )

    def aggregate_model(self, state: ServerState, trainable: Tensors) -> Tensors:
        """Returns the mean of the last two models."""
        return tuple(
            (x + y) / 2 for x, y in zip(trainable, state["last_model"], strict=True)
        )

    def replace_model(self, state: ServerState, trainable: Tensors) -> ServerState:
        """Returns the state with another model as the last."""
        return collections.OrderedDict(state, last_model=tuple(trainable))


@explicit_options(TrainingOptions, tff.learning.ClientWeighting.UNIFORM)
def build_fed_exp(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    *,
    epsilon: float = 1e-3,
    mu: float = 0.0,
    message_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedExP, whose server extrapolates.

    Jhunjhunwala et al. (2023), Algorithm 1. https://arxiv.org/abs/2301.09604

    Clients train as FedAvg's and send Δ_i = x - y_i, and besides the number ‖Δ_i‖².
    With Δ̄ their mean over the M clients of the cohort S, all of one weight,

    ```
    η_g = max(1, Σ_{i in S} ‖Δ_i‖² / (2 M (‖Δ̄‖² + ε)))
    x <- x - η_g Δ̄
    ```

    and the model to deploy is the mean of the last two x, because η_g oscillates.
    `get_model_weights` returns it.

    | paper | argument | unit |
    |---|---|---|
    | η_l | the learning rate of `client_optimizer_fn` | per local step |
    | ε | `epsilon` | of a squared update |

    With weights p_i by examples both means have them, Σ p_i ‖Δ_i‖² / Σ p_i and Δ̄.

    The server needs two sums, so that both can be secure: `model_aggregator` and
    `message_aggregator`. Where the first clips, the second has to clip alike: the
    ‖Δ_i‖² are of updates that nothing has clipped yet, and with these the step would
    undo the clipping, and is refused where no `message_aggregator` is given. It starts
    at the square of ρ, and adapts twice as fast:

        clipping = tff_drift.aggregators.adaptive_clipping_factory
        model_aggregator = clipping(initial_clipping_norm=rho, learning_rate=eta)
        message_aggregator = clipping(
            initial_clipping_norm=rho**2, learning_rate=2 * eta
        )

    `mu` gives FedProx's clients, and SCAFFOLD's come from giving
    `fed_exp.FedExpStep()` to `build_scaffold` as `server_optimizer_fn`.

    Degenerate cases: for identical clients η_g = 1, which is FedAvg, bit for bit. M
    updates of one norm that are orthogonal have η_g = M / 2 (with ε = 0).

    The type signatures and metrics are those of `build_fed_avg`, except that
    `aggregator` is `<model=..., message=...>`; `finalizer` reports η_g as
    `extrapolation`, and has no hyperparameters. By default all clients have the same
    weight, as in the paper.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      epsilon: ε, greater than 0; the larger, the more cautious.
      mu: μ of FedProx's local loss, at least 0; by default 0, for none.
      message_aggregator: How the mean of ‖Δ_i‖² is taken, a factory such as for
        `model_aggregator`, for instance of a secure sum; by default the mean with the
        weights of the updates.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range, or there is a
        `server_rate_schedule`: η_g has no other rate.
    """
    local, shared = split(options, TrainingOptions)
    shared.setdefault("client_weighting", tff.learning.ClientWeighting.UNIFORM)
    if message_aggregator is None:
        remedy = (
            "Give message_aggregator one that clips the squares of the norms alike."
        )
        wrapping.refuse_clipping(shared.get("model_aggregator"), remedy)
    kind = tff.aggregators.UnweightedAggregationFactory
    if message_aggregator is None and isinstance(shared.get("model_aggregator"), kind):
        # Both means have the clients that do not count as zeros, or none.
        message_aggregator = tff.aggregators.UnweightedMeanFactory()
    return compose(
        model_fn,
        FedExpWork(client_optimizer_fn, mu, **local),
        FedExpStep(epsilon, of_messages=True),
        message_aggregator=message_aggregator,
        **shared,
    )


METHOD = register(
    Method(
        name="fed_exp",
        builder=build_fed_exp,
        paper=(
            "Jhunjhunwala et al. (2023), FedExP: Speeding Up Federated Averaging via "
            "Extrapolation"
        ),
        url="https://arxiv.org/abs/2301.09604",
        weighting="uniform",
        scalars=(0, 1),
        client_cost=Cost(sums=1, products=1),
        server_cost=Cost(repeated_sums=1, sums=3, products=3),
        options=(
            Option(
                "epsilon",
                "positive",
                "The number ε of FedExP's server step: the larger, the more cautious.",
                flag="fed_exp_epsilon",
            ),
            Option(
                "mu",
                "non_negative",
                "Strength μ of FedProx's term in FedExP's local steps.",
                flag="fed_exp_mu",
            ),
        ),
    )
)
