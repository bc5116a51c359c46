"""Federated Averaging, with any server optimizer.

McMahan et al. (2017), Communication-Efficient Learning of Deep Networks from
Decentralized Data. https://arxiv.org/abs/1602.05629

Reddi et al. (2021), Adaptive Federated Optimization, Algorithm 1 (FedOpt).
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.method_specs import Cost, Method, register


@explicit_options(TrainingOptions)
def build_fed_avg(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds Federated Averaging (FedAvg), the base of this package's methods.

    McMahan et al. (2017). https://arxiv.org/abs/1602.05629

    In every round each client i of the cohort trains y_i from the server model x,

    ```
    y_i <- x;  for every minibatch:  y_i <- y_i - η g(y_i)
    Δ_i = x - y_i                      (its pseudo-gradient)
    ```

    and the server takes a step along the weighted mean of the pseudo-gradients,

    ```
    Δ = Σ p_i Δ_i / Σ p_i;   x <- ServerOpt(x, η_g, Δ)
    ```

    | paper | argument |
    |---|---|
    | η | the learning rate of `client_optimizer_fn`, per local step |
    | η_g, ServerOpt | `server_optimizer_fn`, one step per round |
    | p_i | `client_weighting` |
    | B, E | batch size and epochs belong to the clients' datasets |

    The degenerate case is the default: SGD with η_g = 1 on the server is the plain
    average of the clients' models.

    The process has the functional type signatures of every learning process of
    TFF, with `W` the model's weights and `B` a batch:

    *   `initialize`: `( -> S@SERVER)`, where `S` is a
        `tff.learning.templates.LearningAlgorithmState`.
    *   `next`: `(<S@SERVER, {B*}@CLIENTS> -> <state=S@SERVER, metrics=M@SERVER>)`.
    *   `get_model_weights`: `(S -> W)`.
    *   `get_hparams`, `set_hparams`: `(S -> H)` and `(<S, H> -> S)`, where `H` is
        `<client_work=..., finalizer=...>` with the rates of both sides.
    Metrics `M` are `<distributor, client_work, aggregator, finalizer>`;
    `client_work` holds `train`, the model's metrics over the local batches,
    `rejected_clients`, `learning_rate` and `drift`, the mean of ‖x - y_i‖; `finalizer`
    holds `pseudo_gradient_norm`, ‖Δ‖.

    Args:
      model_fn: A no-arg function that builds a new
        `tff.learning.models.VariableModel` at every call, or a
        `tff.learning.models.FunctionalModel`.
      client_optimizer_fn: The optimizer of the local steps, a
        `tff.learning.optimizers.Optimizer`, or a number: SGD with that rate.
      server_optimizer_fn: The server's optimizer, of this library or TFF's, or a
        number: SGD with that rate. By default SGD with rate 1.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If a rate is not a finite positive number, or a schedule has no
        learning rate to act on.
    """
    local, shared = split(options, TrainingOptions)
    return compose(
        model_fn,
        client_works.LocalSgd(client_optimizer_fn, **local),
        server_optimizer_fn,
        **shared,
    )


METHOD = register(
    Method(
        name="fed_avg",
        builder=build_fed_avg,
        paper=(
            "McMahan et al. (2017), Communication-Efficient Learning of Deep "
            "Networks from Decentralized Data"
        ),
        url="https://arxiv.org/abs/1602.05629",
        client_cost=Cost(),
        server_cost=Cost(repeated_sums=1),
    )
)
