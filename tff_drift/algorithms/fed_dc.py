"""FedDC: local drift decoupling and correction.

Gao et al. (2022), FedDC: Federated Learning with Non-IID Data via Local Drift
Decoupling and Correction, Algorithm 1. https://arxiv.org/abs/2203.11751
"""

from __future__ import annotations

import collections
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
from tff_drift.tensors import Tensors, from_vector, global_norm, minus, to_vector

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class FedDcWork(client_works.LocalSgd):
    """The client's half: y <- y - η (g(y) + α (h_i + y - x) + d - d_i), then h_i, d_i.

    d_i = (x - y_i) / (η K_i) of the client's last round is -δ_i / (η K) of the paper,
    and d is the mean of the last cohort's.
    """

    def __init__(
        self,
        client_learning_rate: float,
        alpha: float,
        correct_gradients: bool,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_learning_rate, **local)
        self._alpha = float(alpha)
        self._correct_gradients = correct_gradients

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns h_i = d_i = 0."""
        return collections.OrderedDict(drift=zeros, direction=zeros)

    def proximal_strength(self, context: client_works.LocalContext) -> float:
        """Returns α."""
        del context
        return self._alpha

    def correction(self, context: client_works.LocalContext) -> tf.Tensor | tuple[()]:
        """Returns α h_i + d - d_i."""
        state, parts = context.client_state, []
        if self._alpha:
            parts.append(self._alpha * state["drift"])
        if self._correct_gradients:
            parts.append(context.server_message - state["direction"])
        return tf.add_n(parts) if parts else ()

    def finish(
        self, context: client_works.LocalContext, state: Any, trainable: Tensors
    ) -> Tensors:
        """Returns x - y_i - h_i⁺ with h_i⁺ = h_i + y_i - x."""
        del state
        move, new_h_i = _move_and_drift(context, trainable)
        return from_vector(move - new_h_i, context.initial_trainable)

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns h_i + y_i - x and d_i = (x - y_i) / (η K_i), and sends d_i."""
        move, new_h_i = _move_and_drift(context, local.trainable)
        rate = tf.cast(context.hparams[_RATE], move.dtype)
        # Of a number: dividing the vector takes longer.
        d_i = move * tf.math.reciprocal_no_nan(local.num_steps * rate)
        return client_works.ClientOutput(
            collections.OrderedDict(drift=new_h_i, direction=d_i), message=d_i
        )


def _move_and_drift(
    context: client_works.LocalContext, trainable: Tensors
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns x - y_i and h_i⁺ = h_i + y_i - x, as vectors."""
    move = to_vector(context.initial_trainable) - to_vector(trainable)
    return move, context.client_state["drift"] - move


class FedDcStep(ServerStep):
    """The server's half: x <- mean (y_i + h_i⁺), and d <- mean d_i for the clients."""

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns d = 0."""
        zeros = tuple(tf.zeros_like(tensor) for tensor in trainable)
        return collections.OrderedDict(direction=to_vector(zeros))

    def message(self, state: ServerState) -> Any:
        """Returns d."""
        return state["direction"]

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step."""
        del state
        return ServerResult(
            collections.OrderedDict(direction=cohort.message),
            minus(trainable, pseudo_gradient),
            collections.OrderedDict(direction_norm=global_norm(cohort.message)),
        )


@explicit_options(StatefulOptions)
def build_fed_dc(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    *,
    alpha: float = 0.1,
    correct_gradients: bool = True,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds FedDC, whose clients learn their drift and send their model with it.

    Gao et al. (2022), Algorithm 1. https://arxiv.org/abs/2203.11751

    Every client keeps its drift h_i, the sum of all its moves, and its last move δ_i;
    all are 0 at first. It minimises

    ```
    f_i(y) + (α/2) ‖h_i + y - x‖² + (1/(ηK)) ⟨y, δ_i - δ⟩
    ```

    by K steps of SGD from x, and then, with δ the mean of the last cohort's moves:

    ```
    client:  δ_i <- y_i - x;  h_i <- h_i + δ_i
    server:  x <- mean (y_i + h_i);  δ <- mean δ_i
    ```

    with h_i as it is after its update. With weights p_i by examples both means have
    them. Where the K_i differ, a client takes its own K_i for K, and δ stands for the
    mean of the δ_i / (-η K_i): a mean of directions, however unequal the K_i.

    | paper | argument | unit |
    |---|---|---|
    | η | `client_learning_rate` | per local step |
    | α | `alpha` | of a curvature |
    | Δθ_i, Δθ | δ_i, δ; kept as δ_i / (-ηK_i) of the round in which they were made | |

    The authors' code has SCAFFOLD's variates in place of δ_i / (-ηK), and the mean
    of all clients' h_i in that of the cohort's; here it is the paper's formula, with
    which cohorts of few clients do badly.

    Degenerate case: with α = 0 and `correct_gradients=False` the local steps are
    FedAvg's, bit for bit; the server still adds the drifts.

    The process is a `StatefulLearningProcess` with the type signatures of
    `build_scaffold`'s and `C = <drift=float32[n],direction=float32[n]>`; `finalizer`
    reports `direction_norm`, ‖δ‖ / (ηK). `drift` in `client_work` is the mean norm of
    what is sent, ‖x - y_i - h_i‖, not ‖δ_i‖. The traffic is 2n down and 2n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_learning_rate: η of the local steps, which are of plain SGD: only then is
        δ_i / (-ηK) the mean of the local gradients.
      alpha: α, at least 0. The paper takes 0.005 to 0.1 by task.
      correct_gradients: Whether the local loss has the term of δ_i - δ.
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    client_works.check_sgd_rate(client_learning_rate)
    checks.check_non_negative("alpha", alpha)
    checks.check_flag("correct_gradients", correct_gradients)
    return compose(
        model_fn,
        FedDcWork(client_learning_rate, alpha, correct_gradients, **local),
        FedDcStep(),
        **shared,
    )


METHOD = register(
    Method(
        name="fed_dc",
        builder=build_fed_dc,
        paper=(
            "Gao et al. (2022), FedDC: Federated Learning with Non-IID Data via Local "
            "Drift Decoupling and Correction"
        ),
        url="https://arxiv.org/abs/2203.11751",
        weighting="uniform",
        keeps_client_states=True,
        traffic=(2, 2),
        client_cost=Cost(repeated_sums=2, repeated_products=1, sums=6, products=2),
        server_cost=Cost(repeated_sums=2, sums=1, products=2),
        options=(
            Option(
                "alpha",
                "non_negative",
                "Strength of FedDC's penalty on the drift.",
                flag="fed_dc_alpha",
            ),
            Option(
                "correct_gradients",
                "flag",
                "Correct FedDC's local gradients by the clients' last moves.",
                flag="fed_dc_correct_gradients",
            ),
        ),
    )
)
