"""FedSGD: clients send gradients and do not train.

McMahan et al. (2017), Communication-Efficient Learning of Deep Networks from
Decentralized Data. https://arxiv.org/abs/1602.05629
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import (
    ProcessOptions,
    TrainingOptions,
    explicit_options,
    split,
)
from tff_drift.method_specs import Method, register


@explicit_options(ProcessOptions)
def build_fed_sgd(
    model_fn: client_works.ModelFn,
    server_learning_rate: float,
    **options: Unpack[ProcessOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedSGD, distributed SGD with the clients' full gradients.

    McMahan et al. (2017). https://arxiv.org/abs/1602.05629

    ```
    g_i = ∇f_i(x), over the client's whole data
    x <- x - η_g Σ p_i g_i / Σ p_i
    ```

    with η_g = `server_learning_rate` and p_i by `client_weighting`. The batches of a
    client's dataset only bound the RAM used: their gradients are averaged by examples.
    It is FedAvg with one local step over all of the client's data and η = 1, which
    is its degenerate case.

    Args:
      model_fn: As in `build_fed_avg`.
      server_learning_rate: η_g, per round, finite and greater than 0.
      **options: See `tff_drift.algorithms.ProcessOptions`. Clients take no local
        steps: the options of local training are refused.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s. Its clients report no learning rate.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If `server_learning_rate` is not a finite positive number, or an
        option of local training is given.
    """
    local, shared = split(options, TrainingOptions)
    checks.check_positive("server_learning_rate", server_learning_rate)
    schedule = shared.pop("client_rate_schedule", None)
    # They may be there with the values for none.
    for name, value in {**local, "client_rate_schedule": schedule}.items():
        if value is not None and value != 0:
            raise ValueError(
                f"{name} is an option of local training, and FedSGD takes no local "
                f"steps, found {checks.shown(value)}. Leave it out."
            )
    return compose(
        model_fn,
        client_works.FullGradient(),
        tff.learning.optimizers.build_sgdm(float(server_learning_rate)),
        **shared,
    )


METHOD = register(
    Method(
        name="fed_sgd",
        builder=build_fed_sgd,
        paper=(
            "McMahan et al. (2017), Communication-Efficient Learning of Deep "
            "Networks from Decentralized Data"
        ),
        url="https://arxiv.org/abs/1602.05629",
        sends_gradients=True,
    )
)
