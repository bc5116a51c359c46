"""Finished runs, read from the files in their folders."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.analysis.folders import (
    CONFIGURATION,
    METRICS,
    SUMMARY,
    Run,
    runs_below,
)
from tff_drift import checks

_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)")

# What a metric can be seen against, by its name for users, with the column of
# `FinishedRuns.rounds`: all are totals since the start of the run.
AXES = {
    "round": "round",
    "examples": "total_examples",
    "bytes": "total_bytes",
    "seconds": "total_seconds",
    "simulated_seconds": "total_simulated_seconds",
}
# Those that metrics.csv has of single rounds, in columns of these names.
_BY_ROUND = ("seconds", "simulated_seconds")


@dataclasses.dataclass(frozen=True, eq=False)
class FinishedRuns:
    """Runs that have come to their end.

    Attributes:
      settings: A row per run, by the run's folder: what its results depend on, in
        columns named as the flags of `tff-drift train`, and `clients`, the number of
        training clients.
      rounds: A row per run and round, in order: `run`, `round` (0 is the initial
        model), the columns of metrics.csv, and the totals of `AXES`. NaN where a
        column was not measured.
      unfinished: The folders of runs that were left out, because they have rounds to
        go.
      repeated: The folders of runs that were left out, because another one has the
        same settings and the same seed: two of them are no two seeds.
      plugins: The files of the user's that runs were made with, in alphabetical order.
    """

    settings: pd.DataFrame
    rounds: pd.DataFrame
    unfinished: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def read(*folders: str | os.PathLike[str]) -> FinishedRuns:
    """Reads all finished runs in some folders and in the folders below them.

    Where a comparison keeps the metrics of all its runs in one table, as those that are
    committed do, the runs are read from it. Of runs with the same settings and the same
    seed the first one counts.

    Args:
      *folders: Folders of `tff-drift train`, `compare`, `sweep` or `preset`, or
        folders of such.

    Returns:
      The runs, by the names of their folders in alphabetical order, and by numbers in
      these in theirs.

    Raises:
      FileNotFoundError: If a folder does not exist.
      TypeError: If a folder is not a path.
      ValueError: If there is no folder, no finished run in one, or a file is damaged.
    """
    if not folders:
        raise ValueError("folders is empty. Name a folder of runs.")
    for each in folders:
        checks.check_path("folders", each)
    found: list[Run] = []
    for folder in map(pathlib.Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(f"{str(folder)!r} is not a folder.")
        here = list(runs_below(folder))
        if not any(run.is_finished for run in here):
            raise ValueError(
                f"{str(folder)!r} holds no finished run, which is a folder with "
                f"{CONFIGURATION}, {METRICS[0]} and {SUMMARY}."
            )
        found += here
    return gather(found)


def gather(runs: Iterable[Run], order: Sequence[str] = ()) -> FinishedRuns:
    """Returns the tables of runs.

    Args:
      runs: The runs, one of them finished at least; one that comes twice counts once.
      order: The names of those to come first, all of which are kept; the others are
        ordered as in `read`.

    Raises:
      ValueError: If a file is damaged.
    """
    settings: dict[str, Mapping[str, Any]] = {}
    rounds, unfinished, repeated = [], [], []
    plugins: list[str] = []
    for run in runs:
        if not run.is_finished:
            unfinished.append(run.name)
        elif run.name in settings:
            continue
        elif run.name not in order and run.settings in settings.values():
            repeated.append(run.name)
        else:
            settings[run.name] = run.settings
            rounds.append(_with_totals(run.read(), run.name))
            plugins += run.plugins
    names = [name for name in dict.fromkeys(order) if name in settings]
    names += sorted(set(settings) - set(names), key=_by_numbers)
    places = {name: place for place, name in enumerate(names)}
    table = pd.DataFrame.from_dict(settings, orient="index").loc[names]
    # Lists cannot be compared or grouped by.
    table = table.map(lambda value: tuple(value) if isinstance(value, list) else value)
    table.index.name = "run"
    everything = pd.concat(rounds, ignore_index=True)
    everything = everything.sort_values(
        ["run", "round"],
        ignore_index=True,
        key=lambda column: column.map(places) if column.name == "run" else column,
    )
    others = (tuple(sorted(set(each))) for each in (unfinished, repeated, plugins))
    return FinishedRuns(table, everything, *others)


def _by_numbers(run: str) -> list[str | float]:
    """Returns the parts of a folder's name, numbers as such: 5 comes before 20."""
    parts = _NUMBER.split(run)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def _with_totals(frame: pd.DataFrame, run: str) -> pd.DataFrame:
    """Returns the metrics of a run with its name and their totals."""
    for axis in _BY_ROUND:
        if axis in frame:
            frame[AXES[axis]] = frame[axis].fillna(0).cumsum()
    for total in AXES.values():
        if total in frame:
            # The initial model has cost nothing.
            frame[total] = frame[total].ffill().fillna(0)
    frame.insert(0, "run", run)
    return frame
