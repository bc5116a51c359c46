"""The choice of a study's hyperparameters, on clients that are held out.

No test example is looked at. A fifth of the *training* clients is held out, the
others train, and a point counts by the mean of the headline metric on the training
examples of the clients held out, over the last three evaluations. Varno et al. (2022),
AdaBest, https://arxiv.org/abs/2204.13170, section 4.1, hold out a tenth; Charles et al.
(2021), https://arxiv.org/abs/2106.07820, appendix A.4, a fifth, which small tasks need.
One seed, 0, which no reported run has.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

import tasks
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.presets import Request
from experiments.presets import studies
from experiments.presets.studies import Study, Variant
from experiments.reports import writing
from experiments.training import runs, tuning
from tasks import partitioners

SEED = 0
_FORMAT = "tff_drift preset search"
_LABEL = "label"
_LOSS = "loss"


def choose(
    request: Request,
    study: Study,
    grids: Mapping[str, Mapping[str, Sequence[Any]]],
    rounds: int,
) -> Study:
    """Returns a study whose variants have their best hyperparameters.

    All points go to `tuning/<part>.csv` in the request's folder, from which an
    interrupted search goes on.

    Args:
      request: What is asked for.
      study: The study.
      grids: Of each variant's label, the values to try by names of flags. A grid of a
        single point is not searched; a variant without a grid stays as it is.
      rounds: The rounds of training at each point.

    Returns:
      The study, with the best point of each grid among its variant's flags.

    Raises:
      UserError: If the folder holds another search, or the data is missing.
    """
    folder = request.folder / "tuning"
    path = folder / f"{study.part}.csv"
    # The search is long enough for three evaluations, and they are of its last part.
    study_flags = {**study.flags, "rounds": rounds}
    study_flags["rounds_per_evaluation"] = max(1, rounds // 20)
    searched = dataclasses.replace(study, flags=study_flags)
    with as_user_errors(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        _write_protocol(folder / f"{study.part}.json", searched, grids)
    rows = _read(path)
    for variant in study.variants:
        grid = grids.get(variant.label, {})
        for fixed, points in _by_compilation(grid):
            missing = [
                point
                for point in points
                if not any(_is_of(row, variant, {**fixed, **point}) for row in rows)
            ]
            if not missing:
                continue
            print(f"{study.part}: tuning {variant.label} {fixed or ''}".rstrip())
            for row in _try(request, searched, variant, fixed, missing):
                rows.append({_LABEL: variant.label, **fixed, **row})
                writing.write_table(path, pd.DataFrame(rows))
    return dataclasses.replace(
        study,
        variants=[
            _with_best(variant, grids.get(variant.label, {}), rows, study)
            for variant in study.variants
        ],
    )


def _write_protocol(
    path: pathlib.Path, study: Study, grids: Mapping[str, Mapping[str, Sequence[Any]]]
) -> None:
    """Writes what is searched, or raises if another search is there."""
    protocol = {
        "format": _FORMAT,
        "seed": SEED,
        "held_out_fraction": tuning.HELD_OUT_FRACTION,
        "flags": dict(study.flags),
        "variants": {
            variant.label: {"algorithm": variant.algorithm, **variant.flags}
            for variant in study.variants
        },
        "grids": {label: dict(grid) for label, grid in grids.items()},
    }
    # As it reads in a file, where tuples are lists.
    protocol = json.loads(json.dumps(protocol))
    if path.is_file() and json.loads(path.read_text()) != protocol:
        raise UserError(
            f"{str(path)!r} tells of a search with other settings. Choose an empty or "
            "a new output_dir."
        )
    writing.write_json(path, protocol)


def _read(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    table = pd.read_csv(path, dtype=object, keep_default_na=False)
    return table.to_dict(orient="records")


def _is_of(row: Mapping[str, Any], variant: Variant, point: Mapping[str, Any]) -> bool:
    """Whether a row is of a variant at a point; files hold numbers as texts."""
    return row[_LABEL] == variant.label and all(
        str(row.get(flag)) == str(value) for flag, value in point.items()
    )


def _by_compilation(
    grid: Mapping[str, Sequence[Any]],
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Returns a grid's points, those together that one compilation serves."""
    fixed = {flag: grid[flag] for flag in grid if flag not in tuning.SETTABLE}
    free = {flag: grid[flag] for flag in grid if flag in tuning.SETTABLE}
    if len(_product(grid)) == 1:
        return []
    return [(outer, _product(free)) for outer in _product(fixed)]


def _product(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, point)) for point in itertools.product(*values.values())]


def _try(
    request: Request,
    study: Study,
    variant: Variant,
    fixed: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
) -> Any:
    at_fixed = dataclasses.replace(variant, flags={**variant.flags, **fixed})
    run = studies.run_settings(request, study, at_fixed, SEED)
    with as_user_errors(OSError, TypeError, ValueError):
        runs.set_execution_context(run)
        task = runs.load_task(run)
        kept, held_out = _split(task)
        # The same share of the clients in a round as in the study.
        share = len(kept.train) / len(task.train)
        cohort = max(1, round(share * run.configuration["clients_per_round"]))
        run = dataclasses.replace(
            run, configuration={**run.configuration, "clients_per_round": cohort}
        )
        yield from tuning.try_points(run, kept, held_out, points)


def _split(task: tasks.Task) -> tuple[tasks.Task, Any]:
    """Returns the task with fewer training clients, and those held out."""
    num_held_out = round(len(task.train) * tuning.HELD_OUT_FRACTION)
    kept, held_out = partitioners.hold_out_clients(
        task.train.client_ids, num_held_out, SEED
    )
    return (
        dataclasses.replace(task, train=task.train.subset(kept)),
        task.train.subset(held_out).replace(max_examples=None),
    )


def _with_best(
    variant: Variant,
    grid: Mapping[str, Sequence[Any]],
    rows: Sequence[Mapping[str, Any]],
    study: Study,
) -> Variant:
    points = _product(grid)
    if len(points) == 1:
        return dataclasses.replace(variant, flags={**variant.flags, **points[0]})
    definition = tasks.describe(str(study.flags["task"]))
    sign = 1 if definition.higher_is_better else -1

    def rank(point: Mapping[str, Any]) -> tuple[float, float]:
        (row,) = (row for row in rows if _is_of(row, variant, point))
        metric, loss = float(row[definition.accuracy_metric]), float(row[_LOSS])
        # A point that broke down loses against every other.
        broken = metric != metric or loss != loss
        return (float("-inf"),) * 2 if broken else (sign * metric, -loss)

    best = max(points, key=rank)
    return dataclasses.replace(variant, flags={**variant.flags, **best})
