"""Finished runs, read from the files in their folders."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

_CONFIGURATION, _SUMMARY = "config.json", "summary.json"
_METRICS = ("metrics.csv", "metrics.csv.gz")
_RUN, _SUMMARY_OF_RUN = "tff_drift run", "tff_drift summary"

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
# Columns of single rounds, with the columns of their totals.
_SUMMED = {
    "seconds": "total_seconds",
    "simulated_seconds": "total_simulated_seconds",
}


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
    """

    settings: pd.DataFrame
    rounds: pd.DataFrame
    unfinished: tuple[str, ...] = ()


def read(*folders: str | os.PathLike[str]) -> FinishedRuns:
    """Reads all finished runs in some folders and in the folders below them.

    Args:
      *folders: Folders of `tff-drift train`, `compare`, `sweep` or `preset`, or
        folders of such.

    Returns:
      The runs, by the names of their folders in alphabetical order, and by numbers in
      these in theirs.

    Raises:
      FileNotFoundError: If a folder does not exist.
      ValueError: If there is no finished run in a folder, or a file is damaged.
    """
    settings: dict[str, Mapping[str, Any]] = {}
    rounds, unfinished = [], []
    for folder in map(pathlib.Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(f"{str(folder)!r} is no folder.")
        found = list(_runs_below(folder))
        for path in found:
            try:
                configuration = _json(path / _CONFIGURATION)["configuration"]
                summary = _json(path / _SUMMARY)
                if summary.get("rounds") != configuration["rounds"]:
                    unfinished.append(str(path))
                elif str(path) not in settings:
                    clients = {"clients": summary["clients"]}
                    settings[str(path)] = {**configuration, **clients}
                    rounds.append(_rounds(path))
            except (KeyError, TypeError) as error:
                raise ValueError(f"{str(path)!r} is damaged: no {error}.") from error
        if not any(str(path) in settings for path in found):
            raise ValueError(
                f"{str(folder)!r} holds no finished run, which is a folder with "
                f"{_CONFIGURATION}, {_METRICS[0]} and {_SUMMARY}."
            )
    order = {run: place for place, run in enumerate(sorted(settings, key=_by_numbers))}
    table = pd.DataFrame.from_dict(settings, orient="index").loc[list(order)]
    # Lists cannot be compared or grouped by.
    table = table.map(lambda value: tuple(value) if isinstance(value, list) else value)
    table.index.name = "run"
    everything = pd.concat(rounds, ignore_index=True)
    everything = everything.sort_values(
        ["run", "round"],
        ignore_index=True,
        key=lambda column: column.map(order) if column.name == "run" else column,
    )
    return FinishedRuns(table, everything, tuple(sorted(set(unfinished))))


def _runs_below(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folders of runs, in a folder and below."""
    for path in sorted(folder.rglob(_CONFIGURATION)):
        has_metrics = any((path.parent / name).is_file() for name in _METRICS)
        if has_metrics and _json(path).get("format") == _RUN:
            yield path.parent


def _by_numbers(run: str) -> list[str | float]:
    """Returns the parts of a folder's name, numbers as such: 5 comes before 20."""
    parts = _NUMBER.split(run)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def _json(path: pathlib.Path) -> dict[str, Any]:
    """Returns what a file says, nothing if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{str(path)!r} is damaged: it holds no JSON object.")
    return content


def _rounds(folder: pathlib.Path) -> pd.DataFrame:
    """Returns the metrics of a run with their totals."""
    path = next(folder / name for name in _METRICS if (folder / name).is_file())
    try:
        frame = pd.read_csv(path)
        frame[["round"]]
    except (ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    for column, total in _SUMMED.items():
        if column in frame:
            frame[total] = frame[column].fillna(0).cumsum()
    for total in AXES.values():
        if total in frame:
            # The initial model has cost nothing.
            frame[total] = frame[total].ffill().fillna(0)
    frame.insert(0, "run", str(folder))
    return frame
