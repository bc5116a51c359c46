"""AdaBest: adaptive bias estimation.

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

from tff_drift import checks, client_works, optimizers
from tff_drift.aggregators import wrapping
from tff_drift.algorithms import adabest_beta
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.options import StatefulOptions, explicit_options, split
from tff_drift.algorithms.server_steps import (
    Cohort,
    CorrectedCloudStep,
    ServerResult,
    ServerState,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors, global_norm, minus

_NEVER = -1


class AdaBestWork(client_works.LocalSgd):
    """The client's half: θ_i <- θ_i - η (g - h_i), then a new, decayed h_i."""

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        mu: float,
        mu_by_examples: bool,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_optimizer_fn, **local)
        checks.check_non_negative("mu", mu)
        self._mu = mu
        self._mu_by_examples = mu_by_examples

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns h_i = 0 of a client that never took part."""
        return collections.OrderedDict(
            gradient_estimate=zeros, last_round=np.array(_NEVER, np.int32)
        )

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns -h_i."""
        h_i = context.client_state["gradient_estimate"]
        if self._mu_by_examples:
            # The client's state lacks the factor n̄, of which the present value counts.
            h_i *= tf.cast(context.server_message, h_i.dtype)
        return -h_i

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns h_i <- h_i / (t - t'_i) + μ g_i and t'_i <- t."""
        h_i = context.client_state["gradient_estimate"]
        # At the first participation h_i is zero, whatever it is divided by. A state
        # that is not from before this round, of a round that is repeated or of a
        # server that started anew, has no rounds to be discounted for.
        last_round = context.client_state["last_round"]
        rounds_since = tf.maximum(context.round_number - last_round, 1)
        decayed = h_i / tf.cast(rounds_since, h_i.dtype)
        mu = tf.constant(self._mu, h_i.dtype)
        if self._mu_by_examples:
            mu = tf.math.divide_no_nan(mu, local.num_examples)
        return client_works.ClientOutput(
            collections.OrderedDict(
                gradient_estimate=decayed + mu * local.pseudo_gradient,
                last_round=context.round_number,
            )
        )


class AdaBestStep(CorrectedCloudStep):
    """The server's half: h <- β (θ̄_before - θ̄), θ <- θ̄ - h. It knows no N."""

    def __init__(self, rule: adabest_beta.BetaRule, mu_by_examples: bool) -> None:
        self._rule = rule
        self._mu_by_examples = mu_by_examples

    def check_aggregator(self, model_aggregator: Any) -> None:
        """Raises a `ValueError` if β is chosen from updates that are clipped."""
        if self._rule.automatic:
            remedy = "Give beta a number in place of 'auto'."
            wrapping.refuse_clipping(model_aggregator, remedy)

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the aggregate model θ̄⁰ = θ⁰."""
        state = collections.OrderedDict(
            aggregate_model=tuple(trainable),
            beta=adabest_beta.initial_beta_state(self._rule),
        )
        if self._mu_by_examples:
            state["examples_seen"] = tf.constant(0.0)
            state["clients_seen"] = tf.constant(0.0)
        return state

    def message(self, state: ServerState) -> Any:
        """Returns n̄, the mean number of examples so far, where clients need it."""
        if not self._mu_by_examples:
            return ()
        return tf.math.divide_no_nan(state["examples_seen"], state["clients_seen"])

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        beta, beta_state = adabest_beta.choose_beta(
            self._rule, state["beta"], cohort, tf.square(global_norm(pseudo_gradient))
        )
        aggregate = minus(trainable, pseudo_gradient)
        h = tuple(
            tf.cast(beta, new.dtype) * (old - new)
            for old, new in zip(state["aggregate_model"], aggregate, strict=True)
        )
        h_norm = global_norm(h)
        new_state = collections.OrderedDict(
            aggregate_model=aggregate,
            beta=adabest_beta.judge_plateau(self._rule, beta_state, h_norm),
        )
        if self._mu_by_examples:
            new_state["examples_seen"] = (
                state["examples_seen"] + cohort.num_clients * cohort.mean_examples
            )
            new_state["clients_seen"] = state["clients_seen"] + cohort.num_clients
        return ServerResult(
            new_state,
            minus(aggregate, h),
            collections.OrderedDict(gradient_estimate_norm=h_norm, beta=beta),
        )

    def get_hparams(self, state: ServerState) -> collections.OrderedDict[str, Any]:
        """Returns β, the largest value of an automatic β."""
        return collections.OrderedDict(beta=state["beta"]["beta"])

    def set_hparams(self, state: ServerState, hparams: Any) -> ServerState:
        """Returns the state with another β."""
        beta = collections.OrderedDict(state["beta"], beta=hparams["beta"])
        return collections.OrderedDict(state, beta=beta)


@explicit_options(StatefulOptions)
def build_adabest(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    *,
    mu: float = 0.02,
    beta: float | str = 0.96,
    beta_schedule: optimizers.Schedule | str = "plateau",
    beta_decay: float = 1.0,
    plateau_patience: int = 20,
    mu_by_examples: bool = False,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds AdaBest, which controls drift without knowing the population.

    Varno et al. (2022), Algorithm 1. https://arxiv.org/abs/2204.13170

    With θ the cloud model, θ̄ the mean of the cohort's models, g_i = θ - θ_i, t the
    round and t'_i the round in which client i took part last:

    ```
    client:  θ_i <- θ_i - η (∇L_i(θ_i) - h_i)        K times
             h_i <- h_i / (t - t'_i) + μ g_i
    server:  h <- β (θ̄_before - θ̄)
             θ <- θ̄ - h
    ```

    μ enters once, in h_i: the paper's Eq. 3 writes it outside. Neither the number of
    all clients nor a fixed set of clients appears anywhere.

    | paper | argument | unit |
    |---|---|---|
    | η | the learning rate of `client_optimizer_fn` | per local step |
    | μ | `mu` | of a curvature |
    | β | `beta` | per round |

    t - t'_i is at least 1 in an uninterrupted training. Where it is not, because a
    round is repeated on the same server state, or an older or fresh server state meets
    client states of later rounds, h_i is not discounted: the divisor is 1.

    The degenerate case β = μ = 0 is FedAvg, bit for bit. The smaller the share of
    clients in a round, the smaller β should be: the paper takes 0.2 to 0.6 at 1 %,
    0.96 at 10 % and 0.98 at full participation. `beta='auto'` chooses it from the
    variance of the clients' pseudo-gradients, see
    `tff_drift.algorithms.adabest_beta`; this goes beyond the paper, which leaves it
    open. It compares the ‖g_i‖² before any clipping with the ‖ḡ‖² that
    `model_aggregator` gives: where that clips, the difference would count as variance,
    and β be too small, so that such a one is refused.

    The model to deploy is θ̄; the model that clients receive is θ.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and `C = <gradient_estimate=float32[n],last_round=int32>`.
    `finalizer` reports ‖θ‖ as `model_norm`, ‖h‖ as `gradient_estimate_norm`, and
    `beta`. The traffic is that of FedAvg: n down and n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_optimizer_fn: As in `build_fed_avg`; η is its learning rate.
      mu: μ, at least 0.
      beta: β in [0, 1], or 'auto'.
      beta_schedule: When `beta_decay` multiplies β: 'plateau', whenever ‖h‖ has
        plateaued, as the paper does (section 3.5), or 'every_round'. Or a function of
        the round number from 0, which multiplies β besides.
      beta_decay: Multiplies β at those times, in (0, 1]; 1 for never.
      plateau_patience: A plateau is this many rounds without a new minimum of ‖h‖, by
        one per cent.
      mu_by_examples: Whether client i's μ is divided by n_i / n̄, with n_i the
        examples it trains on and n̄ their mean over the clients seen so far, as the
        server tracks it (the paper's appendix B). Clients then count by their
        examples although their models are averaged alike. client_weighting
        NUM_EXAMPLES reaches the same by weighing the models, and needs no n̄; with
        both at once, clients would count by n_i².
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    rule = adabest_beta.build_beta_rule(
        beta, beta_schedule, beta_decay, plateau_patience
    )
    checks.check_one_of("mu_by_examples", mu_by_examples, (True, False))
    weighting = shared.get("client_weighting")
    if mu_by_examples and weighting == tff.learning.ClientWeighting.NUM_EXAMPLES:
        raise ValueError(
            "mu_by_examples must be False with client_weighting NUM_EXAMPLES, because "
            "each alone makes clients count by their examples, found True."
        )
    return compose(
        model_fn,
        AdaBestWork(client_optimizer_fn, mu, mu_by_examples, **local),
        AdaBestStep(rule, mu_by_examples),
        **shared,
    )


METHOD = register(
    Method(
        name="adabest",
        builder=build_adabest,
        paper=(
            "Varno et al. (2022), AdaBest: Minimizing Client Drift in Federated "
            "Learning via Adaptive Bias Estimation"
        ),
        url="https://arxiv.org/abs/2204.13170",
        weighting="uniform",
        keeps_client_states=True,
        client_cost=Cost(repeated_sums=1, sums=1, products=1),
        server_cost=Cost(repeated_sums=1, sums=2, products=1),
        options=(
            Option(
                "mu",
                "non_negative",
                "Strength μ of AdaBest's local correction.",
                flag="adabest_mu",
            ),
            Option("beta", "number or auto", "Strength β of the server's correction."),
            Option(
                "beta_schedule",
                "choice",
                "When β is multiplied by its factor, at plateaus of ‖h‖ or always.",
                choices=("plateau", "every_round"),
            ),
            Option("beta_decay", "fraction", "The factor of β; 1 for never."),
            Option("plateau_patience", "count", "Rounds that make a plateau of ‖h‖."),
            Option(
                "mu_by_examples",
                "flag",
                "Divide a client's μ by its share of examples, for unbalanced clients.",
            ),
        ),
    )
)
