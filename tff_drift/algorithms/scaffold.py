"""SCAFFOLD: stochastic controlled averaging.

Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, Algorithm 1. https://arxiv.org/abs/1910.06378
"""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import aggregators, checks, client_works, optimizers
from tff_drift.aggregators import wrapping
from tff_drift.algorithms.composition import StatefulLearningProcess, compose
from tff_drift.algorithms.options import (
    StatefulOptions,
    explicit_options,
    split,
    total_weight,
    weighs_by_examples,
)
from tff_drift.method_specs import Cost, Method, Option, register
from tff_drift.tensors import to_vector

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class ScaffoldWork(client_works.LocalSgd):
    """The client's half: y <- y - η (g(y) - c_i + c), then a new c_i."""

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        option: str,
        weigh_message: bool,
        **local: Unpack[client_works.LocalOptions],
    ) -> None:
        super().__init__(client_optimizer_fn, **local)
        checks.check_one_of("option", option, ("I", "II"))
        has_optimizer = isinstance(
            client_optimizer_fn, tff.learning.optimizers.Optimizer
        )
        if option == "II" and has_optimizer:
            raise ValueError(
                "client_optimizer_fn must be a number, the rate of plain SGD, with "
                "option 'II', which takes (x - y_i) / (K η) for the mean of the local "
                f"gradients, found the optimizer {checks.shown(client_optimizer_fn)}. "
                "Give its rate, or take option 'I'."
            )
        self.needs_full_gradient = option == "I"
        self._weigh_message = weigh_message

    def initial_client_state(self, zeros: np.ndarray) -> client_works.ClientState:
        """Returns c_i = 0."""
        return collections.OrderedDict(control_variate=zeros)

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns c - c_i."""
        return context.server_message - context.client_state["control_variate"]

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns c_i⁺, and c_i⁺ - c_i for the server."""
        c, c_i = context.server_message, context.client_state["control_variate"]
        if local.full_gradient is not None:
            x = to_vector(context.initial_trainable)
            new_c_i = local.full_gradient + self.client_weight_decay * x
            change = new_c_i - c_i
        else:
            rate = tf.cast(context.hparams[_RATE], c.dtype)
            # (x - y_i) / (K_i η): the mean of the directions taken.
            mean_direction = tf.math.divide_no_nan(
                local.pseudo_gradient, local.num_steps * rate
            )
            change = mean_direction - c
            new_c_i = c_i + change
        if self._weigh_message:
            change *= local.num_examples
        return client_works.ClientOutput(
            collections.OrderedDict(control_variate=new_c_i), message=change
        )


@explicit_options(StatefulOptions)
def build_scaffold(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    num_clients: int,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    option: str = "II",
    total_examples: float | None = None,
    variates_by_examples: bool = False,
    control_variate_sum_factory: (
        tff.aggregators.UnweightedAggregationFactory | None
    ) = None,
    **options: Unpack[StatefulOptions],
) -> StatefulLearningProcess:
    """Builds SCAFFOLD, whose control variates cancel the drift of local training.

    Karimireddy et al. (2020), Algorithm 1. https://arxiv.org/abs/1910.06378

    The server keeps the model x and the variate c, every client a variate c_i; all
    variates start at 0. A client of the cohort S takes K_i local steps

    ```
    y_i <- x;   y_i <- y_i - η (g_i(y_i) - c_i + c)
    c_i⁺ = ∇f_i(x)                          (option I)
    c_i⁺ = c_i - c + (x - y_i) / (K_i η)    (option II)
    ```

    and the server, with M = |S| of N clients,

    ```
    x <- x - η_g (1/M) Σ (x - y_i)
    c <- c + (1/N) Σ (c_i⁺ - c_i)
    ```

    K_i counts the minibatches that client i really trained on.

    | paper | argument | unit |
    |---|---|---|
    | η | `client_optimizer_fn` | per local step |
    | η_g | the learning rate of `server_optimizer_fn` | per round |
    | N | `num_clients` | clients |
    | options I, II | `option` | |

    Degenerate cases: with variates held at 0 it is FedAvg; with N = 1, plain SGD;
    with K = 1, M = 1, η_g = 1 and option I on full gradients, SAGA.

    The process is a `StatefulLearningProcess`: `next` has the functional type
    signature `(<S@SERVER, {<examples=B*,state=C,index=int32>}@CLIENTS> ->
    <state=S@SERVER, metrics=M@SERVER>)` with `C = <control_variate=float32[n]>` for
    n trainable weights, and `M` holds `client_states`, the cohort's new variates.
    `client_work` reports `drift`, the mean ‖y_i - x‖; `aggregator` reports
    `control_variate/control_variate_norm`, ‖c‖. The traffic is 2n down and 2n up.

    Args:
      model_fn: As in `build_fed_avg`. Its trainable weights share one float dtype.
      client_optimizer_fn: A number, the rate η of plain SGD; with option I any
        optimizer, as in `build_fed_avg`. Option II presumes plain SGD: of another
        optimizer's steps, (x - y_i) / (K_i η) is not the mean of the gradients.
      num_clients: N, the number of all clients, not of those in a round.
      server_optimizer_fn: As in `build_fed_avg`.
      option: 'I' computes ∇f_i(x) in another pass over the client's data, 'II'
        reuses the local steps and costs nothing.
      total_examples: With client_weighting NUM_EXAMPLES, the sum over *all* clients
        of the examples of one round, epochs included: c is then the weighted mean
        of the variates, as section 2.1 allows. Needed exactly then, or with
        variates_by_examples.
      variates_by_examples: Whether c is that weighted mean although the models are
        averaged alike, with client_weighting UNIFORM: SCAFFOLD as Acar et al. (2021),
        https://arxiv.org/abs/2111.04263, have it in their code for unbalanced clients.
      control_variate_sum_factory: How the changes of the variates are summed, for
        instance securely; by default a plain sum.
      **options: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = split(options, StatefulOptions)
    checks.check_flag("variates_by_examples", variates_by_examples)
    total = total_weight(
        shared, num_clients, total_examples, needs_examples=variates_by_examples
    )
    weighted = variates_by_examples or weighs_by_examples(shared)
    return compose(
        model_fn,
        ScaffoldWork(client_optimizer_fn, option, weighted, **local),
        server_optimizer_fn,
        control_variate_factory=aggregators.ControlVariateFactory(
            total,
            wrapping.sum_factory_or_default(
                "control_variate_sum_factory", control_variate_sum_factory
            ),
        ),
        num_clients=num_clients,
        **shared,
    )


METHOD = register(
    Method(
        name="scaffold",
        builder=build_scaffold,
        paper=(
            "Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging"
            " for Federated Learning"
        ),
        url="https://arxiv.org/abs/1910.06378",
        weighting="uniform",
        keeps_client_states=True,
        traffic=(2, 2),
        # As SCAFFOLD/m, and the change of c_i that is sent.
        client_cost=Cost(repeated_sums=2, sums=3, products=2),
        # Models and changes are summed; the sum of changes is scaled and added to c.
        server_cost=Cost(repeated_sums=2, sums=1, products=1),
        needs=("num_clients", "total_examples"),
        options=(
            Option(
                "option",
                "choice",
                "How control variates are computed.",
                choices=("I", "II"),
            ),
            Option(
                "variates_by_examples",
                "flag",
                "Weigh clients' control variates by examples, but not their models.",
            ),
        ),
    )
)
