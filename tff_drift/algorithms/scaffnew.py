"""Scaffnew: ProxSkip for federated learning.

Mishchenko et al. (2022), ProxSkip: Yes! Local Gradient Steps Provably Lead to
Communication Acceleration! Finally!, Algorithm 2. https://arxiv.org/abs/2202.09357
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.options import StatefulOptions, explicit_options, split
from tff_drift.algorithms.server_steps import (
    Cohort,
    ServerResult,
    ServerState,
    ServerStep,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import Tensors, minus, to_vector

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class ScaffnewWork(client_works.LocalSgd):
    """The client's half: h_i of the model that came, then y <- y - η (g(y) - h_i)."""

    needs_full_participation = True

    def __init__(
        self,
        client_learning_rate: float,
        probability: float,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_learning_rate, **local)
        self._probability = float(probability)

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns h_i = 0 of a client that never took part, and no ŷ_i."""
        return _client_state(zeros, zeros, np.zeros([], zeros.dtype))

    def idle_client_state(
        self, context: client_works.LocalContext
    ) -> client_works.ClientState:
        """Returns h_i of this round, and no ŷ_i: the next x is the others' mean."""
        state = context.client_state
        return _client_state(
            self._variate(context),
            state["local_model"],
            tf.zeros_like(state["renewal_factor"]),
        )

    def _variate(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns h_i + (p / η) (x - ŷ_i), now that x is there, with η of that ŷ_i."""
        state = context.client_state
        h_i, x = state["control_variate"], to_vector(context.initial_trainable)
        return h_i + state["renewal_factor"] * (x - state["local_model"])

    def init(self, context: client_works.LocalContext) -> Any:
        """Returns the state of the local steps, and their number so far."""
        return super().init(context), tf.constant(0, tf.int32)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns -h_i."""
        return -self._variate(context)

    def step(
        self, context: client_works.LocalContext, state: Any, step: client_works.Step
    ) -> tuple[Any, Tensors]:
        """Takes one step, as long as the round has steps."""
        local, number = state
        local, trainable = super().step(context, local, step)
        goes_on = number < context.server_message
        trainable = tuple(
            tf.where(goes_on, new, old)
            for new, old in zip(trainable, step.trainable, strict=True)
        )
        return (local, number + 1), trainable

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns h_i of this round, and ŷ_i with p / η."""
        y_i = to_vector(local.trainable)
        rate = tf.cast(context.hparams[_RATE], y_i.dtype)
        factor = tf.math.divide_no_nan(tf.constant(self._probability, y_i.dtype), rate)
        return client_works.ClientOutput(
            _client_state(self._variate(context), y_i, factor)
        )


def _client_state(h_i: Any, y_i: Any, factor: Any) -> client_works.ClientState:
    """Returns what a client keeps; the factor is 0 where there is no ŷ_i."""
    return collections.OrderedDict(
        control_variate=h_i, local_model=y_i, renewal_factor=factor
    )


class ScaffnewStep(ServerStep):
    """The server's half: x <- mean ŷ_i, and the next round's number of local steps.

    Args:
      probability: p, with which a local step is a round's last.
      seed: Of the numbers of steps.
    """

    def __init__(self, probability: float, seed: int) -> None:
        self._probability, self._seed = float(probability), seed

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the first round's number of local steps."""
        del trainable
        return collections.OrderedDict(local_steps=self._draw(tf.constant(0)))

    def _draw(self, round_number: tf.Tensor) -> tf.Tensor:
        """Returns a geometric number, 1 + ⌊log u / log(1 - p)⌋ with u in (0, 1]."""
        seed = tf.stack(
            [tf.constant(self._seed, tf.int64), tf.cast(round_number, "int64")]
        )
        u = 1 - tf.random.stateless_uniform([], seed)
        never = math.log1p(-self._probability) if self._probability < 1 else -math.inf
        return 1 + tf.cast(tf.math.log(u) / never, tf.int32)

    def message(self, state: ServerState) -> Any:
        """Returns the round's number of local steps."""
        return state["local_steps"]

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        return ServerResult(
            collections.OrderedDict(local_steps=self._draw(cohort.round_number + 1)),
            minus(trainable, pseudo_gradient),
            collections.OrderedDict(local_steps=state["local_steps"]),
        )


@explicit_options(StatefulOptions)
def build_scaffnew(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    num_clients: int,
    *,
    probability: float = 0.2,
    seed: int = 0,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds Scaffnew, whose clients meet after a random number of local steps.

    Mishchenko et al. (2022), Algorithm 2. https://arxiv.org/abs/2202.09357

    ProxSkip, for the consensus of the clients' models: every local step is the last of
    its round with probability p, for all clients alike. All clients take part in every
    round, and each keeps a variate h_i, 0 at first:

    ```
    y_i <- x;   y_i <- y_i - η (g_i(y_i) - h_i)   K times, K geometric, of mean 1/p
    ŷ_i <- y_i
    x⁺  <- mean ŷ_i
    h_i <- h_i + (p/η) (x⁺ - ŷ_i)
    ```

    so that Σ h_i = 0 always, and h_i goes to ∇f_i(x*). The server draws K and sends
    it. A client that has fewer than K batches stops where they end: give its dataset
    several times 1/p of them, as epochs. It takes gradients of those that are left,
    too, for the metrics, and makes no use of them.

    | paper | argument | unit |
    |---|---|---|
    | γ | `client_learning_rate` | per local step |
    | p | `probability` | |

    On strongly convex losses of condition number κ, p = 1/√κ takes some √κ log(1/ε)
    rounds to ε, where gradient descent takes κ log(1/ε); the step is at most 1/L.

    Degenerate case: p = 1 is gradient descent on the mean of the losses: one step a
    round, the h_i cancel.

    x⁺ is known when the next round begins: then a client renews its h_i, and until
    then keeps ŷ_i and p/η, so that η may change. A client whose update was rejected, or
    that had no examples, skips that renewal: the others' x⁺ - ŷ_i sum to 0 without it.

    Σ h_i = 0 needs an x that is the plain mean of the ŷ_i, and what is once added to
    the sum stays there: from then on the model goes to another point than the optimum.
    It does where `model_aggregator` returns another mean, such as that of clipped
    updates, where `model_distributor` rounds x, and once the model is set from outside.
    `add_meta_step`, which moves x, refuses Scaffnew.

    The paper has equal weights. With weights n_i by examples it is Σ n_i h_i that stays
    0, as long as no client's n_i changes, and the minimum is that of Σ n_i f_i. Such a
    change moves the point to which the model goes.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and
    `C = <control_variate=float32[n],local_model=float32[n],renewal_factor=float32>`;
    `finalizer` reports K as `local_steps`. The traffic is n down and n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_learning_rate: η of the local steps, which are of plain SGD.
      num_clients: N, the number of all clients. `run_training` refuses smaller cohorts;
        a loop of your own must pass all.
      probability: p, greater than 0 and at most 1.
      seed: The seed of the numbers of local steps, from 0 to 2^32 - 1.
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    client_works.check_sgd_rate(client_learning_rate)
    checks.check_integer("num_clients", num_clients)
    checks.check_fraction("probability", probability)
    checks.check_seed("seed", seed)
    return compose(
        model_fn,
        ScaffnewWork(client_learning_rate, probability, **local),
        ScaffnewStep(probability, seed),
        num_clients=num_clients,
        **shared,
    )


METHOD = register(
    Method(
        name="scaffnew",
        builder=build_scaffnew,
        paper=(
            "Mishchenko et al. (2022), ProxSkip: Yes! Local Gradient Steps Provably "
            "Lead to Communication Acceleration! Finally!"
        ),
        url="https://arxiv.org/abs/2202.09357",
        weighting="uniform",
        scalars=(1, 0),
        keeps_client_states=True,
        needs_full_participation=True,
        client_cost=Cost(repeated_sums=1, sums=2, products=1),
        server_cost=Cost(repeated_sums=1),
        needs=("num_clients",),
        options=(
            Option(
                "probability",
                "fraction",
                "The probability that a local step of Scaffnew is its round's last.",
                flag="scaffnew_probability",
            ),
            Option(
                "seed",
                "seed",
                "The seed of Scaffnew's numbers of local steps.",
                flag="scaffnew_seed",
            ),
        ),
    )
)
