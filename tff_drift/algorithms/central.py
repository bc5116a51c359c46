"""Central training: the baseline that is not federated."""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import checks, client_works, optimizers
from tff_drift.algorithms.fed_avg import build_fed_avg
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.method_specs import Cost, Method, register


@explicit_options(TrainingOptions)
def build_central(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds minibatch training on all examples in one place.

    The baseline of Reddi et al. (2021), Adaptive Federated Optimization, Table 11.
    https://arxiv.org/abs/2003.00295

    It is FedAvg with a single client and without a server step: in a round

    ```
    x <- ClientOpt(x, η, g(x))
    ```

    for every minibatch of the data that `tff_drift.simulation.pool` makes of the
    clients', whose epochs or local steps say how long a round is.

        train = simulation.pool(train)
        simulation.run_training(process, train, rounds=10, cohort_size=1)

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`: any optimizer, whose state starts anew
        in every round, or η of plain SGD.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess` with the type signatures of
      `build_fed_avg`'s.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range, or if there is a
        `server_rate_schedule`; the message names it.
    """
    if options.get("server_rate_schedule") is not None:
        raise ValueError(
            "server_rate_schedule must be left out, found "
            f"{checks.shown(options['server_rate_schedule'])}: central training has no "
            "server step. Give a client_rate_schedule."
        )
    return build_fed_avg(model_fn, client_optimizer_fn, **options)


METHOD = register(
    Method(
        name="central",
        builder=build_central,
        paper="Reddi et al. (2021), Adaptive Federated Optimization",
        url="https://arxiv.org/abs/2003.00295",
        pools_data=True,
        client_cost=Cost(),
        server_cost=Cost(repeated_sums=1),
    )
)
