"""Figures of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import matplotlib.ticker
import numpy as np
import pandas as pd

from experiments import escape
from experiments.analysis import measures, style
from experiments.analysis.arguments import checked
from experiments.analysis.finished import FinishedRuns
from tff_drift import checks, value_types

# What the shaded bands around means can show, with the legend's words.
BANDS = {
    "range": "bands: smallest to largest",
    "sd": "bands: ± a standard deviation",
}
_AXIS_NAMES = {
    "round": "round of communication",
    "examples": "examples processed",
    "bytes": "bytes sent, both ways",
    "seconds": "seconds of training",
    "simulated_seconds": "simulated seconds",
}
# An axis is logarithmic if its values span more than this ratio.
_LOG_RATIO = 100.0
# A line that ends at more than this multiple of its first value has broken down.
_BROKEN_RATIO = 1e4


@checked
def draw_curves(
    runs: FinishedRuns,
    columns: Sequence[str],
    axis: str = "round",
    band: str = "range",
    labels: pd.Series | None = None,
) -> matplotlib.figure.Figure:
    """Draws columns against an axis: a line per label, the mean over its seeds.

    Args:
      runs: The runs.
      columns: The columns, a panel each.
      axis: One of `AXES`.
      band: What the bands show: "range", smallest to largest run, or "sd", a
        standard deviation to either side.
      labels: What each run is called; by default as `labels` says.

    Raises:
      ValueError: If there is no such column, axis or band.
    """
    if band not in BANDS:
        raise ValueError(
            f"band must be one of {', '.join(BANDS)}, found {checks.shown(band)}."
        )
    names = _names(runs, labels)
    figure, panels = style.panels(len(columns))
    for axes, column in zip(panels, columns, strict=True):
        _draw_lines(axes, measures.curves(runs, column, axis, names), names, band)
        finish_curves(axes, column, axis)
    figure.suptitle(_title(runs), fontweight="bold")
    style.legend(figure, _explain(runs, names, band))
    return figure


def finish_curves(axes: matplotlib.axes.Axes, column: str, axis: str) -> None:
    """Labels and scales a panel of learning curves.

    Args:
      axes: The panel, with its lines.
      column: The column that they show.
      axis: One of `AXES`.
    """
    lines = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    lasting = [line for line in lines if line.size and not _breaks_down(line)]
    _finish(axes, column, _AXIS_NAMES[axis], lasting or lines)
    if axis == "round":
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    low, high = _extremes(lasting)
    if high > 0 and axes.dataLim.y1 > _LOG_RATIO * high:
        # What breaks down leaves the panel at its top: else nothing else is seen.
        margin = 0.05 * (high - low)
        is_log = axes.get_yscale() == "log"
        axes.set_ylim(
            low / 1.5 if is_log else low - margin,
            high * 1.5 if is_log else high + margin,
        )


def _breaks_down(line: np.ndarray) -> bool:
    first, last = line[0], line[-1]
    return not np.isfinite(last) or last > _BROKEN_RATIO * first > 0


def _extremes(lines: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the least and the largest finite value of lines, NaN without one."""
    values = np.concatenate([*lines, np.empty(0)])
    values = values[np.isfinite(values)]
    return (values.min(), values.max()) if values.size else (np.nan, np.nan)


@checked
def draw_against(
    runs: FinishedRuns,
    setting: str,
    values: pd.DataFrame,
    band: str = "range",
    labels: pd.Series | None = None,
) -> matplotlib.figure.Figure:
    """Draws figures of runs against a setting, such as the cohort size.

    Args:
      runs: The runs.
      setting: A setting whose values are numbers, such as "clients_per_round".
      values: A row per run and a column per panel, as of `last_mean` or
        `to_thresholds`.
      band: As in `draw_curves`.
      labels: What each run is called; by default as `labels` says of what else varies.

    Raises:
      ValueError: If there is no such setting or band, or its values are no numbers.
    """
    if band not in BANDS:
        raise ValueError(
            f"band must be one of {', '.join(BANDS)}, found {checks.shown(band)}."
        )
    if setting not in runs.settings:
        raise ValueError(f"the runs have no setting {checks.shown(setting)}.")
    at = pd.to_numeric(runs.settings[setting], errors="coerce")
    if at.isna().any():
        raise ValueError(f"{setting} is not a number in every run.")
    names = _names(runs, labels, measures.telling(runs, setting))
    figure, panels = style.panels(values.shape[1])
    for axes, column in zip(panels, values, strict=True):
        table = pd.DataFrame({"label": names, "x": at, "value": values[column]})
        by_point = table.groupby(["label", "x"])["value"]
        points = by_point.agg(["mean", "std", "min", "max"]).rename(
            columns={"std": "sd"}
        )
        points = points[by_point.count() == by_point.size()].reindex(points.index)
        _draw_lines(axes, points.reset_index(), names, band, all_marked=True)
        _finish(axes, str(column), setting)
        if at.min() > 0 and at.max() >= 10 * at.min():
            axes.set_xscale("log")
            # The usual ticks within one decade run into each other.
            ticks = sorted(set(at))
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.minorticks_off()
    figure.suptitle(_title(runs), fontweight="bold")
    style.legend(figure, _explain(runs, names + " " + at.astype(str), band))
    return figure


@checked
def draw_clients(
    runs: FinishedRuns, column: str, last: int = 1, labels: pd.Series | None = None
) -> matplotlib.figure.Figure:
    """Draws a box plot of the test clients per label.

    A box is from the 25th to the 75th percentile over test clients, its line the
    median, its whiskers the 5th and the 95th: each a mean over seeds, of the last
    rounds. After Charles et al. (2021), On Large-Cohort Training for Federated
    Learning, Figure 6. https://arxiv.org/abs/2106.07820

    Args:
      runs: The runs.
      column: The metric's column, such as "test_accuracy".
      last: As in `last_mean`.
      labels: What each run is called; by default as `labels` says.

    Raises:
      ValueError: If the runs have no percentiles of it.
    """
    names = _names(runs, labels)
    columns = measures.percentile_columns(column)
    table = measures.over_seeds(measures.last_mean(runs, columns, last), names)
    boxes = [
        dict(
            zip(("whislo", "q1", "med", "q3", "whishi"), row, strict=True),
            label=name,
            fliers=[],
        )
        for name, row in table[columns].iterrows()
    ]
    figure, (axes,) = style.panels(1, style.size_for_places(list(table.index)))
    drawn = axes.bxp(
        boxes,
        positions=range(len(boxes)),
        patch_artist=True,
        widths=0.5,
        whiskerprops={"color": "0.3"},
        capprops={"color": "0.3"},
    )
    # Medians are often at the edge of their box: they must show there too.
    for position, (box, median) in enumerate(
        zip(drawn["boxes"], drawn["medians"], strict=True)
    ):
        colour = style.colour(position)
        box.set(facecolor=(colour, 0.25), edgecolor=colour)
        median.set(color=colour, linewidth=4, solid_capstyle="butt")
    axes.margins(y=0.08)
    _finish(axes, column, "")
    axes.set_ylabel(f"{escape.figure(column)}, test clients: 5, 25, 50, 75, 95 %")
    style.name_places(axes, list(table.index))
    figure.suptitle(_title(runs), fontweight="bold")
    return figure


@checked
def draw_train_and_test(
    runs: FinishedRuns,
    train: str,
    test: str,
    last: int = 1,
    labels: pd.Series | None = None,
) -> matplotlib.figure.Figure:
    """Draws bars of a metric in training beside the same on test clients.

    Args:
      runs: The runs.
      train: The column in training, such as "train_accuracy", which is that of the
        rounds' cohorts.
      test: The column on test clients.
      last: As in `last_mean`.
      labels: What each run is called; by default as `labels` says.

    Raises:
      ValueError: If there is no such column.
    """
    names = _names(runs, labels)
    table = measures.over_seeds(measures.last_mean(runs, [train, test], last), names)
    figure, (axes,) = style.panels(1, style.size_for_places(list(table.index)))
    places = np.arange(len(table))
    for offset, column, colour in ((-0.2, train, 2), (0.2, test, 1)):
        axes.bar(
            places + offset,
            table[column],
            0.4,
            yerr=table[f"{column}_sd"].fillna(0),
            capsize=3,
            color=style.colour(colour),
            label=escape.figure(column),
        )
    style.name_places(axes, list(table.index))
    _finish(axes, test, "")
    rounds = measures.last_rounds(runs, last)
    axes.set_ylabel(f"mean of {rounds}" if last > 1 else "last round")
    figure.suptitle(_title(runs), fontweight="bold")
    over = measures.averaged_over(runs, names)
    several = table["seeds"].max() > 1
    explained = f"lines: ± a standard deviation over {over}" if several else ""
    style.legend(figure, explained)
    return figure


@checked
def draw_heat_map(
    table: pd.DataFrame, name: str, title: str, missing: str = "diverged"
) -> matplotlib.figure.Figure:
    """Draws a table of numbers as colours, with the numbers in them.

    Args:
      table: The numbers: the values of one setting down, of another across.
      name: What the numbers are, a column of metrics such as "accuracy".
      title: The figure's title.
      missing: What NaN means.
    """
    rows, columns = table.shape
    figure, (axes,) = style.panels(1, (1.0 * columns + 2.5, 0.7 * rows + 1.8))
    numbers = table.to_numpy(float)
    image = axes.imshow(numbers, cmap="viridis", aspect="auto", origin="lower")
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    for row, column in np.ndindex(rows, columns):
        number = numbers[row, column]
        bright = np.isfinite(number) and number > (low + high) / 2
        text = missing if np.isnan(number) else _number(number, name)
        axes.text(
            column, row, text, ha="center", va="center", fontsize=9,
            color="black" if bright or np.isnan(number) else "white",
        )  # fmt: skip
    axes.set_xticks(range(columns), [_shown(each) for each in table.columns])
    axes.set_yticks(range(rows), [_shown(each) for each in table.index])
    axes.set_xlabel(_shown(table.columns.name))
    axes.set_ylabel(_shown(table.index.name))
    bar = figure.colorbar(image, label=name)
    style.in_percent(bar.ax.yaxis, name)
    figure.suptitle(title, fontweight="bold")
    return figure


def _number(number: float, name: str) -> str:
    return f"{100 * number:.1f} %" if style.is_accuracy(name) else f"{number:.3g}"


def _draw_lines(
    axes: matplotlib.axes.Axes,
    table: pd.DataFrame,
    names: pd.Series,
    band: str,
    all_marked: bool = False,
) -> None:
    for position, name in enumerate(dict.fromkeys(names)):
        line = table[table["label"] == name]
        low, high = line["min"], line["max"]
        if band == "sd":
            low, high = line["mean"] - line["sd"], line["mean"] + line["sd"]
        # A few markers tell lines apart that lie close, each at places of its own.
        every = 1 if all_marked else max(1, len(line) // 8)
        marked = np.arange(position * every // 5 % every, len(line), every)
        bounds = [each.to_numpy(float) for each in (line["mean"], low, high)]
        drawn = style.outline(bounds, marked)
        line, low, high = line.iloc[drawn], low.iloc[drawn], high.iloc[drawn]
        colour = style.colour(position)
        axes.plot(
            line["x"],
            line["mean"],
            color=colour,
            linestyle=style.line_style(position),
            linewidth=2,
            marker=style.marker(position),
            markersize=5,
            markevery=np.searchsorted(drawn, marked).tolist(),
            label=name,
        )
        axes.fill_between(line["x"], low, high, color=colour, alpha=0.13, linewidth=0)


def _finish(
    axes: matplotlib.axes.Axes,
    column: str,
    across: str,
    lines: Sequence[np.ndarray] | None = None,
) -> None:
    """Labels a panel; the range of its lines decides whether it is logarithmic."""
    style.plain(axes)
    axes.set_xlabel(escape.figure(across))
    axes.set_ylabel(escape.figure(column))
    style.in_percent(axes.yaxis, column)
    if lines is None:
        lines = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    low, high = _extremes(lines)
    if across and 0 < low < high / _LOG_RATIO and not style.is_accuracy(column):
        axes.set_yscale("log")


def _names(
    runs: FinishedRuns, labels: pd.Series | None, by: Sequence[str] | None = None
) -> pd.Series:
    """Returns what each run is called in a figure."""
    names = measures.labels(runs, by) if labels is None else labels
    return names.map(escape.figure)


def _shown(value: Any) -> str:
    return escape.figure(value_types.show(value))


def _title(runs: FinishedRuns) -> str:
    parts = [escape.figure(", ".join(dict.fromkeys(runs.settings["task"])))]
    cohorts = set(runs.settings["clients_per_round"])
    clients = set(runs.settings["clients"])
    if len(cohorts) == len(clients) == 1:
        parts.append(f"{cohorts.pop()} of {clients.pop()} clients per round")
    return ", ".join(parts)


def _explain(runs: FinishedRuns, groups: pd.Series, band: str) -> str:
    """Returns what lines and bands are made of, "" if of single runs.

    Args:
      runs: The runs.
      groups: What the runs of one point or line have in common, for each run.
      band: As in `draw_curves`.
    """
    sizes = groups.value_counts()
    if sizes.max() == 1:
        return ""
    shown = " to ".join(dict.fromkeys(map(str, (sizes.min(), sizes.max()))))
    over = measures.averaged_over(runs, groups)
    return f"lines: mean over {shown} {over}; {BANDS[band]}"
