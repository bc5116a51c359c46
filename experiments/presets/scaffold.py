"""Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging.

https://arxiv.org/abs/1910.06378, sections 4 to 6, on quadratics whose optimum is known.
With exact gradients FedAvg stalls at a distance from the optimum that grows with the
number K of local steps and with the distance of the clients' optima, while SCAFFOLD,
with either option, converges linearly for every K, whether all clients take part or
not. With one local step of one client, option I is SAGA. The step size is such that
η K L stays below 1 for K = 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.presets.preset import Output, Preset, Scale, Study, Variant, crossed

_QUADRATIC = {
    "task": "quadratic",
    "num_clients": 10,
    "dimension": 5,
    "client_learning_rate": 0.04,
    "rounds": 100,
    "rounds_per_evaluation": 1,
}
_FEW = 3
_FED_AVG = Variant("fed_avg", "fed_avg", {"weighting": "uniform"})
_OPTION_I = Variant("scaffold_I", "scaffold", {"weighting": "uniform", "option": "I"})
_OPTION_II = Variant(
    "scaffold_II", "scaffold", {"weighting": "uniform", "option": "II"}
)
_METHODS = (_FED_AVG, _OPTION_I, _OPTION_II)
_NAMES = {
    "test_distance": "distance to the optimum",
    "drift": "drift of clients in a round",
    # A batch is all of a client's data, so that an epoch is a step.
    "client_epochs": "local steps K",
    "heterogeneity": "heterogeneity: spread of the clients' optima",
    "clients_per_round": "clients per round, of 10",
}


def _drift(part: str, clients_per_round: int) -> Study:
    """Returns the methods with few and many local steps, round by round."""
    return Study(
        part,
        {**_QUADRATIC, "clients_per_round": clients_per_round},
        crossed(_METHODS, "client_epochs", (2, 10), "_k{}"),
        outputs=[Output("distances", "curves", {"names": _NAMES})],
    )


def _sweep(part: str, setting: str, values: Iterable[Any]) -> Study:
    """Returns FedAvg and SCAFFOLD at values of a setting, and where they end."""
    flags = {**_QUADRATIC, "clients_per_round": _FEW, "client_epochs": 10}
    flags["rounds_per_evaluation"] = 10
    options = {"setting": setting, "by": ("algorithm",), "names": _NAMES}
    columns = ("test_distance", "drift")
    return Study(
        part,
        {name: flags[name] for name in flags if name != setting},
        crossed((_FED_AVG, _OPTION_II), setting, values, "_{}"),
        outputs=[
            Output("against", "against", {"columns": columns, **options}),
            Output("distances", "last_rounds", {"columns": columns}),
        ],
        columns={"client_work/drift": "drift"},
    )


def _saga() -> Study:
    """Returns single steps of single clients, which are SGD and SAGA."""
    flags = {"clients_per_round": 1, "client_epochs": 1, "rounds": 600}
    return Study(
        "saga",
        # SAGA's own step size, 1/(3L) with L = 2.
        {**_QUADRATIC, **flags, "client_learning_rate": 1 / 6},
        _METHODS,
        outputs=[Output("distances", "curves", {"names": _NAMES})],
    )


_STUDIES = (
    _drift("sampled", _FEW),
    _drift("full", 10),
    _sweep("local_steps", "client_epochs", (1, 2, 5, 10, 20)),
    _sweep("heterogeneity", "heterogeneity", (0.0, 0.5, 1.0, 2.0)),
    _sweep("sampling", "clients_per_round", (1, 2, 3, 5, 10)),
    _saga(),
)
# The same at both scales.
_SCALE = Scale(_STUDIES, 0.8, 1.5)
PRESETS = (
    Preset(
        "scaffold_drift",
        "Quadratics with a known optimum: FedAvg stalls the farther off the more "
        "local steps it takes, SCAFFOLD converges.",
        "After Karimireddy et al. (2020), sections 4 to 6. "
        "https://arxiv.org/abs/1910.06378",
        _SCALE,
        _SCALE,
    ),
)
