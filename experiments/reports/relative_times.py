"""Simulated time to accuracies, relative to a small cohort's.

Charles et al. (2021), On Large-Cohort Training for Federated Learning, appendix B.5,
Figures 28 to 31. https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.figure
import pandas as pd

from experiments import analysis
from experiments.analysis import style
from experiments.analysis.studies import StudyResults
from experiments.reports.texts import Table

_COHORT, _DELAY = "clients_per_round", "straggler_delay"
_RATIO = "time relative to {} clients per round"


def measure(
    results: StudyResults, thresholds: Sequence[float], reference: int
) -> pd.DataFrame:
    """Returns the ratios of simulated times to accuracies.

    Args:
      results: The results.
      thresholds: The accuracies.
      reference: The cohort size that times are relative to.

    Returns:
      A row per delay λ and cohort and a column per threshold: the mean over seeds of
      the ratio of times with the same λ and seed; NaN where a seed did not get there.
    """
    runs = results.runs
    times = analysis.to_thresholds(
        runs, results.headline, thresholds, "simulated_seconds"
    )
    keys = [_DELAY, _COHORT, "seed"]
    table = times.set_index(pd.MultiIndex.from_frame(runs.settings[keys]))
    of_reference = table.xs(reference, level=_COHORT)
    ratios = table.div(of_reference.reindex(table.index.droplevel(_COHORT)).to_numpy())
    by_cohort = ratios.groupby(level=[_DELAY, _COHORT])
    return by_cohort.agg(lambda one: one.mean(skipna=False))


def tabulate(
    results: StudyResults, thresholds: Sequence[float], reference: int
) -> Table:
    """Returns the ratios as a table; arguments as of `measure`."""
    data = measure(results, thresholds, reference)
    cells = [
        [f"λ = {delay:g}, {cohort} clients"]
        + ["-" if pd.isna(value) else f"{value:.3g}" for value in row]
        for (delay, cohort), row in zip(data.index, data.to_numpy(), strict=True)
    ]
    headers = ["clients", *(f"{100 * each:g} %" for each in thresholds)]
    title = f"Simulated time to an accuracy, relative to {reference} clients per round"
    return Table(results.title(title), data.reset_index(), headers, cells)


def draw(
    results: StudyResults, thresholds: Sequence[float], reference: int
) -> matplotlib.figure.Figure:
    """Draws the ratios, a panel per λ and a line per cohort; as `measure`."""
    data = measure(results, thresholds, reference)
    delays = list(dict.fromkeys(data.index.get_level_values(_DELAY)))
    figure, panels = style.panels(len(delays), (4.0, 4.5))
    for axes, delay in zip(panels, delays, strict=True):
        for position, (cohort, row) in enumerate(data.loc[delay].iterrows()):
            axes.plot(
                list(thresholds),
                row,
                marker="o",
                color=style.colour(position),
                linestyle=style.line_style(position),
                linewidth=2,
                label=f"{cohort} clients per round",
            )
        style.plain(axes)
        style.in_percent(axes.xaxis, results.headline)
        axes.set_xlabel("test accuracy")
        axes.set_title(f"mean delay λ = {delay:g} s per example", fontsize=10)
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel(_RATIO.format(reference))
    task = results.runs.settings["task"].iloc[0]
    figure.suptitle(f"{task}, simulated time", fontweight="bold")
    style.legend(figure)
    return figure
