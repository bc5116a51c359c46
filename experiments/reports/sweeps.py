"""The table, the heat map and the best point of a sweep; without TensorFlow."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

import tasks
from experiments import analysis
from experiments.analysis import style
from experiments.flags import found_settings, sweeps
from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.flags.sweeps import Sweep
from experiments.reports import texts, writing

TABLE, HEAT_MAP, BEST, PROTOCOL = "points", "heat_map.png", "best.json", "sweep.json"
_FORMAT = "tff_drift sweep"
_EVALUATIONS = 3


def write_protocol(sweep: Sweep) -> None:
    """Writes what all points share; raises `UserError` if another sweep is there.

    Args:
      sweep: The sweep. One with other points on the same axes goes on in its folder.
    """
    hidden = ("processes", "output_dir", "points")
    protocol = {
        "format": _FORMAT,
        "axes": [axis.flag.name for axis in sweep.axes],
        "flags": {k: v for k, v in sweep.fixed.items() if k not in (*hidden, "seeds")},
    }
    # As it reads in a file, where tuples are lists.
    protocol = json.loads(json.dumps(protocol))
    path = sweep.folder / PROTOCOL
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
        names = [entry.name for entry in sweep.folder.iterdir()]
        same = not names or json.loads(path.read_text()) == protocol
    except (FileNotFoundError, ValueError):
        same = False
    except OSError as error:
        raise UserError(f"output_dir cannot be written: {error}.") from error
    if not same:
        raise UserError(
            f"output_dir {str(sweep.folder)!r} holds something else than this sweep. "
            "Choose an empty or a new folder."
        )
    writing.write_json(path, protocol)


def tell(sweep: Sweep, diverged: Callable[[RunSettings], bool]) -> Mapping[str, Any]:
    """Prints the points from best to worst, and writes table, heat map and best point.

    Args:
      sweep: The sweep, all of whose runs are done.
      diverged: Whether a run was given up.

    Returns:
      The best point, values by names of flags.

    Raises:
      UserError: If every point diverged.
    """
    metric = tasks.describe(_task(sweep)).accuracy_metric
    table = score(sweep, diverged)
    writing.write_table(sweep.folder / f"{TABLE}.csv", table)
    headers = [axis.flag.name for axis in sweep.axes]
    cells = [
        [
            *(_show(row[name]) for name in headers),
            texts.metric_with_deviation(metric, row[metric], row[f"{metric}_sd"]),
            texts.metric_with_deviation("loss", row["loss"], row["loss_sd"]),
            f"{row['diverged']:.0f} of {row['seeds']:.0f}",
        ]
        for row in table.to_dict(orient="records")
    ]
    headers = [*headers, metric, "loss", "diverged"]
    text = f"{_describe(sweep)}\n\n{texts.markdown_table(headers, cells)}"
    writing.write_text(sweep.folder / f"{TABLE}.md", text)
    print(_describe(sweep))
    texts.print_table(headers, cells)
    sizes = [len(axis.values) for axis in sweep.axes]
    is_grid = len(sizes) == 2 and min(sizes) > 1 and len(table) == sizes[0] * sizes[1]
    if is_grid and not table[metric].isna().all():
        _draw(sweep, table, metric)
    best = table.iloc[0]
    if math.isnan(best[metric]):
        raise UserError(f"every point diverged of {sweep.folder}: take smaller rates.")
    point = sweep.points[int(best["point"])]
    run = sweep.runs[int(best["point"])][0]
    content = found_settings.content(run.task, run.algorithm, point)
    writing.write_json(sweep.folder / BEST, content)
    print(f"Best: {sweeps.label(point)}. To use it: --settings={sweep.folder / BEST}")
    return point


def score(sweep: Sweep, diverged: Callable[[RunSettings], bool]) -> pd.DataFrame:
    """Returns a row per point, from best to worst; what diverged comes last.

    A point counts by the mean over seeds of the mean headline metric of the last
    three evaluations on clients held out; the loss decides among equals.

    Args:
      sweep: The sweep.
      diverged: Whether a run was given up.
    """
    task = tasks.describe(_task(sweep))
    metric = task.accuracy_metric
    rows: list[dict[str, Any]] = []
    for number, (point, runs) in enumerate(zip(sweep.points, sweep.runs)):
        figures = pd.DataFrame(
            [
                dict.fromkeys((metric, "loss"), math.nan)
                if diverged(run)
                else _figures(run, metric)
                for run in runs
            ]
        )
        row: dict[str, Any] = {"point": number, **point, "seeds": len(runs)}
        for name in figures:
            row[name] = figures[name].mean(skipna=False)
            row[f"{name}_sd"] = figures[name].std(skipna=False)
        row["diverged"] = sum(map(diverged, runs))
        rows.append(row)
    table = pd.DataFrame(rows)
    ascending = [not task.higher_is_better, True]
    return table.sort_values(
        [metric, "loss"], ascending=ascending, kind="stable", ignore_index=True
    )


def _figures(run: RunSettings, metric: str) -> dict[str, float]:
    """Returns the means of a run's last evaluations, NaN if one of them is."""
    read = analysis.read(run.folder)
    figures = {}
    for name in (metric, "loss"):
        values = analysis.measured(read, f"test_{name}")[f"test_{name}"]
        figures[name] = values.tail(_EVALUATIONS).mean(skipna=False)
    return figures


def _draw(sweep: Sweep, table: pd.DataFrame, metric: str) -> None:
    across, down = (axis.flag.name for axis in sweep.axes)
    numbers = table.pivot(index=down, columns=across, values=metric)
    figure = analysis.draw_heat_map(numbers, metric, _describe(sweep))
    style.save(figure, sweep.folder / HEAT_MAP)


def _task(sweep: Sweep) -> str:
    return sweep.runs[0][0].task


def _describe(sweep: Sweep) -> str:
    run = sweep.runs[0][0]
    swept = [axis.flag.name for axis in sweep.axes]
    who = [run.task] if "algorithm" in swept else [run.algorithm, "on", run.task]
    return f"{' '.join(who)}, clients held out, {len(sweep.runs[0])} seed(s)"


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
