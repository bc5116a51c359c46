"""FedCM: federated averaging with client-level momentum.

Xu et al. (2021), FedCM: Federated Learning with Client-level Momentum, Algorithm 2.
https://arxiv.org/abs/2106.10874
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.algorithms.server_steps import (
    Cohort,
    OptimizerStep,
    ServerResult,
    ServerState,
    StepAround,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors, global_norm, to_vector


class FedCmWork(client_works.LocalSgd):
    """The client's half: y <- y - η (α g(y) + (1 - α) m)."""

    def __init__(
        self,
        client_learning_rate: float,
        share: float,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_learning_rate, **local)
        self.gradient_share = float(share)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns (1 - α) m."""
        return (1 - self.gradient_share) * context.server_message


class ClientMomentumStep(StepAround):
    """Another step, and beside it m <- Δ̄ / (η K), which the clients receive.

    Where the clients' K_i differ, K is their mean, with the weights of Δ̄: then m is a
    mean of the clients' directions, and no longer than the longest of them.

    Args:
      step: The step that moves the model.
    """

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns m = 0."""
        return collections.OrderedDict(
            step=self._step.initial_state(trainable),
            momentum=tuple(tf.zeros_like(tensor) for tensor in trainable),
        )

    def message(self, state: ServerState) -> Any:
        """Returns m as one vector."""
        return to_vector(tuple(state["momentum"]))

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the inner step and renews m."""
        result = self.next_of_step(state, trainable, pseudo_gradient, cohort)
        dtype = cohort.mean_steps.dtype
        path = cohort.mean_steps * tf.cast(cohort.learning_rate, dtype)
        path = tf.math.divide_no_nan(path, tf.cast(cohort.mean_scale, dtype))
        momentum = tuple(tf.math.divide_no_nan(g, path) for g in pseudo_gradient)
        measurements = collections.OrderedDict(result.measurements)
        measurements["momentum_norm"] = global_norm(momentum)
        return ServerResult(
            collections.OrderedDict(step=result.state, momentum=momentum),
            result.trainable,
            measurements,
        )


@explicit_options(TrainingOptions, tff.learning.ClientWeighting.UNIFORM)
def build_fed_cm(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    alpha: float = 0.1,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedCM, whose clients step along the last round's direction as well.

    Xu et al. (2021), Algorithm 2. https://arxiv.org/abs/2106.10874

    With Δ̄ the mean of the cohort's Δ_i = x - y_i, and m = 0 at first,

    ```
    client:  y_i <- y_i - η (α g_i(y_i) + (1 - α) m)        K times
    server:  m <- Δ̄ / (η K)
             x <- ServerOpt(x, Δ̄)
    ```

    | paper | argument | unit |
    |---|---|---|
    | η_l | `client_learning_rate` | per local step |
    | α | `alpha` | |
    | Δ_t | m, which the server keeps | of a gradient |
    | η_g | η K times the rate of `server_optimizer_fn` | per round |

    The paper's η_g multiplies m; the rate here multiplies Δ̄, as in every other
    builder, so that 1 takes the mean of the clients' models. K and the weights are the
    same for all in the paper. Where the K_i of a cohort differ, K is their mean, and
    with weights p_i by examples both means have them: m = Σ p_i Δ_i / (η Σ p_i K_i).

    Degenerate case: with α = 1 it is FedAvg with the same server optimizer, bit for
    bit. Under a constant gradient, m is α of it after the first round, because the
    paper starts at m = 0, and 1 - (1 - α)^r of it after r rounds.

    The type signatures and metrics are those of `build_fed_avg`; `finalizer` reports
    ‖m‖ as `momentum_norm`. The traffic is 2n down and n up, for n weights of one float
    dtype. By default all clients have the same weight, as in the paper.

    Args:
      model_fn: As in `build_fed_avg`.
      client_learning_rate: η of the local steps, which are of plain SGD: only then is
        Δ_i / (η K) a mean of local directions.
      server_optimizer_fn: As in `build_fed_avg`.
      alpha: α, above 0, at most 1; 0.1 is what the paper uses.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, TrainingOptions)
    client_works.check_sgd_rate(client_learning_rate)
    checks.check_fraction("alpha", alpha)
    shared.setdefault("client_weighting", tff.learning.ClientWeighting.UNIFORM)
    server_optimizer = optimizers.as_optimizer(
        "server_optimizer_fn", server_optimizer_fn
    )
    return compose(
        model_fn,
        FedCmWork(client_learning_rate, alpha, **local),
        ClientMomentumStep(OptimizerStep(server_optimizer)),
        **shared,
    )


METHOD = register(
    Method(
        name="fed_cm",
        builder=build_fed_cm,
        paper=(
            "Xu et al. (2021), FedCM: Federated Learning with Client-level Momentum"
        ),
        url="https://arxiv.org/abs/2106.10874",
        weighting="uniform",
        traffic=(2, 1),
        client_cost=Cost(repeated_sums=1, repeated_products=1, products=1),
        server_cost=Cost(repeated_sums=1, products=1),
        options=(
            Option(
                "alpha",
                "fraction",
                "The weight of a client's own gradient in FedCM's local steps.",
                flag="fed_cm_alpha",
            ),
        ),
    )
)
