"""Learning curves of one run, and of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.axes
import matplotlib.figure
import matplotlib.ticker
import numpy as np
import pandas as pd

from experiments.analysis import style
from experiments.reports.results import Result

CURVES_FILE = "curves.png"

# An axis is logarithmic if its values span more than this ratio.
_LOG_RATIO = 100.0
# A line that ends at more than this multiple of its first value has broken down.
_BROKEN_RATIO = 1e4
_ROUND = "round"
_LOSS = "test_loss"


def draw_run(result: Result) -> matplotlib.figure.Figure:
    """Draws the learning curves of a run.

    The left panel has the task's headline metric: on all test examples, on the
    cohorts' training examples, and bands between percentiles over test clients.
    The right panel has the losses.

    Args:
      result: The run.

    Returns:
      The figure.
    """
    settings = result.settings
    figure, (left, right) = style.panels(2)
    frame = pd.DataFrame(list(result.rows))
    tested = frame.dropna(subset=[result.headline])
    metric = result.headline.removeprefix("test_")
    for low, high, alpha in ((5, 95, 0.12), (25, 75, 0.25)):
        lower = tested[f"{result.headline}_client_p{low}"]
        upper = tested[f"{result.headline}_client_p{high}"]
        if (lower == upper).all():
            continue  # A metric of the model alone.
        left.fill_between(
            tested[_ROUND],
            lower,
            upper,
            color=style.colour(1),
            alpha=alpha,
            linewidth=0,
            label=f"test clients, {low} % to {high} %",
        )
    for axes, name in ((left, metric), (right, "loss")):
        if f"train_{name}" in frame:
            axes.plot(
                frame[_ROUND],
                frame[f"train_{name}"],
                color=style.colour(2),
                linewidth=1,
                alpha=0.7,
                label="training, this round's cohort",
            )
        axes.plot(
            tested[_ROUND],
            tested[f"test_{name}"],
            color=style.colour(1),
            linewidth=2,
            label="all test examples",
        )
    _label_panels(left, right, metric, "")
    _finish(
        figure,
        f"{settings.algorithm} on {_describe_cohort(result)}, seed {settings.seed}",
        "",
    )
    return figure


def draw_comparison(results: Sequence[Result]) -> matplotlib.figure.Figure:
    """Draws the learning curves of several algorithms.

    Args:
      results: The runs, of one task; the runs of an algorithm differ in their
        seeds alone.

    Returns:
      The figure: one panel with the task's headline metric, one with the loss.
    """
    figure, (left, right) = style.panels(2)
    headline = results[0].headline
    _draw_lines(left, results, headline)
    _draw_lines(right, results, _LOSS)
    _label_panels(left, right, headline.removeprefix("test_"), "test ")
    _finish(figure, _describe_cohort(results[0]), _explain_lines(results))
    return figure


def draw_measurements(
    results: Sequence[Result], left: tuple[str, str], right: tuple[str, str]
) -> matplotlib.figure.Figure:
    """Draws two columns of the metrics of several algorithms, in all rounds.

    Args:
      results: The runs, as for `draw_comparison`.
      left: The column of the left panel and what its axis is called. Runs without
        the column are left out.
      right: Those of the right panel.

    Returns:
      The figure.
    """
    figure, panels = style.panels(2)
    for axes, (column, label) in zip(panels, (left, right)):
        _draw_lines(axes, results, column)
        axes.set_ylabel(label)
        _format_panel(axes, may_be_log=True)
    _finish(figure, _describe_cohort(results[0]), _explain_lines(results))
    return figure


def _draw_lines(
    axes: matplotlib.axes.Axes, results: Sequence[Result], column: str
) -> None:
    """Draws a line per label, the mean over its seeds, with a band around it."""
    names = dict.fromkeys(result.settings.label for result in results)
    for position, name in enumerate(names):
        rows = [
            row
            for result in results
            if result.settings.label == name
            for row in result.rows
            if column in row
        ]
        if not rows:
            continue
        by_round = pd.DataFrame(rows).groupby(_ROUND)[column]
        # Where a seed broke down there is no mean, rather than that of the others.
        mean = by_round.agg(lambda values: values.mean(skipna=False))
        (line,) = axes.plot(
            mean.index,
            mean,
            color=style.colour(position),
            linestyle=style.line_style(position),
            linewidth=2,
            label=name,
        )
        axes.fill_between(
            mean.index,
            by_round.min(),
            by_round.max(),
            color=line.get_color(),
            alpha=0.13,
            linewidth=0,
        )


def _explain_lines(results: Sequence[Result]) -> str:
    seeds = sorted({result.settings.seed for result in results})
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"lines: mean over {len(seeds)} seeds; bands: smallest to largest seed"


def _describe_cohort(result: Result) -> str:
    cohort, population = (
        result.summary["clients_per_round"],
        result.summary["clients"],
    )
    return f"{result.settings.task}, {cohort} of {population} clients per round"


def _label_panels(
    left: matplotlib.axes.Axes, right: matplotlib.axes.Axes, metric: str, prefix: str
) -> None:
    left.set_ylabel(f"{prefix}{metric}")
    if metric.endswith("accuracy"):
        left.set_ylabel(f"{prefix}{metric} (% of examples)")
        left.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    right.set_ylabel(f"{prefix}loss (mean per example)")
    # Accuracy has a scale of its own, from none to all.
    _format_panel(left, may_be_log=not metric.endswith("accuracy"))
    _format_panel(right, may_be_log=True)


def _format_panel(axes: matplotlib.axes.Axes, may_be_log: bool) -> None:
    axes.set_xlabel("round of communication")
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    axes.margins(x=0.01)
    style.plain(axes)
    low, high = _extremes(axes)
    logarithmic = may_be_log and low > 0 and high > _LOG_RATIO * low
    if logarithmic:
        axes.set_yscale("log")
    if high > 0 and axes.dataLim.y1 > _LOG_RATIO * high:
        # What breaks down leaves the panel at its top: else nothing else is seen.
        margin = 0.05 * (high - low)
        axes.set_ylim(
            low / 1.5 if logarithmic else low - margin,
            high * 1.5 if logarithmic else high + margin,
        )


def _extremes(axes: matplotlib.axes.Axes) -> tuple[float, float]:
    """Returns the least and the largest value of lines that do not break down."""
    lines = [pd.Series(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    lasting = [line for line in lines if len(line) and not _breaks_down(line)]
    values = pd.concat(lasting or lines)
    return values.min(), values.max()


def _breaks_down(line: pd.Series) -> bool:
    first, last = line.iloc[0], line.iloc[-1]
    return not np.isfinite(last) or last > _BROKEN_RATIO * first > 0


def _finish(figure: matplotlib.figure.Figure, title: str, explanation: str) -> None:
    """Adds title and legend, both outside the panels."""
    figure.suptitle(title, fontweight="bold")
    style.legend(figure, explanation)
