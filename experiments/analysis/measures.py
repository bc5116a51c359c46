"""Measures of finished runs: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

import tasks
from experiments.analysis.arguments import checked
from experiments.analysis.finished import AXES, FinishedRuns
from tff_drift import checks, value_types

_TEST = "test_"
# Columns that every evaluation, and every round of training, has a number in.
_EVALUATED, _TRAINED = "test_num_examples", "cohort_size"
# How rounds break down, in columns of metrics.csv; Charles et al. (2021), On
# Large-Cohort Training for Federated Learning, section 3.1, and NaNs.
_FAILURES = ("catastrophic_failure", "non_finite")
_REJECTED = "client_work/rejected_clients"
# The percentiles over test clients that evaluations report.
PERCENTS = (5, 25, 50, 75, 95)
_LOWER_IS_BETTER = ("loss", "error", "distance", "norm")


@checked
def headline(runs: FinishedRuns) -> str:
    """Returns the column of the headline metric of the runs' task.

    Args:
      runs: The runs.

    Raises:
      ValueError: If they are of tasks with different metrics, or of a task that is
        not registered.
    """
    metrics = set()
    for name in dict.fromkeys(runs.settings["task"]):
        if name not in tasks.names() and runs.plugins:
            given = " ".join(f"--plugin={path}" for path in runs.plugins)
            raise ValueError(
                f"task {checks.shown(name)} is not registered. Its runs were made with "
                f"{checks.shortened(given)}: give that here too, or name columns."
            )
        metrics.add(tasks.describe(name).accuracy_metric)
    if len(metrics) > 1:
        raise ValueError(
            f"the runs' tasks have different metrics, {', '.join(sorted(metrics))}. "
            "Name columns, or take the runs of one task."
        )
    return _TEST + metrics.pop()


@checked
def falls(runs: FinishedRuns, column: str) -> bool:
    """Returns whether a column is better the lower it is.

    Args:
      runs: The runs.
      column: The column. That of a task's headline metric is as the task says; of
        others losses, errors, distances and norms are to fall.
    """
    known = {}
    for name in set(runs.settings["task"]) & set(tasks.names()):
        task = tasks.describe(name)
        known[task.accuracy_metric] = not task.higher_is_better
    metric = column.removeprefix(_TEST).removeprefix("train_").split("_client_")[0]
    return known.get(metric, metric.endswith(_LOWER_IS_BETTER))


def percentile_columns(column: str) -> list[str]:
    """Returns the columns of a metric's percentiles over test clients.

    Args:
      column: The column of the metric.
    """
    return [f"{column}_client_p{percent}" for percent in PERCENTS]


@checked
def measured(runs: FinishedRuns, column: str) -> pd.DataFrame:
    """Returns the rows in which a column was measured, NaNs among them.

    Args:
      runs: The runs.
      column: The column.

    Raises:
      ValueError: If no run has such a column.
    """
    rounds = runs.rounds
    if column not in rounds:
        raise ValueError(
            f"no run has a column {checks.shown(column)}. There are "
            f"{checks.listed(sorted(set(rounds) - {'run'}))}."
        )
    family = _EVALUATED if _is_evaluated(rounds, column) else _TRAINED
    # Of runs that differ in their seeds alone one may have broken down at once.
    settings = runs.settings.drop(columns="seed").map(str)
    alike = rounds["run"].map(settings.agg("\n".join, axis=1))
    has_it = rounds[column].notna().groupby(alike).transform("any")
    # What the last round alone has.
    is_final = column.startswith("final_")
    if column in AXES.values() or is_final or family not in rounds:
        return rounds[rounds[column].notna()]
    # A measured NaN looks like an empty cell, unless others in its row are numbers.
    return rounds[has_it & (rounds[family].notna() | rounds[column].notna())]


def _is_evaluated(rounds: pd.DataFrame, column: str) -> bool:
    """Returns whether evaluations measure a column, as some callbacks do."""
    if column.startswith(_TEST) or column.startswith("train_"):
        return column.startswith(_TEST)
    if not {_EVALUATED, _TRAINED} <= set(rounds):
        return False
    has_it = rounds[column].notna()
    return bool(
        has_it.any()
        and rounds.loc[has_it, _EVALUATED].notna().all()
        and not has_it[rounds[_TRAINED].notna()].all()
    )


@checked
def varying(runs: FinishedRuns) -> list[str]:
    """Returns the settings, except seeds, that distinguish runs of a method on a task.

    Args:
      runs: The runs.
    """
    settings = runs.settings.drop(columns=["task", "algorithm", "seed"])
    # As texts, among which one that was not given differs from one that was.
    settings = settings.apply(lambda values: values.map(str))
    by_method = settings.groupby([runs.settings["task"], runs.settings["algorithm"]])
    return [name for name in settings if (by_method[name].nunique() > 1).any()]


def telling(runs: FinishedRuns, but: str | None = None) -> list[str]:
    """Returns the settings by which runs are called.

    Those are the algorithm, the task if there are several, and what varies among the
    runs of an algorithm on a task.

    Args:
      runs: The runs.
      but: A setting to leave out.
    """
    tasks_ = ["task"] if runs.settings["task"].nunique() > 1 else []
    return ["algorithm", *tasks_, *(name for name in varying(runs) if name != but)]


@checked
def labels(runs: FinishedRuns, by: Sequence[str] | None = None) -> pd.Series:
    """Returns what to call each run; runs of one label differ in their seeds alone.

    Args:
      runs: The runs.
      by: The settings that distinguish runs, by default those of `telling`.

    Returns:
      Texts such as "fed_avg, clients_per_round=50", by run.

    Raises:
      ValueError: If there is no such setting.
    """
    by = telling(runs) if by is None else list(by)
    for name in by:
        if name not in runs.settings:
            raise ValueError(
                f"the runs have no setting {checks.shown(name)}. There are "
                f"{checks.listed(sorted(runs.settings))}."
            )

    def label(settings: pd.Series) -> str:
        parts = [
            _setting(name, settings[name]) for name in by if _is_given(settings[name])
        ]
        return ", ".join(parts) or "all"

    return runs.settings.apply(label, axis=1).rename("label")


def averaged_over(runs: FinishedRuns, names: pd.Series) -> str:
    """Returns what means over the runs of each label are over: "seeds" or "runs".

    Args:
      runs: The runs.
      names: What each run is called; by fewer settings than those of `labels`, perhaps.
    """
    different = labels(runs).groupby(names.reindex(runs.settings.index))
    return "seeds" if (different.nunique() == 1).all() else "runs"


def _is_given(value: Any) -> bool:
    return isinstance(value, tuple) or bool(pd.notna(value))


def _setting(name: str, value: Any) -> str:
    if name in ("algorithm", "task"):
        return str(value)
    shown = value_types.show(value) if isinstance(value, float) else value
    return f"{name}={shown}"


@checked
def to_thresholds(
    runs: FinishedRuns,
    column: str,
    thresholds: Sequence[float],
    axis: str = "round",
) -> pd.DataFrame:
    """Returns what it took to reach a value of a metric for the first time.

    Args:
      runs: The runs.
      column: The column of the metric, such as "test_accuracy".
      thresholds: Values to reach: from below, or from above if the column `falls`.
      axis: What to count: one of `AXES`.

    Returns:
      A row per run and a column per threshold; NaN where it was not reached. The
      first evaluation that is good enough counts, so that the answer is as fine as
      evaluations are frequent.

    Raises:
      ValueError: If there is no such column or axis, or two thresholds are written
        alike.
    """
    if len({f"{threshold:g}" for threshold in thresholds}) < len(thresholds):
        shown = ", ".join(map(str, thresholds))
        raise ValueError(
            f"thresholds must differ in their first six digits, found {shown}."
        )
    total = axis_column(runs, axis)
    rows = measured(runs, column)
    sign = -1 if falls(runs, column) else 1
    found = {
        threshold: rows[sign * rows[column] >= sign * threshold]
        .groupby("run")[total]
        .first()
        for threshold in thresholds
    }
    return pd.DataFrame(found, index=runs.settings.index)


@checked
def axis_column(runs: FinishedRuns, axis: str) -> str:
    """Returns the column of an axis.

    Args:
      runs: The runs.
      axis: One of `AXES`.

    Raises:
      ValueError: If there is no such axis, or no run has it.
    """
    if axis not in AXES:
        raise ValueError(
            f"axis must be one of {', '.join(AXES)}, found {checks.shown(axis)}."
        )
    if AXES[axis] not in runs.rounds:
        raise ValueError(f"no run measured {axis}.")
    return AXES[axis]


@checked
def last_mean(
    runs: FinishedRuns, columns: Sequence[str], last: int = 1
) -> pd.DataFrame:
    """Returns the mean of columns over the last rounds of each run.

    Reddi et al. (2021), Adaptive Federated Optimization, Table 1, take the last 100.
    https://arxiv.org/abs/2003.00295

    Args:
      runs: The runs.
      columns: The columns.
      last: The number of rounds at the end; those count in which the column was
        measured. Round 0, the initial model, counts only where it is all there is.

    Returns:
      A row per run and a column per column. NaN where a value is NaN, so that what
      broke down does not look good, or where nothing was measured.

    Raises:
      ValueError: If there is no such column.
    """
    found = {}
    for column in columns:
        rows = measured(runs, column)
        # A callback may have stopped a run before its last round.
        end = rows["run"].map(runs.rounds.groupby("run")["round"].max())
        rows = rows[rows["round"] > end - last]
        trained = rows["round"].groupby(rows["run"]).transform("max") > 0
        rows = rows[(rows["round"] > 0) | ~trained]
        found[column] = rows.groupby("run")[column].agg(
            lambda one: one.mean(skipna=False)
        )
    return pd.DataFrame(found, index=runs.settings.index)


@checked
def last_rounds(runs: FinishedRuns, last: int = 1) -> str:
    """Returns what `last_mean` is the mean of, such as "the last 100 rounds".

    Args:
      runs: The runs.
      last: As in `last_mean`. Runs may be shorter.
    """
    ends = runs.rounds.groupby("run")["round"].max()
    number = min(last, int(ends.max()))
    if number <= 1:
        return "the last round"
    of_shorter = " (all of shorter runs)" if ends.min() < number else ""
    return f"the last {number} rounds{of_shorter}"


@checked
def failed(runs: FinishedRuns) -> pd.Series:
    """Returns which runs broke down in any round, as 1 or 0 by run.

    A round whose clients were all rejected counts. The mean over runs is the rate of
    failed trials of Charles et al. (2021), On Large-Cohort Training for Federated
    Learning, Figure 1.
    https://arxiv.org/abs/2106.07820

    Args:
      runs: The runs.
    """
    columns = [name for name in _FAILURES if name in runs.rounds]
    broke = runs.rounds[columns].fillna(0).ne(0).any(axis=1) | _rejected(runs)
    by_run = broke.groupby(runs.rounds["run"]).any().astype(float)
    return by_run.reindex(runs.settings.index).rename("failed")


def untrained(runs: FinishedRuns) -> pd.Series:
    """Returns which runs rejected every client of every round, by run.

    Their model is the initial one.

    Args:
      runs: The runs.
    """
    rounds = runs.rounds
    trained = rounds.get(_TRAINED, pd.Series(0, rounds.index)).fillna(0) > 0
    by_run = _rejected(runs)[trained].groupby(rounds["run"][trained]).all()
    return by_run.reindex(runs.settings.index, fill_value=False).rename("untrained")


def _rejected(runs: FinishedRuns) -> pd.Series:
    """Returns in which rounds every client was rejected, as `failures` tells it."""
    if not {_TRAINED, _REJECTED} <= set(runs.rounds):
        return pd.Series(False, runs.rounds.index)
    cohort = runs.rounds[_TRAINED]
    return (cohort > 0) & (runs.rounds[_REJECTED] >= cohort)


@checked
def over_seeds(values: pd.DataFrame, labels: pd.Series) -> pd.DataFrame:
    """Returns means and standard deviations over the runs of each label.

    Args:
      values: A row per run.
      labels: What each run is called, as of `labels`.

    Returns:
      A row per label, in the order of their first runs: `seeds`, the number of runs,
      and for each column its mean and, named `<column>_sd`, the standard deviation
      of a sample, NaN for a single run. A NaN among the values makes NaN of both, an
      infinite one of the deviation.
    """
    groups = values.groupby(labels.reindex(values.index), sort=False)
    table = pd.DataFrame({"seeds": groups.size()})
    # Of infinities.
    with np.errstate(invalid="ignore"):
        for name in values:
            table[name] = groups[name].agg(_mean)
            table[f"{name}_sd"] = groups[name].agg(lambda one: one.std(skipna=False))
    return table


def _mean(values: pd.Series) -> float:
    """Returns the mean: of equal numbers that number, which their sum may miss."""
    first = values.iloc[0]
    return float(first if (values == first).all() else values.mean(skipna=False))


@checked
def curves(
    runs: FinishedRuns, column: str, axis: str, labels: pd.Series
) -> pd.DataFrame:
    """Returns a column against an axis, over the runs of each label.

    Args:
      runs: The runs.
      column: The column.
      axis: One of `AXES`.
      labels: What each run is called, as of `labels`.

    Returns:
      A row per label and round: `label`, `round`, `x` (the axis' mean over seeds) and
      the column's `mean`, `sd`, `min` and `max`; NaN where a seed has none.

    Raises:
      ValueError: If there is no such column or axis.
    """
    total = axis_column(runs, axis)
    rows = measured(runs, column)
    rows = rows.assign(label=rows["run"].map(labels))
    by_round = rows.groupby(["label", "round"], sort=False)
    values = by_round[column]
    table = values.agg(["mean", "std", "min", "max"])
    table = table.rename(columns={"std": "sd"})
    # Where a seed broke down or has ended there is no mean, rather than that of others.
    seeds = rows.groupby("label")["run"].nunique()
    of_all = values.count() == seeds.reindex(table.index, level="label")
    table = table[of_all].reindex(table.index)
    table.insert(0, "x", by_round[total].mean())
    return table.reset_index()
