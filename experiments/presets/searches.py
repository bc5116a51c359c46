"""The choice of a study's hyperparameters: sweeps, on clients that are held out.

No test example is looked at, see `experiments.training.sweeps`. Varno et al. (2022),
AdaBest, https://arxiv.org/abs/2204.13170, section 4.1, hold out a tenth of the clients;
Charles et al. (2021), https://arxiv.org/abs/2106.07820, appendix A.4, a fifth, which
small tasks need. One seed, 0, which no reported run has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.flags import sweeps
from experiments.flags.presets import Request
from experiments.presets import studies
from experiments.presets.studies import Study, Variant
from experiments.reports import sweeps as report
from experiments.training import sweeps as training

SEED = 0
FOLDER = "tuning"


def choose(
    request: Request,
    study: Study,
    grids: Mapping[str, Mapping[str, Sequence[Any]]],
    rounds: int,
) -> Study:
    """Returns a study whose variants have their best hyperparameters.

    The folder `tuning/<part>/<label>` in the request's folder gets what `tff-drift
    sweep` writes. A search that was interrupted goes on from there.

    Args:
      request: What is asked for.
      study: The study.
      grids: Of each variant's label, the values to try by names of flags. A grid of a
        single point is not searched; a variant without a grid stays as it is.
      rounds: The rounds of training at each point.

    Returns:
      The study, with the best point of each grid among its variant's flags.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If a folder holds another search, data is missing, or every point of
        a grid diverged.
    """
    # Long enough for three evaluations, which are of the search's last part.
    every = max(1, rounds // 20)
    flags = {**study.flags, "rounds": rounds, "rounds_per_evaluation": every}
    searched = dataclasses.replace(study, flags=flags)
    variants = [
        _with_best(request, searched, variant, grids.get(variant.label, {}))
        for variant in study.variants
    ]
    return dataclasses.replace(study, variants=variants)


def _with_best(
    request: Request,
    study: Study,
    variant: Variant,
    grid: Mapping[str, Sequence[Any]],
) -> Variant:
    """Returns a variant with the best point of its grid among its flags."""
    single = {flag: values[0] for flag, values in grid.items() if len(values) == 1}
    variant = dataclasses.replace(variant, flags={**variant.flags, **single})
    axes = [sweeps.axis(*each) for each in grid.items() if each[0] not in single]
    if not axes:
        return variant
    swept = [axis.flag.name for axis in axes]
    given = studies.flags_of(request, study, variant).items()
    fixed = {name: value for name, value in given if name not in swept}
    folder = request.folder / FOLDER / study.part / variant.label
    sweep = sweeps.build(axes, {**fixed, "output_dir": str(folder)}, (SEED,))
    print(f"{study.part}: searching for the settings of {variant.label}")
    report.write_protocol(sweep)
    training.run(sweep)
    best = report.tell(sweep, training.has_diverged)
    return dataclasses.replace(variant, flags={**variant.flags, **best})
