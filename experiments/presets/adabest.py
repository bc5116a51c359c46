"""Varno et al. (2022), AdaBest: Minimizing Client Drift via Adaptive Bias Estimation.

https://arxiv.org/abs/2204.13170: Table 2 compares the methods over participation and
heterogeneity; Figures 1 and 4 follow the norm of the cloud model ‖θ‖, which grows
without bound under FedDyn where few clients take part and stays bounded under AdaBest.

The protocol of `drift_comparison` is the paper's: five local epochs, a client rate
that falls by 0.998 from round to round, weight decay in the local gradient, gradient
and correction clipped together to a norm of 10, as in the code that the paper follows
(Shakespeare has none of these three), β of
AdaBest and μ of FedDyn chosen on held-out clients from the paper's values, μ = 0.02 for
AdaBest, the mean and the standard deviation of the last round's test accuracy over
seeds. On `digits` at low participation and on Shakespeare the client rate of every
method is chosen too, where the paper has 0.1 for all. Shakespeare has the batches and
the single epoch of Reddi et al., and rates up to theirs. All methods weigh clients
alike. `adabest_auto` chooses β automatically, see `tff_drift.algorithms.adabest_beta`;
the table of the search has AdaBest at fixed values of β. The model that is tested is
the aggregate θ̄, the only one that FedAvg and SCAFFOLD have.

`adabest_cost` measures traffic from the types of what the methods send, and so it does
what a client keeps between rounds; the arithmetic is the paper's formulas at the local
steps really taken. None depends on the data, so that one short run on `digits` tells
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.presets.preset import Output, Preset, Scale, Search, Study, Variant

_MU = (0.002, 0.02, 0.2)
# Those of the paper at 1 %, and on to its choice at 10 %.
_BETA_LOW = (0.2, 0.4, 0.6, 0.8, 0.96)
_BETA_HIGH = (0.94, 0.96, 0.98, 1.0)

# What the paper's protocol has for clients on any data.
LOCAL_TRAINING: dict[str, Any] = {
    "client_epochs": 5,
    "client_weight_decay": 1e-4,
    "gradient_clipping_norm": 10.0,
    "client_rate_schedule": "per_round_factor",
    "client_rate_decay": 0.998,
}
_DIGITS = {"task": "digits", "num_clients": 100, "alpha": 0.03, **LOCAL_TRAINING}
_WRITERS = {
    "task": "emnist_digits",
    "network": "adabest",
    "batch_size": 45,
    **LOCAL_TRAINING,
}
# The net of Reddi et al. (2021), Adaptive Federated Optimization,
# https://arxiv.org/abs/2003.00295.
_SHAKESPEARE = {"task": "shakespeare_character"}
_VARIANTS = (
    # The others weigh clients alike by default.
    Variant("fed_avg", "fed_avg", {"weighting": "uniform"}),
    Variant("scaffold", "scaffold"),
    Variant("fed_dyn", "fed_dyn"),
    Variant("adabest", "adabest", {"adabest_mu": 0.02}),
    Variant("adabest_auto", "adabest", {"adabest_mu": 0.02, "beta": "auto"}),
)
_NORMS = Output(
    "norms",
    "curves",
    {
        "columns": ("model_norm", "gradient_estimate_norm"),
        "names": {
            "model_norm": "norm of the cloud model ‖θ‖",
            "gradient_estimate_norm": "norm of the server's estimate ‖h‖",
        },
    },
)
_COLUMNS = {
    "model_norm": "model_norm",
    "finalizer/gradient_estimate_norm": "gradient_estimate_norm",
    "client_work/drift": "drift",
}


def _comparison(
    part: str,
    task: Mapping[str, Any],
    clients_per_round: int,
    rounds: int,
    search_rounds: int,
    client_rates: Sequence[float],
    betas: Sequence[float],
    lower_rate: float | None = None,
    **flags: Any,
) -> Study:
    """Returns the methods on a task at one participation.

    Args:
      part: The part's name.
      task: The flags of `tff-drift train` for the task.
      clients_per_round: The participation.
      rounds: The rounds of training.
      search_rounds: The rounds at each point of the search; the paper has 500.
      client_rates: The client rates to choose from; the paper has 0.1.
      betas: The values of β of AdaBest to choose from.
      lower_rate: Another client rate to choose from for SCAFFOLD, which has nothing
        else to choose and diverges where the others do not.
      **flags: Further flags.
    """
    flags = {
        **task,
        "clients_per_round": clients_per_round,
        "rounds": rounds,
        "rounds_per_evaluation": max(1, rounds // 30),
        **flags,
    }
    rates = {"client_learning_rate": client_rates}
    scaffold_rates = client_rates
    if lower_rate is not None:
        scaffold_rates = (lower_rate, *client_rates)
    grids = {
        "fed_avg": rates,
        "scaffold": {"client_learning_rate": scaffold_rates},
        "fed_dyn": {"fed_dyn_mu": _MU, **rates},
        "adabest": {"beta": betas, **rates},
        "adabest_auto": rates,
    }
    search = Search(search_rounds, grids)
    return Study(part, flags, _VARIANTS, search, [_NORMS], _COLUMNS)


_RATES = (0.03, 0.1, 0.3)
# Up to the rate of Reddi et al.
_ROLES_RATES = (0.3, 1.0)
_FEW_WRITERS: dict[str, Any] = {
    "num_clients": 30,
    "max_examples": 45,
    "lower_rate": 0.03,
}
_FEW_ROLES: dict[str, Any] = {
    "num_clients": 8,
    "max_examples": 8,
    "lower_rate": 0.1,
}
# Rounds for two cores, in minutes.
_LOCAL = (
    _comparison("digits_low", _DIGITS, 5, 600, 200, (0.1, 0.3), _BETA_LOW),
    # At the rate that is chosen for all methods at low participation.
    _comparison("digits_full", _DIGITS, 100, 20, 10, (0.3,), _BETA_HIGH),
    # At the paper's rate.
    _comparison("writers_low", _WRITERS, 3, 150, 60, (0.1,), _BETA_LOW, **_FEW_WRITERS),
    _comparison(
        "writers_full", _WRITERS, 30, 30, 10, (0.1,), _BETA_HIGH, **_FEW_WRITERS
    ),
    _comparison(
        "shakespeare_low",
        _SHAKESPEARE,
        2,
        30,
        15,
        _ROLES_RATES,
        _BETA_LOW,
        **_FEW_ROLES,
    ),
    _comparison(
        "shakespeare_full",
        *(_SHAKESPEARE, 8, 60, 15, _ROLES_RATES, _BETA_HIGH),
        **_FEW_ROLES,
    ),
)
# The paper's rounds, and its participations of 1 % and 100 %.
_PAPER = (
    _comparison("digits_low", _DIGITS, 1, 1000, 500, _RATES, _BETA_LOW),
    _comparison("digits_full", _DIGITS, 100, 2000, 500, _RATES, _BETA_HIGH),
    _comparison(
        "writers_low", _WRITERS, 30, 1000, 500, _RATES, _BETA_LOW, num_clients=3000
    ),
    _comparison(
        "writers_full", _WRITERS, 3000, 2000, 500, _RATES, _BETA_HIGH, num_clients=3000
    ),
    _comparison("shakespeare_low", _SHAKESPEARE, 7, 1200, 500, _ROLES_RATES, _BETA_LOW),
    _comparison(
        "shakespeare_full", _SHAKESPEARE, 715, 1200, 500, _ROLES_RATES, _BETA_HIGH
    ),
)

_COST = Study(
    "digits",
    {
        "task": "digits",
        "num_clients": 100,
        "client_epochs": 5,
        "clients_per_round": 10,
        "rounds": 2,
    },
    [
        Variant(name, name)
        for name in ("fed_avg", "scaffold", "scaffold_m", "fed_dyn", "adabest")
    ],
    outputs=[Output("cost", "costs")],
    columns={name: name for name in ("bytes_down", "bytes_up")},
)
PRESETS = (
    Preset(
        "adabest_cost",
        "What each method sends and computes in a round, measured and by the paper's "
        "formulas.",
        "Varno et al. (2022), Tables 4 and 5 and section C.3. "
        "https://arxiv.org/abs/2204.13170",
        Scale([_COST], 0.02, 1.5),
        Scale([_COST], 0.02, 1.5),
    ),
    Preset(
        "drift_comparison",
        "FedAvg, SCAFFOLD, FedDyn and AdaBest at low and at full participation, "
        "tuned on held-out clients; how FedDyn's model grows.",
        "After Varno et al. (2022), Table 2 and Figures 1 and 4. "
        "https://arxiv.org/abs/2204.13170",
        Scale(_LOCAL, 3, 2),
        Scale(_PAPER, 1000, 8, "one GPU, not measured"),
    ),
)
