"""Learning curves of one run, and of a comparison."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import matplotlib.figure
import pandas as pd

from experiments import analysis
from experiments.analysis import figures, finished, folders, style
from experiments.reports.results import Result

CURVES_FILE = "curves.png"

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
    figure, panels = style.panels(2)
    frame = pd.DataFrame(list(result.rows))
    tested = frame.dropna(subset=[result.headline])
    for low, high, alpha in ((5, 95, 0.12), (25, 75, 0.25)):
        lower = tested[f"{result.headline}_client_p{low}"]
        upper = tested[f"{result.headline}_client_p{high}"]
        if (lower == upper).all():
            continue  # A metric of the model alone.
        panels[0].fill_between(
            tested["round"],
            lower,
            upper,
            color=style.colour(1),
            alpha=alpha,
            linewidth=0,
            label=f"test clients, {low} % to {high} %",
        )
    for axes, column in zip(panels, (result.headline, _LOSS), strict=True):
        name = column.removeprefix("test_")
        if f"train_{name}" in frame:
            axes.plot(
                frame["round"],
                frame[f"train_{name}"],
                color=style.colour(2),
                linewidth=1,
                alpha=0.7,
                label="training, this round's cohort",
            )
        axes.plot(
            tested["round"],
            tested[column],
            color=style.colour(1),
            linewidth=2,
            label="all test examples",
        )
        figures.finish_curves(axes, name, "round")
    settings = result.settings
    style.rename_axes(figure, _names(result.headline))
    figure.suptitle(
        f"{settings.algorithm} on {settings.task}, "
        f"{result.summary['clients_per_round']} of {result.summary['clients']} "
        f"clients per round, seed {settings.seed}",
        fontweight="bold",
    )
    style.legend(figure)
    return figure


def draw_comparison(
    runs: analysis.FinishedRuns, labels: pd.Series
) -> matplotlib.figure.Figure:
    """Draws the learning curves of several algorithms.

    Args:
      runs: The runs, of one task.
      labels: What each run is called; runs of one label differ in their seeds alone.

    Returns:
      The figure: one panel with the task's headline metric, one with the loss.
    """
    headline = analysis.headline(runs)
    figure = analysis.draw_curves(runs, [headline, _LOSS], labels=labels)
    style.rename_axes(figure, _names(headline, "test_"))
    return figure


def gather(results: Sequence[Result]) -> tuple[analysis.FinishedRuns, pd.Series]:
    """Returns runs as they would be read from their folders, and what each is called.

    Args:
      results: The runs.
    """
    found = [
        folders.Run(
            name=f"{result.settings.label}/seed_{result.settings.seed}",
            settings={
                **result.settings.configuration,
                "clients": result.summary["clients"],
                "clients_per_round": result.summary["clients_per_round"],
            },
            is_finished=True,
            read=functools.partial(pd.DataFrame, list(result.rows)),
        )
        for result in results
    ]
    runs = finished.gather(found, [run.name for run in found])
    labels = [result.settings.label for result in results]
    return runs, pd.Series(labels, index=runs.settings.index)


def _names(headline: str, prefix: str = "") -> dict[str, str]:
    """Returns what columns are called in figures."""
    metric = headline.removeprefix("test_")
    shown = prefix.replace("_", " ")
    unit = " (% of examples)" if metric.endswith("accuracy") else ""
    return {
        f"{prefix}{metric}": f"{shown}{metric}{unit}",
        f"{prefix}loss": f"{shown}loss (mean per example)",
    }
