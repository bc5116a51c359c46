"""SCAFFOLD-M: SCAFFOLD with client-level momentum.

Cheng et al. (2023), Momentum Benefits Non-IID Federated Learning Simply and Provably.
https://arxiv.org/abs/2306.16504
"""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import aggregators, checks, client_works, optimizers
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.fed_cm import ClientMomentumStep, FedCmWork
from tff_drift.algorithms.options import (
    StatefulOptions,
    explicit_options,
    split,
    total_weight,
    weighs_by_examples,
)
from tff_drift.algorithms.server_steps import OptimizerStep
from tff_drift.method_specs import Cost, Method, Option, register

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class ScaffoldMomentumWork(FedCmWork):
    """The client's half: y <- y - η (β (g(y) - c_i + c) + (1 - β) m); a new c_i."""

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns c_i = 0."""
        return collections.OrderedDict(control_variate=zeros)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns β (c - c_i) + (1 - β) m."""
        c = context.server_message["control_variate"]
        c_i = context.client_state["control_variate"]
        m, beta = context.server_message["step"], self.gradient_share
        return beta * (c - c_i) + (1 - beta) * m

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns c_i⁺, the mean of the local gradients, and c_i⁺ - c_i."""
        c = context.server_message["control_variate"]
        m, beta = context.server_message["step"], self.gradient_share
        rate = tf.cast(context.hparams[_RATE], c.dtype)
        # (x - y_i) / (K_i η): the mean of the directions taken.
        mean_direction = tf.math.divide_no_nan(
            local.pseudo_gradient, local.num_steps * rate
        )
        change = (mean_direction - (1 - beta) * m) / beta - c
        new_c_i = context.client_state["control_variate"] + change
        return client_works.ClientOutput(
            collections.OrderedDict(control_variate=new_c_i), message=change
        )


class WeighedScaffoldMomentumWork(ScaffoldMomentumWork):
    """SCAFFOLD-M's work for clients weighted by n_i, which send n_i (c_i⁺ - c_i)."""

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns c_i⁺ and n_i (c_i⁺ - c_i)."""
        output = super().update_client_state(context, local)
        return output._replace(message=output.message * local.num_examples)


@explicit_options(StatefulOptions)
def build_scaffold_momentum(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    num_clients: int,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    beta: float = 0.1,
    total_examples: float | None = None,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds SCAFFOLD-M, SCAFFOLD whose clients step along the last round as well.

    Cheng et al. (2023). https://arxiv.org/abs/2306.16504

    With Δ̄ the mean of the cohort's Δ_i = x - y_i; m, c and all c_i are 0 at first:

    ```
    client:  y_i <- y_i - η (β (g_i(y_i) - c_i + c) + (1 - β) m)        K times
             c_i⁺ = mean of the K gradients g_i(y_i)
    server:  m <- Δ̄ / (η K)
             c <- c + (1/N) Σ (c_i⁺ - c_i)
             x <- ServerOpt(x, Δ̄)
    ```

    | paper | argument | unit |
    |---|---|---|
    | η | `client_learning_rate` | per local step |
    | β | `beta` | |
    | N | `num_clients` | clients |
    | g^r | m, which the server keeps | of a gradient |
    | γ | η K times the rate of `server_optimizer_fn` | per round |

    The paper's γ multiplies m; the rate here multiplies Δ̄, as in every other builder.
    c_i⁺ is worked out of the way that the client went. K and the weights are the same
    for all in the paper; where the K_i of a cohort differ, m takes their mean. With
    weights p_i by examples Δ̄, this mean and c have them: c is the weighted mean of all
    c_i, and the minimum that of Σ p_i f_i.

    It is not SCAFFOLD/m (`build_scaffold_m`), which has no momentum.

    Degenerate cases: with β = 1 it is `build_scaffold` with option II, bit for bit;
    with variates that stay 0, `build_fed_cm` with α = β.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and `C = <control_variate=float32[n]>`; `finalizer` reports ‖m‖
    as `momentum_norm`. The traffic is 3n down and 2n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_learning_rate: η of the local steps, which are of plain SGD: only then is
        Δ_i / (η K) a mean of local directions.
      num_clients: N, the number of all clients, not of those in a round.
      server_optimizer_fn: As in `build_fed_avg`.
      beta: β, above 0, at most 1.
      total_examples: With client_weighting NUM_EXAMPLES, the sum over *all* clients
        of the examples of one round, epochs included: the
        weight of all c_i in c. Needed exactly then.
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    client_works.check_sgd_rate(client_learning_rate)
    total = total_weight(shared, num_clients, total_examples)
    checks.check_fraction("beta", beta)
    work_class = ScaffoldMomentumWork
    if weighs_by_examples(shared):
        work_class = WeighedScaffoldMomentumWork
    server_optimizer = optimizers.as_optimizer(
        "server_optimizer_fn", server_optimizer_fn
    )
    return compose(
        model_fn,
        work_class(client_learning_rate, beta, **local),
        ClientMomentumStep(OptimizerStep(server_optimizer)),
        control_variate_factory=aggregators.ControlVariateFactory(total),
        num_clients=num_clients,
        **shared,
    )


METHOD = register(
    Method(
        name="scaffold_momentum",
        builder=build_scaffold_momentum,
        paper=(
            "Cheng et al. (2023), Momentum Benefits Non-IID Federated Learning Simply "
            "and Provably"
        ),
        url="https://arxiv.org/abs/2306.16504",
        weighting="uniform",
        keeps_client_states=True,
        traffic=(3, 2),
        client_cost=Cost(repeated_sums=1, repeated_products=1, sums=5, products=5),
        server_cost=Cost(repeated_sums=2, sums=1, products=2),
        needs=("num_clients", "total_examples"),
        options=(
            Option(
                "beta",
                "fraction",
                "Weight β of the corrected gradient in SCAFFOLD-M's local steps.",
                flag="scaffold_beta",
            ),
        ),
    )
)
