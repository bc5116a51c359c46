"""The tables and figures of presets, from the files of a study; without TensorFlow.

A kind is a function of a study's results that returns a `Table` or a figure. What a
preset wants, `experiments.presets.preset.Output` names by kind, so that the files of a
study are enough to make all of it again.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

import matplotlib.figure
import pandas as pd

from experiments import analysis
from experiments.analysis import style
from experiments.analysis.studies import StudyResults, read_study
from experiments.presets.preset import Study
from experiments.reports import (
    costs,
    every_method,
    milestones,
    percentiles,
    relative_times,
    texts,
    writing,
)
from experiments.reports.analysis import readable, to_thresholds
from experiments.reports.texts import Table

# What is so much less than the best is nearly as good.
_NEARLY = 0.05


def write(
    folder: pathlib.Path, study: Study, to: pathlib.Path | None = None
) -> list[Table]:
    """Writes all tables and figures of a study.

    Args:
      folder: The folder with the study's files.
      study: The study, which says what is wanted.
      to: The folder to write to; by default the same.

    Returns:
      The tables, in order.

    Raises:
      OSError: If a file cannot be read or written.
      ValueError: If a file is damaged.
    """
    tables: list[Table] = []
    if not study.outputs:
        return tables
    everything, to = read_study(folder), to or folder
    for output in study.outputs:
        options = dict(output.options)
        results = everything.where(options.pop("where", {}))
        if output.kind in FIGURES:
            figure = FIGURES[output.kind](results, **options)
            style.save(figure, to / f"{output.name}.png")
            continue
        table = TABLES[output.kind](results, **options)
        writing.write_table(to / f"{output.name}.csv", table.data)
        writing.write_text(to / f"{output.name}.md", table.markdown)
        tables.append(table)
    return tables


def _labels(results: StudyResults, by: Sequence[str] | None) -> pd.Series:
    """Returns what runs are called: by settings, or as the study calls them."""
    return results.labels if by is None else analysis.labels(results.runs, by)


def draw_curves(
    results: StudyResults,
    columns: Sequence[str] = (),
    axis: str = "round",
    by: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> matplotlib.figure.Figure:
    """Draws columns against an axis, a panel each.

    Args:
      results: The results.
      columns: The columns; by default the headline metric.
      axis: One of `experiments.analysis.AXES`.
      by: The settings that distinguish lines; by default the labels.
      names: What columns are called.
    """
    figure = analysis.draw_curves(
        results.runs, columns or [results.headline], axis, labels=_labels(results, by)
    )
    style.rename_axes(figure, names or {})
    return figure


def draw_against(
    results: StudyResults,
    setting: str,
    columns: Sequence[str] = (),
    last: int = 1,
    thresholds: Sequence[float] = (),
    by: Sequence[str] | None = ("algorithm",),
    names: Mapping[str, str] | None = None,
) -> matplotlib.figure.Figure:
    """Draws the last rounds, or the rounds to thresholds, against a setting.

    Args:
      results: The results.
      setting: The setting, whose values are numbers; a method that lacks it is left
        out.
      columns: The columns; by default the headline metric.
      last: How many rounds at the end to take the mean of.
      thresholds: Values of the first column to reach, instead of the last rounds.
      by: The settings that distinguish lines; `None` for the labels.
      names: What columns and the setting are called.
    """
    results = results.having(setting)
    runs, columns = results.runs, list(columns or [results.headline])
    if thresholds:
        values = analysis.to_thresholds(runs, columns[0], thresholds)
        values.columns = [f"rounds to {100 * each:g} %" for each in values]
    else:
        values = analysis.last_mean(runs, columns, last)
    figure = analysis.draw_against(runs, setting, values, labels=_labels(results, by))
    style.rename_axes(figure, names or {})
    return figure


def draw_failures(
    results: StudyResults,
    setting: str,
    by: Sequence[str],
    names: Mapping[str, str] | None = None,
) -> matplotlib.figure.Figure:
    """Draws the share of runs that broke down against a setting.

    Args:
      results: The results.
      setting: The setting, whose values are numbers.
      by: The settings that distinguish lines.
      names: What the setting is called.
    """
    runs = results.runs
    labels = analysis.labels(runs, by)
    # A range over seeds would be from none to all wherever some broke down.
    share = analysis.failed(runs).groupby([labels, runs.settings[setting]])
    values = pd.DataFrame({"share of runs that broke down": share.transform("mean")})
    figure = analysis.draw_against(runs, setting, values, labels=labels)
    for axes in figure.axes:
        axes.set_ylim(-0.05, 1.05)
    style.rename_axes(figure, names or {})
    return figure


def draw_clients(results: StudyResults, last: int = 1) -> matplotlib.figure.Figure:
    """Draws a box plot over test clients of the headline metric."""
    return analysis.draw_clients(results.runs, results.headline, last, results.labels)


def draw_predicted_norms(results: StudyResults) -> matplotlib.figure.Figure:
    """Draws ‖Δ‖ by cohort size beside what 1/√M predicts."""
    return analysis.draw_predicted_norms(results.runs)


def draw_heat_map(
    results: StudyResults,
    across: str,
    down: str,
    algorithm: str,
    last: int = 1,
    threshold: float | None = None,
) -> matplotlib.figure.Figure:
    """Draws the mean over seeds of the headline metric, by two settings.

    Args:
      results: The results.
      across: The setting across.
      down: The setting down.
      algorithm: Of which algorithm.
      last: How many rounds at the end to take the mean of.
      threshold: A value of the metric: the rounds to it are drawn instead.
    """
    column, runs = results.headline, results.runs
    found = analysis.last_mean(runs, [column], last)[column]
    name, missing = column.removeprefix("test_"), "diverged"
    if threshold is not None:
        found = analysis.to_thresholds(runs, column, [threshold])[threshold]
        name, missing = f"rounds to {100 * threshold:g} % {name}", "never"
    settings = runs.settings[runs.settings["algorithm"] == algorithm]
    values = settings[[across, down]].assign(value=found)
    # A seed that broke down must not drop out of the mean.
    table = values.pivot_table(
        values="value",
        index=down,
        columns=across,
        aggfunc=lambda one: one.mean(skipna=False),
        dropna=False,
    )
    title = f"{algorithm} on {settings['task'].iloc[0]}"
    return analysis.draw_heat_map(table, name, title, missing)


def tabulate_last(
    results: StudyResults,
    columns: Sequence[str] = (),
    last: int = 1,
    paper: Mapping[str, float] | None = None,
) -> Table:
    """Returns the mean of the last rounds, beside the paper's figures if there are any.

    Args:
      results: The results.
      columns: The columns; by default the headline metric and the loss.
      last: How many rounds at the end to take the mean of.
      paper: The paper's figures of the first column, by rows.
    """
    runs, labels = results.runs, results.labels
    columns = list(columns or (results.headline, "test_loss"))
    data = analysis.over_seeds(analysis.last_mean(runs, columns, last), labels)
    data.insert(1, "rounds", runs.settings["rounds"].groupby(labels).max())
    if "catastrophic_failure" in runs.rounds:
        data["failed"] = analysis.failed(runs).groupby(labels, sort=False).mean()
    headers, cells = readable(data, columns[0])
    if paper is not None:
        data["paper"] = pd.Series(paper)
        metric = columns[0].removeprefix("test_")
        headers.append("paper")
        for row, value in zip(cells, data["paper"], strict=True):
            row.append(texts.metric(metric, value))
    title = results.title(f"Mean of {analysis.last_rounds(runs, last)}")
    return Table(title, data.reset_index(), headers, cells)


def tabulate_thresholds(
    results: StudyResults,
    thresholds: Sequence[float],
    axes: Sequence[str] = ("round",),
) -> Table:
    """Returns what it took to reach values of the headline metric.

    Args:
      results: The results.
      thresholds: The values.
      axes: What to count.
    """
    column = results.headline
    found = to_thresholds(results.runs, column, thresholds, axes)
    data = analysis.over_seeds(found, results.labels)
    headers, cells = readable(data, column)
    data.columns = [str(name).replace(" ", "_") for name in data]
    title = f"To values of {column.removeprefix('test_')}, for the first time"
    return Table(results.title(title), data.reset_index(), headers, cells)


def tabulate_good_regions(results: StudyResults, last: int = 1) -> Table:
    """Returns, by method, how many settings are nearly as good as the best.

    Args:
      results: The results, of a grid of settings per method.
      last: How many rounds at the end to take the mean of.
    """
    column, runs = results.headline, results.runs
    means = analysis.last_mean(runs, [column], last)
    points = analysis.over_seeds(means, results.labels)
    methods = runs.settings["algorithm"].groupby(results.labels, sort=False).first()
    rows, cells = [], []
    for method, of_method in points.groupby(methods.reindex(points.index), sort=False):
        best = of_method[column].max()
        good = int((of_method[column] >= best - _NEARLY).sum())
        rows.append(
            {
                "method": method,
                "points": len(of_method),
                "best": best,
                # Where none has a value there is no best.
                "at": "" if math.isnan(best) else of_method[column].idxmax(),
                "good": good,
            }
        )
        metric = texts.metric(column, best)
        cells.append(
            [str(method), metric, rows[-1]["at"], f"{good} of {len(of_method)}"]
        )
    near = f"within {100 * _NEARLY:g} points of it"
    headers = ["method", "best", "at", near]
    title = f"The best of a grid of rates and what comes {near}"
    return Table(results.title(title), pd.DataFrame(rows), headers, cells)


# What makes each kind, by name.
TABLES: dict[str, Callable[..., Table]] = {
    "costs": costs.tabulate,
    "good_regions": tabulate_good_regions,
    "last_rounds": tabulate_last,
    "methods_table": every_method.tabulate,
    "milestones": milestones.tabulate,
    "percentiles": percentiles.tabulate,
    "relative_times_table": relative_times.tabulate,
    "thresholds": tabulate_thresholds,
}
FIGURES: dict[str, Callable[..., matplotlib.figure.Figure]] = {
    "against": draw_against,
    "clients": draw_clients,
    "curves": draw_curves,
    "failures": draw_failures,
    "heat_map": draw_heat_map,
    "methods": every_method.draw,
    "predicted_norms": draw_predicted_norms,
    "relative_times": relative_times.draw,
}
