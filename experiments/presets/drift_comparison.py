"""FedAvg, SCAFFOLD, FedDyn and AdaBest at low and at full participation.

Varno et al. (2022), AdaBest, https://arxiv.org/abs/2204.13170: Table 2 compares the
four methods over participation and heterogeneity; Figures 1 and 4 follow the norm of
the cloud model ‖θ‖, which grows without bound under FedDyn where few clients take
part and stays bounded under AdaBest.

The protocol is the paper's: five local epochs, a client rate that falls by 0.998 from
round to round, weight decay in the local gradient, β of AdaBest and μ of FedDyn chosen
on held-out clients from the paper's values, μ = 0.02 for AdaBest, the mean and the
standard deviation of the last round's test accuracy over seeds. Beyond the paper, which
keeps one client rate, the rate of every method is chosen too. The model that is tested
is the aggregate θ̄, of FedAvg and SCAFFOLD the only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments import commands, plots
from experiments.presets import searches, studies
from experiments.presets.registry import Request
from experiments.presets.studies import Study, Variant
from experiments.results import Result

NORMS_FILE = "norms.png"

_MODEL_NORM = "finalizer/model_norm"
_ESTIMATE_NORM = "finalizer/gradient_estimate_norm"
_SCHEDULE = {"client_rate_schedule": "per_round_factor", "client_rate_decay": 0.998}
_MU = (0.002, 0.02, 0.2)
_BETA_LOW = (0.2, 0.4, 0.6)
_BETA_HIGH = (0.94, 0.96, 0.98, 1.0)


class Part(NamedTuple):
    """A task at one participation.

    Attributes:
      flags: The flags of `tff-drift train` that all methods share.
      search_rounds: The rounds at each point of the search; the paper has 500.
      client_rates: The client rates to choose from; the paper has 0.1.
      betas: The values of β to choose from.
    """

    flags: Mapping[str, Any]
    search_rounds: int
    client_rates: Sequence[float]
    betas: Sequence[float]


_DIGITS = {
    "task": "digits",
    "num_clients": 100,
    "alpha": 0.03,
    "client_epochs": 5,
    "weight_decay": 1e-4,
    **_SCHEDULE,
}

_LOCAL = {
    "digits_low": Part(
        {
            **_DIGITS,
            "clients_per_round": 5,
            "rounds": 1000,
            "rounds_per_evaluation": 20,
        },
        search_rounds=200,
        client_rates=(0.1, 0.3),
        betas=_BETA_LOW,
    ),
    "digits_full": Part(
        {
            **_DIGITS,
            "clients_per_round": 100,
            "rounds": 50,
            "rounds_per_evaluation": 2,
        },
        search_rounds=25,
        client_rates=(0.1, 0.3),
        betas=_BETA_HIGH,
    ),
}
_PAPER = {
    "digits_low": _LOCAL["digits_low"]._replace(search_rounds=500),
    "digits_full": _LOCAL["digits_full"]._replace(
        flags={
            **_LOCAL["digits_full"].flags,
            "rounds": 2000,
            "rounds_per_evaluation": 10,
        },
        search_rounds=500,
    ),
}
PARTS = {"local": _LOCAL, "paper": _PAPER}


def run(request: Request) -> None:
    """Runs the parts asked for: search, then all methods and seeds.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    commands.show_log()
    for name in request.parts:
        part = PARTS[request.scale][name]
        study = searches.choose(
            request, build_study(name, part), build_grids(part), part.search_rounds
        )
        done = studies.run_study(request, study)
        studies.write_metrics(request, study, done, _columns(done[0]))
        figure = plots.draw_measurements(
            done,
            (_MODEL_NORM, "norm of the cloud model ‖θ‖"),
            (_ESTIMATE_NORM, "norm of the server's estimate ‖h‖"),
        )
        plots.save(figure, request.folder / name, NORMS_FILE)


def build_study(name: str, part: Part) -> Study:
    """Returns the methods on a part's task, before the search.

    Args:
      name: The part's name.
      part: The part.
    """
    return Study(
        name,
        part.flags,
        [
            # FedAvg with the weight decay of the others: AdaBest at β = μ = 0 is
            # FedAvg bit for bit.
            Variant("fed_avg", "adabest", {"mu": 0.0, "beta": 0.0}),
            Variant("scaffold", "scaffold"),
            Variant("fed_dyn", "fed_dyn"),
            Variant("adabest", "adabest", {"mu": 0.02}),
        ],
    )


def build_grids(part: Part) -> dict[str, dict[str, Sequence[float]]]:
    """Returns what each method's search tries.

    Args:
      part: The part.
    """
    rates = {"client_learning_rate": part.client_rates}
    return {
        "fed_avg": rates,
        "scaffold": rates,
        "fed_dyn": {"mu": _MU, **rates},
        "adabest": {"beta": part.betas, **rates},
    }


def _columns(result: Result) -> dict[str, str]:
    return {
        result.headline: result.headline,
        "test_loss": "test_loss",
        _MODEL_NORM: "model_norm",
        _ESTIMATE_NORM: "gradient_estimate_norm",
        "client_work/drift": "drift",
    }
