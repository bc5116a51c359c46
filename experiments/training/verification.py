"""Runs kept results again and compares: `tff-drift preset NAME --verify`."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.analysis.studies import METRICS_FILE
from experiments.flags import settings
from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.presets.preset import Study, Variant
from experiments.presets.requests import Request
from experiments.reports import results
from experiments.training import log, studies
from experiments.training.runs import Runs
from tff_drift import files

RESULTS = pathlib.Path(__file__).parents[1] / "results"
ROUNDS = 20
# Another processor or TensorFlow adds in another order. Training amplifies that, in
# some nets far beyond this share: elsewhere the seeds' range is allowed for, too.
_ELSEWHERE = 1e-3
# What decides about the last bits.
_MACHINE = ("processor", "processors", "accelerators")
_VERSIONS = ("tensorflow", "numpy")


def run(request: Request, kept: pathlib.Path = RESULTS) -> None:
    """Trains a variant of each part again and compares it with what is kept.

    The first variant of a part is trained with the first seed for the rounds up to the
    first evaluation from round 20 on. On the machine and the versions that made the
    results, every digit that is kept must come out again. Elsewhere a number may
    differ by 1e-3 of itself, or by as much as the seeds that are kept differ in it.

    Args:
      request: What is asked for.
      kept: The folder with the results that are kept, one folder per preset.

    Raises:
      UserError: If a part's results are not there, or are of another scale or other
        seeds, or other numbers came out.
    """
    log.show()
    studies.check(request)
    folder = kept / request.preset.name
    tables = [_read(request, study, folder / study.part) for study in request.studies]
    failures = [
        failure
        for study, table in zip(request.studies, tables, strict=True)
        for failure in _verify(request, study, folder / study.part, table)
    ]
    if failures:
        raise UserError(
            "These results were not reproduced: " + "; ".join(failures) + "."
        )


def _read(request: Request, study: Study, folder: pathlib.Path) -> pd.DataFrame:
    """Returns what is kept of the variant that is trained again, of all seeds."""
    if not (folder / METRICS_FILE).is_file():
        raise UserError(
            f"There are no results of {request.preset.name}, part {study.part}, in "
            f"{folder} to compare with: no {METRICS_FILE}. --verify needs a checkout, "
            "and --parts names parts that have results."
        )
    scale = files.read_json(folder / "config.json")["flags"]["scale"]
    if scale != request.scale:
        raise UserError(
            f"The results in {folder} are of the scale {scale}, found "
            f"--scale={request.scale}. Give --scale={scale}."
        )
    table = pd.read_csv(folder / METRICS_FILE)
    variant, seed = study.variants[0], request.seeds[0]
    kept = table[table["method"] == variant.label]
    if seed not in set(kept["seed"]):
        seeds = ", ".join(map(str, dict.fromkeys(table["seed"])))
        raise UserError(
            f"There are no results of {variant.label} with seed {seed} in {folder}, "
            f"which has the seeds {seeds}. Give one of them first to --seeds."
        )
    return kept


def _verify(
    request: Request, study: Study, folder: pathlib.Path, kept: pd.DataFrame
) -> list[str]:
    """Returns what did not come out again of a part, and reports on it."""
    variant, seed = study.variants[0], request.seeds[0]
    kept_run = kept[kept["seed"] == seed]
    last = _last_round(kept_run["round"])
    with tempfile.TemporaryDirectory() as scratch:
        given = _flags(request, study, variant, folder)
        run = settings.resolve(
            {**given, "rounds": last, "seed": seed, "output_dir": scratch},
            variant.label,
        )
        found = _train(study, run)
    name = f"{study.part}, {variant.label}, seed {seed}"
    kept_run = kept_run[kept_run["round"] < last]
    if is_same_platform(files.read_json(folder / results.SUMMARY_FILE)):
        wrong, how = differences(kept_run, found), "to the last digit"
    else:
        wrong = differences(kept_run, found, _ELSEWHERE, ranges(kept))
        how = f"to {_ELSEWHERE:g} or the seeds' range, on another platform"
    print(f"{name}: {len(found)} evaluations {'differ' if wrong else f'agree {how}'}")
    return [f"{name}: {each}" for each in wrong]


def _last_round(rounds: pd.Series) -> int:
    """Returns the round after the evaluation that is compared last."""
    later = rounds[rounds >= ROUNDS]
    return int(later.min() if len(later) else rounds.max()) + 1


def _flags(
    request: Request, study: Study, variant: Variant, folder: pathlib.Path
) -> dict[str, Any]:
    """Returns the flags of a variant, with what a search found where there was one."""
    given = studies.flags_of(request, study, variant)
    if study.search is None or variant.label not in study.search.grids:
        return given
    kept = files.read_json(folder / "config.json")["runs"]
    (chosen,) = [
        each
        for each in kept
        if each["folder"] == f"{variant.label}/seed_{request.seeds[0]}"
    ]
    searched = study.search.grids[variant.label]
    return {**given, **{flag: chosen[flag] for flag in searched}}


def _train(study: Study, run: RunSettings) -> pd.DataFrame:
    """Returns the rows of the table of metrics that a run makes."""
    result = Runs([run]).execute(run, progress=None)
    table = studies.table_of_metrics(study, [result])
    return table[table["round"] < run.rounds]


def is_same_platform(summary: Mapping[str, Any]) -> bool:
    """Returns whether results were made on a machine and versions like these.

    Args:
      summary: Their summary.json.
    """
    here = results.provenance()
    return all(
        summary.get(part, {}).get(name) == here[part][name]
        for part, names in (("machine", _MACHINE), ("versions", _VERSIONS))
        for name in names
    )


def ranges(kept: pd.DataFrame) -> pd.DataFrame:
    """Returns how far apart seeds are in each number, by round.

    Args:
      kept: A table of metrics of several seeds, a row per seed and round.
    """
    rounds = kept.select_dtypes("number").groupby("round")
    return rounds.max() - rounds.min()


def differences(
    kept: pd.DataFrame,
    found: pd.DataFrame,
    relative: float = 0.0,
    absolute: pd.DataFrame | None = None,
) -> list[str]:
    """Returns where two tables of metrics differ, in words.

    Args:
      kept: The table that is kept.
      found: The table that came out, of the same rounds.
      relative: The largest relative difference of two numbers.
      absolute: The differences that are allowed in any case, by round; none where it
        has no column or no number.
    """
    if list(kept["round"]) != list(found["round"]):
        return [
            f"evaluations in rounds {list(found['round'])}, where those kept are in "
            f"{list(kept['round'])}"
        ]
    wrong = []
    for name in [each for each in kept.columns if each in found.columns]:
        if kept[name].dtype.kind not in "if":
            continue
        # What is not measured any more is a column without a type.
        before, after = kept[name].to_numpy(float), found[name].to_numpy(float)
        equal = np.isclose(after, before, rtol=relative, atol=0.0, equal_nan=True)
        if absolute is not None and name in absolute:
            equal |= abs(after - before) <= absolute[name].loc[kept["round"]].to_numpy()
        if not equal.all():
            first = int(np.argmin(equal))
            wrong.append(
                f"{name} of round {kept['round'].iloc[first]} is {after[first]:g}, "
                f"where {before[first]:g} is kept"
            )
    return wrong
