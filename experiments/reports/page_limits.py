"""Limits of a result, as far as its files show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from experiments import analysis
from experiments.analysis import FinishedRuns, measures

# The papers take means over as many seeds (Varno et al., 2022; Charles et al., 2021).
_SEEDS = 5
# Where so much of what training gained came in its last tenth, it had not ended.
_STILL_GAINING = 0.05


def limits(
    runs: FinishedRuns,
    labels: pd.Series,
    column: str,
    flags: Mapping[str, Any],
    revisions: set[str],
) -> Iterator[str]:
    """Yields sentences on what runs do not show.

    Args:
      runs: The runs.
      labels: What each run is called.
      column: The column of the metric.
      flags: Those of the command that made them, as far as they are kept.
      revisions: The revisions of the code that they ran on.
    """
    seeds = runs.settings["seed"].groupby(labels).nunique().min()
    if seeds == 1:
        yield (
            "One seed: how far another would differ is not known, so that differences "
            "between methods may be chance."
        )
    elif seeds < _SEEDS:
        yield (
            f"{seeds} seeds: differences within one or two standard deviations may be "
            "chance."
        )
    if runs.repeated:
        yield (
            "Left out, because another run has the same settings and the same seed: "
            f"{', '.join(runs.repeated)}."
        )
    if flags.get("scale") == "local":
        yield (
            "The scale is local, with fewer rounds or clients or other data than in "
            "the paper: directions can be compared with it, numbers cannot."
        )
    if _any(runs, "synthetic"):
        yield "The data is TFF's synthetic stand-in, and no number is of the real task."
    for name, what in (
        ("max_evaluation_clients", "Evaluated on at most {} of the test clients."),
        ("max_examples", "Clients have at most {} of their examples."),
    ):
        numbers = sorted(set(_numbers(runs, name)))
        if numbers:
            yield what.format(" or ".join(f"{number:g}" for number in numbers))
    gaining = list(_still_gaining(runs, labels, column))
    if gaining:
        yield (
            "Training had not ended: a twentieth or more of what was gained in "
            f"{column} came in the last tenth of the rounds, with {', '.join(gaining)}."
        )
    broke = analysis.failed(runs).groupby(labels, sort=False).sum()
    broke = broke[broke > 0]
    if not broke.empty:
        counts = ", ".join(f"{name} {count:.0f}" for name, count in broke.items())
        yield (
            "Runs in which a round broke down (training accuracy halved, or numbers "
            f"were not finite): {counts}. Means are over all runs."
        )
    untrained = measures.untrained(runs).sum()
    if untrained:
        yield (
            f"In {untrained} run(s) no client's update was ever finite: the figures "
            "are those of the initial model."
        )
    if any(revision.endswith("-dirty") for revision in revisions):
        yield "The code was not exactly that of the revision: files had been changed."
    if len(revisions) > 1:
        yield "Not all runs are of the same revision of the code."
    yield (
        "Rates and other settings are those below: whether others would serve a method "
        "better is not shown here. Times are of one machine and of what else ran on it."
    )


def _any(runs: FinishedRuns, name: str) -> bool:
    return name in runs.settings and bool((runs.settings[name] == True).any())  # noqa: E712


def _numbers(runs: FinishedRuns, name: str) -> list[float]:
    if name not in runs.settings:
        return []
    return list(pd.to_numeric(runs.settings[name], errors="coerce").dropna())


def _still_gaining(runs: FinishedRuns, labels: pd.Series, column: str) -> Iterator[str]:
    """Yields the labels whose mean curve gained much in its last tenth."""
    table = analysis.curves(runs, column, "round", labels)
    sign = -1 if analysis.falls(runs, column) else 1
    for label, curve in table.groupby("label", sort=False):
        values = sign * curve["mean"]
        before = curve["round"] <= 0.9 * curve["round"].max()
        if before.sum() < 3:
            continue
        gained = values.iloc[-1] - values.iloc[0]
        late = values.iloc[-1] - values[before].max()
        if gained > 0 and late >= _STILL_GAINING * gained:
            yield str(label)
