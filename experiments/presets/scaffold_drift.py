"""Client drift on quadratics whose optimum is known, with and without SCAFFOLD.

After Karimireddy et al. (2020), SCAFFOLD, https://arxiv.org/abs/1910.06378, sections 4
to 6: with exact gradients and three of ten clients per round, FedAvg stalls at a
distance from the optimum that grows with the number K of local steps, while SCAFFOLD,
with either option, converges linearly for every K, and so does it where all clients
take part. The step size is such that η K L stays below 1 for the largest K.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.flags.presets import Request
from experiments.presets import studies
from experiments.presets.studies import Study, Variant
from experiments.training import log

_QUADRATIC = {
    "task": "quadratic",
    "num_clients": 10,
    "dimension": 5,
    "client_learning_rate": 0.04,
    "rounds": 100,
    "rounds_per_evaluation": 1,
}
# Of each part: the clients in a round.
_COHORTS = {"sampled": 3, "full": 10}
_LOCAL_STEPS = (2, 10)


def run(request: Request) -> None:
    """Runs the parts asked for, which are the same at both scales.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    log.show()
    for part in request.parts:
        study = build_study(part)
        done = studies.run_study(request, study)
        studies.write_metrics(
            request, study, done, {done[0].headline: done[0].headline}
        )


def build_study(part: str) -> Study:
    """Returns the methods at a part's participation.

    Args:
      part: "sampled" or "full".
    """
    return Study(
        part,
        {**_QUADRATIC, "clients_per_round": _COHORTS[part]},
        [variant for steps in _LOCAL_STEPS for variant in _variants(steps)],
    )


def _variants(steps: int) -> Sequence[Variant]:
    # A batch is all of a client's data, so that an epoch is a step.
    flags = {"client_epochs": steps, "weighting": "uniform"}
    return (
        Variant(f"fed_avg_k{steps}", "fed_avg", flags),
        Variant(f"scaffold_I_k{steps}", "scaffold", {**flags, "option": "I"}),
        Variant(f"scaffold_II_k{steps}", "scaffold", {**flags, "option": "II"}),
    )
