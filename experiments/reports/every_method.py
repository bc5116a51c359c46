"""Many methods on one task: how far, how soon, at what traffic, with what state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import pandas as pd

from experiments import analysis
from experiments.analysis import style
from experiments.analysis.studies import StudyResults
from experiments.reports import texts
from experiments.reports.texts import Table

_LEVEL = "level_with_first"
# Trained on all clients' data in one place: what federated methods fall short of.
_NOT_FEDERATED = "central"


def tabulate(results: StudyResults, thresholds: Sequence[float]) -> Table:
    """Returns one row per method, the most accurate first.

    `level_with_first` says that the seeds do not separate a method from the first
    federated one: the means differ by no more than the larger of the two standard
    deviations. What a seed did not reach is NaN, for the mean over seeds too.

    Args:
      results: The results.
      thresholds: The accuracies to reach; traffic is counted to the first.
    """
    data = _figures(results, thresholds)
    columns = [f"{100 * each:g} %" for each in thresholds]
    headers = [
        *("method", "accuracy", "level with the first"),
        *(f"rounds to {name}" for name in columns),
        *(f"traffic to {columns[0]}", "a client keeps", "the server keeps"),
        *("client rate", "server rate"),
    ]
    cells = [_cells(row, thresholds) for row in data.to_dict(orient="records")]
    rounds = results.flags["rounds"]
    title = results.title(
        f"Accuracy on test examples after {rounds} rounds; what is kept, in models"
    )
    return Table(title, data, headers, cells)


def _figures(results: StudyResults, thresholds: Sequence[float]) -> pd.DataFrame:
    runs, labels, headline = results.runs, results.labels, results.headline
    rounds = analysis.to_thresholds(runs, headline, thresholds)
    rounds.columns = [_rounds_to(each) for each in thresholds]
    traffic = analysis.to_thresholds(runs, headline, thresholds[:1], "bytes")
    found = pd.concat([analysis.last_mean(runs, [headline]), rounds], axis=1)
    found["bytes_to_first"] = traffic[thresholds[0]]
    data = analysis.over_seeds(found.rename(columns={headline: "accuracy"}), labels)
    known = {each["algorithm"]: each for each in results.summary["runs"]}
    of_model = known["fed_sgd"]["server_state_bytes"]
    for side in ("client", "server"):
        data[f"{side}_keeps"] = [
            known[label][f"{side}_state_bytes"] / of_model for label in data.index
        ]
    settings = runs.settings.groupby(labels, sort=False).first()
    for side in ("client", "server"):
        data[f"{side}_rate"] = settings.get(f"{side}_learning_rate")
    data = data.sort_values("accuracy", ascending=False, kind="stable")
    federated = data.index != _NOT_FEDERATED
    first = data[federated].iloc[0]
    # Of one seed there is no deviation, and only what is equal is level.
    own = data["accuracy_sd"].fillna(0)
    spread = np.maximum(own, np.nan_to_num(first["accuracy_sd"]))
    level = federated & (first["accuracy"] - data["accuracy"] <= spread)
    data.insert(3, _LEVEL, level)
    return data.rename_axis("method").reset_index()


def _rounds_to(threshold: float) -> str:
    return f"rounds_to_{100 * threshold:g}"


def _cells(row: Mapping[str, Any], thresholds: Sequence[float]) -> list[str]:
    def number(value: float | None, text: str = "{:.3g}", missing: str = "-") -> str:
        return missing if value is None or math.isnan(value) else text.format(value)

    traffic = row["bytes_to_first"]
    return [
        row["method"],
        texts.metric_with_deviation("accuracy", row["accuracy"], row["accuracy_sd"]),
        "yes" if row[_LEVEL] else "",
        *(number(row[_rounds_to(each)], missing="never") for each in thresholds),
        "never" if math.isnan(traffic) else texts.size(traffic),
        *(number(row[f"{side}_keeps"], "{:.2g}") for side in ("client", "server")),
        *(number(row[f"{side}_rate"], "{:g}") for side in ("client", "server")),
    ]


def draw(results: StudyResults, threshold: float) -> matplotlib.figure.Figure:
    """Draws the accuracy at the end, and the traffic to an accuracy.

    Args:
      results: The results.
      threshold: The accuracy to reach.
    """
    data = _figures(results, [threshold])[::-1]
    figure, (left, right) = style.panels(2, (6.0, 0.27 * len(data) + 1))
    places = range(len(data))
    colours = [style.colour(1 if level else 7) for level in data[_LEVEL]]
    for place, colour, mean, deviation in zip(
        places, colours, data["accuracy"], data["accuracy_sd"], strict=True
    ):
        left.errorbar(mean, place, xerr=deviation, fmt="o", color=colour, capsize=2)
    right.scatter(data["bytes_to_first"] / 1e6, places, color=colours)
    left.set_xlabel("test accuracy at the end, mean ± sd over seeds")
    style.in_percent(left.xaxis, "accuracy")
    right.set_xlabel(f"MB to {100 * threshold:g} % (those that never reach it: none)")
    right.set_xscale("log")
    left.set_yticks(places, data["method"])
    right.set_yticks(places, [])
    right.set_ylim(left.get_ylim())
    for axes in (left, right):
        style.plain(axes)
    return figure
