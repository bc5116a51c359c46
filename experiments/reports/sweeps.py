"""The table, the heat map and the best point of a sweep; without TensorFlow."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import tasks
from experiments import analysis
from experiments.analysis import folders, style
from experiments.flags import declarations, sweeps, tuned_settings
from experiments.flags.errors import UserError
from experiments.flags.flag import CIRCUMSTANCES, TRAIN
from experiments.flags.settings import RunSettings
from experiments.flags.sweeps import Sweep
from experiments.reports import texts, writing
from tff_drift import files, value_types

TABLE, HEAT_MAP, BEST, PROTOCOL = "points", "heat_map.png", "best.json", "sweep.json"
_FORMAT = "tff_drift sweep"
_EVALUATIONS = 3
# Of flags that differ so many are named.
_MOST = 3
# Files that say what is run, by their flags.
_PLUGIN, _SETTINGS = "plugin", "settings"
# In a protocol, what the file of `--settings` says of the flags that are not given.
_FOUND = "found"


def write_protocol(sweep: Sweep) -> None:
    """Writes what all points share; raises `UserError` if another sweep is there.

    Args:
      sweep: The sweep. One with other points on the same axes goes on in its folder.
    """
    shared = {**sweep.fixed, **({"prune": True} if sweep.prune else {})}
    protocol = {
        "format": _FORMAT,
        "axes": [axis.flag.name for axis in sweep.axes],
        "flags": {k: v for k, v in shared.items() if k != "output_dir"},
    }
    if shared.get(_SETTINGS):
        swept = (*protocol["axes"], *shared)
        found = tuned_settings.with_found(shared)
        protocol[_FOUND] = {k: v for k, v in found.items() if k not in swept}
    # As it reads in a file, where tuples are lists.
    protocol = json.loads(json.dumps(protocol))
    path = sweep.folder / PROTOCOL
    writing.make_output_dir(sweep.folder)
    left_by_kill = files.temporary_path(path).name
    names = sorted({each.name for each in sweep.folder.iterdir()} - {left_by_kill})
    try:
        before = files.read_json(path) if names else protocol
        if before["format"] != _FORMAT:
            raise ValueError(before["format"])
        others = _differences(
            _comparable(before, protocol), _comparable(protocol, before)
        )
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"output_dir {str(sweep.folder)!r} holds files, but no sweep of tff-drift: "
            f"{', '.join(names[:3])}. Choose an empty or a new folder."
        ) from None
    if others:
        raise UserError(
            f"output_dir {str(sweep.folder)!r} holds another sweep: "
            f"{'; '.join(others[:_MOST])}. Ask for the same, or choose another "
            "output_dir."
        )
    writing.write_json(path, protocol)


def _comparable(
    protocol: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what a protocol says, without what results do not depend on.

    Args:
      protocol: The protocol.
      other: The one to compare it with, whose files may be spelled otherwise.
    """
    known = declarations.flags_of(TRAIN)
    flags = {
        f"--{name}": value
        for name, value in protocol["flags"].items()
        if name not in known or known[name].group != CIRCUMSTANCES
    }
    files_of = [_PLUGIN, _SETTINGS]
    # Those of earlier versions have the file's name alone.
    if _FOUND in protocol and _FOUND in other:
        files_of.remove(_SETTINGS)
        found = protocol[_FOUND].items()
        flags |= {f"{name} of --{_SETTINGS}": value for name, value in found}
    for name in files_of:
        paths = protocol["flags"].get(name)
        if paths and not _are_same_files(paths, other["flags"].get(name) or ()):
            flags[f"--{name}"] = paths
    return {"what is swept": protocol["axes"], **flags}


def _are_same_files(paths: Sequence[str], others: Sequence[str]) -> bool:
    pairs = itertools.zip_longest(paths, others, fillvalue="")
    return all(_may_be_one_file(*map(pathlib.Path, pair)) for pair in pairs)


def _may_be_one_file(path: pathlib.Path, other: pathlib.Path) -> bool:
    """Whether two paths may name one file; each may be of another current folder."""
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.name == other.name


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns what differs, such as "--rounds was 2 and is now 3"."""
    return [
        f"{name} was {_given(before, name)} and is now {_given(now, name)}"
        for name in dict.fromkeys([*before, *now])
        if _given(before, name) != _given(now, name)
    ]


def _given(flags: Mapping[str, Any], name: str) -> str:
    return value_types.show(flags[name]) if name in flags else "not given"


# Returns why the runs of a point do not count, nothing if they do.
GivenUp = Callable[[Sequence[RunSettings]], str]


def write(
    sweep: Sweep, points: Sequence[Mapping[str, Any]], given_up: GivenUp
) -> Mapping[str, Any]:
    """Writes table, heat map and best point, and prints the points, the best first.

    Args:
      sweep: The sweep.
      points: Its points, all of whose runs are done.
      given_up: Why the runs of a point do not count.

    Returns:
      The best point, values by names of flags.

    Raises:
      UserError: If every point was given up.
    """
    # Those of other points may not be made again.
    writing.remove(sweep.folder, BEST, HEAT_MAP)
    metric = tasks.describe(_example(sweep).task).accuracy_metric
    table = score(sweep, points, given_up)
    writing.write_table(sweep.folder / f"{TABLE}.csv", table)
    headers = [_column(axis.flag.name) for axis in sweep.axes]
    cells = [
        [
            *(_show(row[name]) for name in headers),
            texts.metric_with_deviation(metric, row[metric], row[f"{metric}_sd"]),
            texts.metric_with_deviation("loss", row["loss"], row["loss_sd"]),
            f"{row['diverged']:.0f} of {row['seeds']:.0f}",
            row["given_up"],
        ]
        for row in table.to_dict(orient="records")
    ]
    headers = [*headers, metric, "loss", "diverged", "given up"]
    about = f"{_describe(sweep)}{_repeated(sweep, len(points))}"
    about += _smaller_cohorts(sweep, points, given_up)
    text = f"{about}\n\n{texts.markdown_table(headers, cells)}"
    writing.write_text(sweep.folder / f"{TABLE}.md", text)
    sizes = [len(axis.values) for axis in sweep.axes]
    is_grid = sweep.sampler == sweeps.GRID and len(sizes) == 2 and min(sizes) > 1
    if is_grid and not table[metric].isna().all():
        _draw(sweep, table, metric)
    best = table.iloc[0]
    has_best = not math.isnan(best[metric])
    point = points[int(best["point"])]
    if has_best:
        run = sweep.runs(point)[0]
        content = tuned_settings.content(run.task, run.algorithm, point)
        writing.write_json(sweep.folder / BEST, content)
    # After all files, which a reader that closes the output early gets too.
    print(about)
    texts.print_table(headers, cells)
    if not has_best:
        raise UserError(f"every point of {sweep.folder} diverged: take smaller rates.")
    print(f"Best: {sweeps.label(point)}. To use it: --settings={sweep.folder / BEST}")
    return point


def score(
    sweep: Sweep, points: Sequence[Mapping[str, Any]], given_up: GivenUp
) -> pd.DataFrame:
    """Returns a row per point, from best to worst; what was given up comes last.

    A point counts by the mean over seeds of the mean headline metric of the last
    three evaluations on clients held out; the loss decides among equals.

    Args:
      sweep: The sweep.
      points: Its points.
      given_up: Why the runs of a point do not count.
    """
    task = tasks.describe(_example(sweep).task)
    metric = task.accuracy_metric
    rows: list[dict[str, Any]] = []
    for number, point in enumerate(points):
        runs = sweep.runs(point)
        figures = _of_point(runs, given_up)
        # Among numbers pandas would make a NaN of none.
        settings = {
            _column(name): "none" if value is None else value
            for name, value in point.items()
        }
        row: dict[str, Any] = {"point": number, **settings, "seeds": len(runs)}
        for name in figures:
            row[name] = figures[name].mean(skipna=False)
            with np.errstate(invalid="ignore"):  # Of infinities.
                row[f"{name}_sd"] = figures[name].std(skipna=False)
        row["diverged"] = sum(given_up([run]) == "diverged" for run in runs)
        row["given_up"] = given_up(runs)
        rows.append(row)
    table = pd.DataFrame(rows)
    ascending = [not task.higher_is_better, True]
    return table.sort_values(
        [metric, "loss"], ascending=ascending, kind="stable", ignore_index=True
    )


def _column(flag: str) -> str:
    """Returns the column of a flag, which is not that of the loss on held-out clients.

    A task's `--loss` says what is trained on.
    """
    return "loss_flag" if flag == "loss" else flag


def headline(runs: Sequence[RunSettings], given_up: GivenUp) -> float:
    """Returns what a point counts by, NaN if it was given up.

    Args:
      runs: Its runs, one for each seed.
      given_up: Why runs do not count.
    """
    metric = tasks.describe(runs[0].task).accuracy_metric
    return float(_of_point(runs, given_up)[metric].mean(skipna=False))


def _of_point(runs: Sequence[RunSettings], given_up: GivenUp) -> pd.DataFrame:
    """Returns the figures of a point, a row for each seed."""
    metric = tasks.describe(runs[0].task).accuracy_metric
    lost = dict.fromkeys((metric, "loss"), math.nan)
    if given_up(runs) == "pruned":  # Seeds after the one that was are not trained.
        return pd.DataFrame([lost for _ in runs])
    return pd.DataFrame(
        [lost if given_up([run]) else _figures(run, metric) for run in runs]
    )


def _figures(run: RunSettings, metric: str) -> dict[str, float]:
    """Returns the means of a run's last evaluations, NaN if one of them is."""
    figures = {}
    try:
        read = analysis.read(run.folder)
        for name in (metric, "loss"):
            rows = analysis.measured(read, f"test_{name}")
            # Round 0 is the initial model, the same at every point.
            values = rows[rows["round"] > 0][f"test_{name}"]
            figures[name] = values.tail(_EVALUATIONS).mean(skipna=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{error} Remove {str(run.folder)!r}: the same sweep trains it again."
        ) from error
    return figures


def _draw(sweep: Sweep, table: pd.DataFrame, metric: str) -> None:
    across, down = (_column(axis.flag.name) for axis in sweep.axes)
    numbers = table.pivot(index=down, columns=across, values=metric)
    figure = analysis.draw_heat_map(numbers, metric, _describe(sweep))
    style.save(figure, sweep.folder / HEAT_MAP)


def _example(sweep: Sweep) -> RunSettings:
    return sweep.runs(next(sweep.corners()))[0]


def _describe(sweep: Sweep) -> str:
    run = _example(sweep)
    swept = [axis.flag.name for axis in sweep.axes]
    who = [run.task] if "algorithm" in swept else [run.algorithm, "on", run.task]
    return f"{' '.join(who)}, clients held out, {len(sweep.seeds)} seed(s)"


def _repeated(sweep: Sweep, different: int) -> str:
    """Returns what to say where points were chosen again, which train nothing new."""
    asked = sweep.num_points
    if sweep.sampler == sweeps.GRID or different >= asked:
        return ""
    return f", {different} different points of {asked}: the others came again"


def _smaller_cohorts(
    sweep: Sweep, points: Sequence[Mapping[str, Any]], given_up: GivenUp
) -> str:
    """Returns what to say where fewer clients were left to train than asked for."""
    name, asked, taken = "clients_per_round", [], []
    for runs in map(sweep.runs, points):
        if given_up(runs):
            continue
        cohort = runs[0].configuration[name]
        trained = next(folders.runs_below(runs[0].folder)).settings[name]
        if trained < cohort:
            asked.append(cohort)
            taken.append(trained)
    if not asked:
        return ""
    return (
        f", cohorts of {texts.distinct(taken)} rather than {texts.distinct(asked)}: no "
        "more clients are left to train"
    )


def _show(value: Any) -> str:
    return value_types.show(value) if isinstance(value, float) else str(value)
