"""The files of runs: where they are, and what they say of settings and rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

CONFIGURATION, SUMMARY = "config.json", "summary.json"
METRICS = ("metrics.csv", "metrics.csv.gz")
RUN, COMPARISON = "tff_drift run", "tff_drift comparison"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its files tell it.

    Attributes:
      name: Its folder.
      settings: What its results depend on, and `clients`, the number of clients.
      is_finished: Whether it came to its end.
      read: Returns its metrics, a row per round.
    """

    name: str
    settings: Mapping[str, Any]
    is_finished: bool
    read: Callable[[], pd.DataFrame]


def runs_below(folder: pathlib.Path) -> Iterator[Run]:
    """Yields the runs in a folder and in those below it.

    A run has a folder of its own. Where a comparison keeps the metrics of all its runs
    in one table, with columns `method` and `seed`, and not their folders, a run is
    called as its folder would be.

    Args:
      folder: The folder.

    Raises:
      ValueError: If a file is damaged.
    """
    comparisons = []
    own = set()
    for path in sorted(folder.rglob(CONFIGURATION)):
        content, metrics = read_json(path), _metrics(path.parent)
        if metrics is None:
            continue
        if content.get("format") == RUN:
            own.add(str(path.parent))
            yield _run(path.parent, content, metrics)
        elif content.get("format") == COMPARISON:
            comparisons.append(path.parent)
    for place in comparisons:
        for run in kept(place):
            if run.name not in own:
                yield run


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns what a file says, nothing if there is none.

    Args:
      path: The file.

    Raises:
      ValueError: If it is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{str(path)!r} is damaged: it holds no JSON object.")
    return content


def _metrics(folder: pathlib.Path) -> pathlib.Path | None:
    return next((folder / name for name in METRICS if (folder / name).is_file()), None)


@contextlib.contextmanager
def _whole(folder: pathlib.Path) -> Iterator[None]:
    """Says that a folder is damaged where something is missing in its files."""
    try:
        yield
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(folder)!r} is damaged: no {error}.") from error


def _run(
    folder: pathlib.Path, content: Mapping[str, Any], metrics: pathlib.Path
) -> Run:
    with _whole(folder):
        configuration = content["configuration"]
        summary = read_json(folder / SUMMARY)
        is_finished = summary.get("rounds") == configuration["rounds"]
        clients = summary["clients"] if is_finished else None
    return Run(
        name=str(folder),
        settings={**configuration, "clients": clients},
        is_finished=is_finished,
        read=lambda: _read_csv(metrics, ["round"]),
    )


def kept(folder: pathlib.Path) -> Iterator[Run]:
    """Yields the runs of a comparison that are in its one table of metrics.

    Args:
      folder: Its folder.

    Raises:
      ValueError: If there is no such table, or a file is damaged.
    """
    metrics = _metrics(folder)
    if metrics is None:
        raise ValueError(f"{str(folder)!r} has no {METRICS[1]}.")
    with _whole(folder):
        content = read_json(folder / CONFIGURATION)
        clients = read_json(folder / SUMMARY)["clients"]
        table = _read_csv(metrics, ["method", "seed", "round"])
        for settings in content["runs"]:
            settings = dict(settings)
            name = settings.pop("folder")
            method = str(pathlib.PurePath(name).parent)
            is_this = (table["method"].astype(str) == method) & (
                table["seed"] == settings["seed"]
            )
            rows = table[is_this].drop(columns=["method", "seed"])
            yield Run(
                name=str(folder / name),
                settings={**settings, "clients": clients},
                is_finished=bool((rows["round"] == settings["rounds"]).any()),
                read=rows.copy,
            )


def _read_csv(path: pathlib.Path, columns: list[str]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
        frame[columns]
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    return frame
