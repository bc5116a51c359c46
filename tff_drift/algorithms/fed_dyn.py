"""FedDyn: federated learning with dynamic regularisation.

Acar et al. (2021), Federated Learning Based on Dynamic Regularization.
https://arxiv.org/abs/2111.04263

In the form of Varno et al. (2022), AdaBest, Algorithm 1.
https://arxiv.org/abs/2204.13170
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.options import (
    StatefulOptions,
    explicit_options,
    split,
    total_weight,
    weighs_by_examples,
)
from tff_drift.algorithms.server_steps import (
    Cohort,
    CorrectedCloudStep,
    ServerResult,
    ServerState,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors, global_norm, minus


class FedDynWork(client_works.LocalSgd):
    """The client's half: θ_i <- θ_i - η (g - h_i - μ (θ - θ_i)), then a new h_i."""

    # The published code hands μ θ_i to the optimizer as weight decay, which acts after
    # clipping (`utils_general.py`, lines 190 and 219-225, in
    # https://github.com/alpemreacar/FedDyn).
    clips_without_pull = True

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        mu: float,
        mean_examples: float | None,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_optimizer_fn, **local)
        checks.check_non_negative("mu", mu)
        self._mu = mu
        self._mean_examples = mean_examples
        self.needs_num_examples = mean_examples is not None

    def proximal_strength(self, context: client_works.LocalContext) -> Any:
        """Returns μ, or the client's μ n̄ / n_i."""
        if self._mean_examples is None:
            return self._mu
        dtype = context.initial_trainable[0].dtype
        examples = tf.cast(context.num_examples, dtype)
        return tf.math.divide_no_nan(
            tf.constant(self._mu * self._mean_examples, dtype), examples
        )

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns h_i = 0."""
        return collections.OrderedDict(gradient_estimate=zeros)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns -h_i."""
        return -context.client_state["gradient_estimate"]

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns h_i <- h_i + μ g_i."""
        h_i = context.client_state["gradient_estimate"]
        mu = self.proximal_strength(context)
        return client_works.ClientOutput(
            collections.OrderedDict(gradient_estimate=h_i + mu * local.pseudo_gradient)
        )


class FedDynStep(CorrectedCloudStep):
    """The server's half: h <- h + (M/N) (θ - θ̄), θ <- θ̄ - h.

    Args:
      num_clients: N. For weighted clients the sum of the weights of all clients.
    """

    def __init__(self, num_clients: float) -> None:
        self._num_clients = num_clients

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns h = 0 and the aggregate model θ̄⁰ = θ⁰."""
        return collections.OrderedDict(
            gradient_estimate=tuple(tf.zeros_like(tensor) for tensor in trainable),
            aggregate_model=tuple(trainable),
        )

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        dtype = pseudo_gradient[0].dtype
        share = tf.cast(cohort.total_weight, dtype) / self._num_clients
        share *= tf.cast(cohort.mean_scale, dtype)
        before = tuple(state["gradient_estimate"])
        h = tuple(
            old + share * g for old, g in zip(before, pseudo_gradient, strict=True)
        )
        aggregate = minus(trainable, pseudo_gradient)
        measurements = collections.OrderedDict(gradient_estimate_norm=global_norm(h))
        measurements.update(
            growth_condition(before, pseudo_gradient, tf.cast(share, tf.float32))
        )
        return ServerResult(
            collections.OrderedDict(gradient_estimate=h, aggregate_model=aggregate),
            minus(aggregate, h),
            measurements,
        )


def growth_condition(
    h: Tensors, pseudo_gradient: Tensors, share: tf.Tensor
) -> collections.OrderedDict[str, tf.Tensor]:
    """Measures the two sides of Theorem 3.1 of Varno et al. (2022).

    ‖h‖ does not grow in a round exactly if the cosine of the angle between h and the
    cohort's mean pseudo-gradient ḡ is at most -(M / 2N) ‖ḡ‖ / ‖h‖.

    Args:
      h: The server's gradient estimate before the round.
      pseudo_gradient: ḡ.
      share: M / N.

    Returns:
      `growth_cosine` and `growth_bound`; both are 0 while h is zero, when no angle
      is defined.
    """
    inner = tf.add_n(
        [tf.reduce_sum(a * b) for a, b in zip(h, pseudo_gradient, strict=True)]
    )
    h_norm, g_norm = global_norm(h), global_norm(pseudo_gradient)
    return collections.OrderedDict(
        growth_cosine=tf.math.divide_no_nan(
            tf.cast(inner, tf.float32), h_norm * g_norm
        ),
        growth_bound=-0.5 * share * tf.math.divide_no_nan(g_norm, h_norm),
    )


@explicit_options(StatefulOptions)
def build_fed_dyn(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    num_clients: int,
    *,
    mu: float = 0.02,
    mean_examples: float | None = None,
    total_examples: float | None = None,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds FedDyn, whose clients and server keep sums of past pseudo-gradients.

    Acar et al. (2021), https://arxiv.org/abs/2111.04263, in the form of Varno et
    al. (2022), Algorithm 1, https://arxiv.org/abs/2204.13170

    With θ the cloud model, θ̄ the mean of the cohort's models, M the cohort's size,
    N the number of all clients, and g_i = θ - θ_i:

    ```
    client:  θ_i <- θ_i - η (∇L_i(θ_i) - h_i - μ (θ - θ_i))        K times
             h_i <- h_i + μ g_i
    server:  h <- h + (M / N) (θ - θ̄)
             θ <- θ̄ - h
    ```

    | paper | argument | unit |
    |---|---|---|
    | η | the learning rate of `client_optimizer_fn` | per local step |
    | μ (α in Acar et al.) | `mu` | of a curvature |
    | N | `num_clients` | clients |

    The model to deploy is θ̄; the model that clients receive is θ. At low
    participation ‖h‖ and ‖θ‖ may grow without bound: `finalizer` reports ‖θ‖ as
    `model_norm`, ‖h‖ as `gradient_estimate_norm`, and Theorem 3.1's cosine and bound
    as `growth_cosine` and `growth_bound`. With μ = 0 clients do not correct, but the
    server still adds h to its step.

    The paper has equal weights. With weights p_i by examples θ̄ and the share M / N have
    them, so that h stays the mean of all clients' Σ g_i and the minimum is that of
    Σ p_i L_i.

    `gradient_clipping_norm` clips ∇L_i(θ_i) - h_i - μ θ, and μ θ_i is added after it,
    as weight decay λ θ_i is: the published code clips so.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and `C = <gradient_estimate=float32[n]>`. The traffic is that
    of FedAvg: n down and n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_optimizer_fn: As in `build_fed_avg`; η is its learning rate.
      num_clients: N, the number of all clients, not of those in a round.
      mu: μ, at least 0; 0.02 is what Varno et al. use throughout.
      mean_examples: n̄, the mean over *all* clients of the examples of one round,
        epochs included. With it client i, which trains on n_i, has μ n̄ / n_i in place
        of μ, as Acar et al. have it in their code for unbalanced clients, where models
        and h_i are still averaged alike. That costs clients a pass that counts
        examples. With client_weighting NUM_EXAMPLES too, clients would count by n_i².
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
    total = total_weight(shared, num_clients, total_examples)
    if mean_examples is not None:
        checks.check_positive("mean_examples", mean_examples)
        if weighs_by_examples(shared):
            raise ValueError(
                "mean_examples must be None with client_weighting NUM_EXAMPLES, because"
                " each alone makes clients count by their examples, found "
                f"{checks.shown(mean_examples)}."
            )
    return compose(
        model_fn,
        FedDynWork(client_optimizer_fn, mu, mean_examples, **local),
        FedDynStep(total),
        num_clients=num_clients,
        **shared,
    )


METHOD = register(
    Method(
        name="fed_dyn",
        builder=build_fed_dyn,
        paper=(
            "Acar et al. (2021), Federated Learning Based on Dynamic Regularization"
        ),
        url="https://arxiv.org/abs/2111.04263",
        weighting="uniform",
        keeps_client_states=True,
        client_cost=Cost(repeated_sums=3, repeated_products=1, sums=1, products=1),
        server_cost=Cost(repeated_sums=1, sums=3, products=1),
        needs=("num_clients", "mean_examples", "total_examples"),
        options=(
            Option(
                "mu",
                "non_negative",
                "Strength μ of FedDyn's dynamic regularisation.",
                flag="fed_dyn_mu",
            ),
        ),
    )
)
