"""SCAFFOLD/m: SCAFFOLD whose clients send their models alone.

Varno et al. (2022), AdaBest: Minimizing Client Drift in Federated Learning via
Adaptive Bias Estimation, Algorithm 1. https://arxiv.org/abs/2204.13170
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import client_works
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.options import (
    StatefulOptions,
    explicit_options,
    split,
    total_weight,
)
from tff_drift.algorithms.server_steps import (
    Cohort,
    ServerResult,
    ServerState,
    ServerStep,
)
from tff_drift.method_specs import Cost, Method, register
from tff_drift.tensors import Tensors, global_norm, minus, to_vector

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class ScaffoldMWork(client_works.LocalSgd):
    """The client's half: θ_i <- θ_i - η (g - h_i + h), then a new h_i."""

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns h_i = 0."""
        return collections.OrderedDict(control_variate=zeros)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns h - h_i."""
        return context.server_message - context.client_state["control_variate"]

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns h_i <- h_i - h + g_i / (K_i η)."""
        h, h_i = context.server_message, context.client_state["control_variate"]
        rate = tf.cast(context.hparams[_RATE], h.dtype)
        mean_direction = tf.math.divide_no_nan(
            local.pseudo_gradient, local.num_steps * rate
        )
        return client_works.ClientOutput(
            collections.OrderedDict(control_variate=h_i - h + mean_direction)
        )


class ScaffoldMStep(ServerStep):
    """The server's half: h from the cohort's mean pseudo-gradient; θ = θ̄.

    Args:
      num_clients: N. For weighted clients the sum of the weights of all clients.
    """

    has_control_variate = True

    def __init__(self, num_clients: float) -> None:
        self._num_clients = num_clients

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns h = 0."""
        return collections.OrderedDict(
            control_variate=tuple(tf.zeros_like(tensor) for tensor in trainable)
        )

    def control_variate(self, state: ServerState) -> Tensors:
        """Returns h."""
        return tuple(state["control_variate"])

    def message(self, state: ServerState) -> Any:
        """Returns h as one vector."""
        return to_vector(self.control_variate(state))

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        dtype = cohort.mean_steps.dtype
        share = tf.cast(cohort.total_weight, dtype) / self._num_clients
        # The clients' K_i may differ; the server knows their mean.
        mean_path = cohort.mean_steps * tf.cast(cohort.learning_rate, dtype)
        scale = tf.math.divide_no_nan(
            share * tf.cast(cohort.mean_scale, dtype), mean_path
        )
        h = tuple(
            (1 - share) * h + scale * g
            for h, g in zip(state["control_variate"], pseudo_gradient, strict=True)
        )
        return ServerResult(
            collections.OrderedDict(control_variate=h),
            minus(trainable, pseudo_gradient),
            collections.OrderedDict(control_variate_norm=global_norm(h)),
        )


@explicit_options(StatefulOptions)
def build_scaffold_m(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    num_clients: int,
    *,
    total_examples: float | None = None,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds SCAFFOLD/m, which saves a quarter of SCAFFOLD's traffic.

    Varno et al. (2022), Algorithm 1. https://arxiv.org/abs/2204.13170

    With θ the cloud model, θ̄ the mean of the cohort's models, M the cohort's size,
    N the number of all clients, and g_i = θ - θ_i:

    ```
    client:  θ_i <- θ_i - η (∇L_i(θ_i) - h_i + h)        K times
             h_i <- h_i - h + g_i / (K η)
    server:  h <- ((N - M) / N) h + (M / (K η N)) (θ - θ̄)
             θ <- θ̄
    ```

    η is `client_learning_rate` and N `num_clients`. It equals `build_scaffold` with
    option II, and h is the mean of all N h_i, as long as the clients of each round
    take equally many steps (K may change from round to round); how many clients take
    part does not matter. Where the K_i of a round differ, the server uses their mean
    for K, and h only approximates the mean of the h_i.

    The paper has equal weights. With weights p_i by examples θ̄, K and the share M / N
    have them: K is Σ p_i K_i / Σ p_i, so that (θ - θ̄) / (K η) stays a mean of the
    clients' directions, however unequal the K_i, and h is the weighted mean of all h_i
    where the K_i are equal.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and `C = <control_variate=float32[n]>`; `finalizer` reports
    `control_variate_norm`, ‖h‖. The traffic is 2n down and n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_learning_rate: η of the local steps, which are of plain SGD: only then
        is g_i / (K η) the mean of the local gradients. `build_scaffold` with option
        I takes any client optimizer.
      num_clients: N, the number of all clients, not of those in a round.
      total_examples: With client_weighting NUM_EXAMPLES, the sum over *all* clients
        of the examples of one round, epochs included: a cohort's share of it
        stands for M / N. Needed exactly then.
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    client_works.check_sgd_rate(client_learning_rate)
    return compose(
        model_fn,
        ScaffoldMWork(client_learning_rate, **local),
        ScaffoldMStep(total_weight(shared, num_clients, total_examples)),
        num_clients=num_clients,
        **shared,
    )


METHOD = register(
    Method(
        name="scaffold_m",
        builder=build_scaffold_m,
        paper=(
            "Varno et al. (2022), AdaBest: Minimizing Client Drift in Federated "
            "Learning via Adaptive Bias Estimation"
        ),
        url="https://arxiv.org/abs/2204.13170",
        weighting="uniform",
        keeps_client_states=True,
        traffic=(2, 1),
        client_cost=Cost(repeated_sums=2, sums=2, products=2),
        server_cost=Cost(repeated_sums=1, sums=2, products=2),
        needs=("num_clients", "total_examples"),
    )
)
