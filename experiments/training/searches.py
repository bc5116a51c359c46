"""The choice of a study's hyperparameters: sweeps, on clients that are held out.

No test example is looked at, see `experiments.training.sweeps`. Varno et al. (2022),
AdaBest, https://arxiv.org/abs/2204.13170, section 4.1, hold out a tenth of the clients;
Charles et al. (2021), https://arxiv.org/abs/2106.07820, appendix A.4, a fifth, which
small tasks need. One seed, 0, which no reported run has.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.flags import sweeps
from experiments.flags.placement import ON_THIS_MACHINE, Placement
from experiments.presets.preset import Study, Variant
from experiments.reports import sweeps as report
from experiments.training import pool
from experiments.training import sweeps as training

SEED = 0
FOLDER = "tuning"

# Returns the flags that a variant's runs share, by name.
FlagsOf = Callable[[Study, Variant], Mapping[str, Any]]


def choose(
    study: Study,
    folder: pathlib.Path,
    flags_of: FlagsOf,
    placement: Placement = ON_THIS_MACHINE,
) -> Study:
    """Returns a study whose variants have their best hyperparameters.

    The folder `tuning/<part>/<label>` in the request's folder gets what `tff-drift
    sweep` writes. A search that was interrupted goes on from there.

    Args:
      study: The study, which says what to search; without a search it stays as it is.
      folder: The preset's folder.
      flags_of: Returns the flags of a variant's runs.
      placement: Where the runs train; by default as many on this machine as fit.

    Returns:
      The study, with the best point of each grid among its variant's flags.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If a folder holds another search, data is missing, or every point of
        a grid diverged.
    """
    search = study.search
    if search is None:
        return study
    # Long enough for three evaluations, which are of the search's last part.
    every = max(1, search.rounds // 20)
    flags = {**study.flags, "rounds": search.rounds, "rounds_per_evaluation": every}
    searched = dataclasses.replace(study, flags=flags)
    chosen: dict[str, Variant] = {}
    # To begin a process takes as long as a short search: one pool does for all.
    with pool.open_pool(placement, sweeps.MAX_POINTS) as opened:
        for variant in study.variants:
            grid = dict(search.grids.get(variant.label, {}))
            if variant.label in search.taken:
                other, names = search.taken[variant.label]
                grid.update({name: (chosen[other].flags[name],) for name in names})
            axes = [sweeps.axis(*each) for each in grid.items() if len(each[1]) > 1]
            chosen[variant.label] = variant = _with_single(variant, grid)
            if axes:
                flags = dict(flags_of(searched, variant))
                flags["output_dir"] = str(folder / FOLDER / study.part / variant.label)
                best = _search(axes, flags, opened)
                flags = {**variant.flags, **best}
                chosen[variant.label] = dataclasses.replace(variant, flags=flags)
    return dataclasses.replace(study, variants=tuple(chosen.values()))


def with_each_value(study: Study) -> Iterator[Variant]:
    """Yields the variants with their flags, and with each value that a search tries.

    Args:
      study: The study.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for variant in study.variants:
        flags = variant.flags
        grid: Mapping[str, Sequence[Any]] = {}
        if study.search is not None:
            grid = study.search.grids.get(variant.label, {})
            flags = {**flags, **{flag: values[0] for flag, values in grid.items()}}
            other, names = study.search.taken.get(variant.label, ("", ()))
            flags = {**flags, **{name: first[other][name] for name in names}}
        first[variant.label] = flags
        yield dataclasses.replace(variant, flags=flags)
        for flag, values in grid.items():
            for value in values[1:]:
                yield dataclasses.replace(variant, flags={**flags, flag: value})


def _with_single(variant: Variant, grid: Mapping[str, Sequence[Any]]) -> Variant:
    """Returns a variant with what its grid leaves no choice of."""
    single = {flag: values[0] for flag, values in grid.items() if len(values) == 1}
    return dataclasses.replace(variant, flags={**variant.flags, **single})


def _search(
    axes: Sequence[sweeps.Axis],
    flags: Mapping[str, Any],
    opened: pool.Pool,
) -> Mapping[str, Any]:
    """Returns the best point, values by names of flags."""
    swept = [axis.flag.name for axis in axes]
    fixed = {name: value for name, value in flags.items() if name not in swept}
    sweep = sweeps.build(axes, fixed, (SEED,))
    print(f"{'/'.join(sweep.folder.parts[-2:])}: searching for settings")
    report.write_protocol(sweep)
    return report.write(sweep, training.run(sweep, opened), training.given_up)
