"""Rounds to accuracies and the accuracy at the end, beside a paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments import analysis
from experiments.analysis.studies import StudyResults
from experiments.reports import texts
from experiments.reports.texts import Table

# The accuracy at the end is the mean over the last tenth of the evaluations.
_LAST_PART = 10


def tabulate(
    results: StudyResults,
    thresholds: Sequence[float],
    paper: Mapping[str, tuple[Sequence[int], float]],
    source: str,
) -> Table:
    """Returns one row per label: its milestones beside the paper's.

    A milestone that a seed did not reach is NaN, for the mean over seeds too.

    Args:
      results: The results.
      thresholds: The accuracies to reach.
      paper: By algorithm, the paper's rounds to each and its accuracy at the end.
      source: The paper and its tables.
    """
    runs, labels, headline = results.runs, results.labels, results.headline
    found = analysis.to_thresholds(runs, headline, thresholds)
    found.columns = [_name(threshold) for threshold in thresholds]
    tested = analysis.measured(runs, headline).groupby("run")[headline]
    found.insert(0, "accuracy", tested.agg(_at_the_end))
    data = analysis.over_seeds(found, labels)
    groups = runs.settings.groupby(labels, sort=False)
    data.insert(1, "rounds", groups["rounds"].max())
    of_paper = groups["algorithm"].first().map(paper)
    data["accuracy_paper"] = [accuracy for _, accuracy in of_paper]
    for position, threshold in enumerate(thresholds):
        data[f"{_name(threshold)}_paper"] = [rounds[position] for rounds, _ in of_paper]
    data = data.rename_axis("method").reset_index()
    seeds = dict.fromkeys(runs.settings["seed"])
    missing = [seed for seed in results.flags["seeds"] if seed not in seeds]
    state = f", NOT yet {', '.join(map(str, missing))}" if missing else ""
    title = (
        f"{results.flags['part']}, seeds {', '.join(map(str, seeds))}{state}. Rounds "
        "to an accuracy on test examples, and the mean accuracy of the last tenth of "
        f"the rounds. In parentheses: {source}."
    )
    headers = ["method", "rounds", *(f"{100 * each:.0f} %" for each in thresholds)]
    cells = [_cells(row, thresholds) for row in data.to_dict(orient="records")]
    return Table(title, data, [*headers, "accuracy"], cells)


def _name(threshold: float) -> str:
    return f"rounds_to_{100 * threshold:.0f}"


def _at_the_end(values: pd.Series) -> float:
    # Beside the rounds stands the initial model.
    count = max(1, (len(values) - 1) // _LAST_PART)
    return values.tail(count).mean(skipna=False)


def _cells(row: Mapping[str, Any], thresholds: Sequence[float]) -> list[str]:
    rounds = row["rounds"]
    cells = [row["method"], str(rounds)]
    for name in map(_name, thresholds):
        ours = f"> {rounds}" if math.isnan(row[name]) else f"{row[name]:.4g}"
        cells.append(f"{ours} ({row[f'{name}_paper']})")
    accuracy = texts.metric_with_deviation(
        "accuracy", row["accuracy"], row["accuracy_sd"]
    )
    return [*cells, f"{accuracy} ({100 * row['accuracy_paper']:.2f} %)"]
