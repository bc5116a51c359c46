"""Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging.

https://arxiv.org/abs/1910.06378
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.presets.preset import Preset, Scale, Study, Variant

# The step size is such that η K L stays below 1 for the largest K.
_QUADRATIC = {
    "task": "quadratic",
    "num_clients": 10,
    "dimension": 5,
    "client_learning_rate": 0.04,
    "rounds": 100,
    "rounds_per_evaluation": 1,
}
_LOCAL_STEPS = (2, 10)


def _variants(steps: int) -> Sequence[Variant]:
    # A batch is all of a client's data, so that an epoch is a step.
    flags = {"client_epochs": steps, "weighting": "uniform"}
    return (
        Variant(f"fed_avg_k{steps}", "fed_avg", flags),
        Variant(f"scaffold_I_k{steps}", "scaffold", {**flags, "option": "I"}),
        Variant(f"scaffold_II_k{steps}", "scaffold", {**flags, "option": "II"}),
    )


def _drift(part: str, clients_per_round: int) -> Study:
    """Returns the methods at a participation, with exact gradients.

    FedAvg stalls at a distance from the optimum that grows with the number K of local
    steps where clients are sampled, while SCAFFOLD, with either option, converges
    linearly for every K.
    """
    return Study(
        part,
        {**_QUADRATIC, "clients_per_round": clients_per_round},
        [variant for steps in _LOCAL_STEPS for variant in _variants(steps)],
    )


# The same at both scales.
_SCALE = Scale([_drift("sampled", 3), _drift("full", 10)], 0.1, 1.5)
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
