"""The files of runs: where they are, and what they say of settings and rounds."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from experiments import stored_files

CONFIGURATION, SUMMARY = "config.json", "summary.json"
METRICS = ("metrics.csv", "metrics.csv.gz")
RUN, COMPARISON = "tff_drift run", "tff_drift comparison"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its files describe it.

    Attributes:
      name: Its folder.
      settings: What its results depend on, and `clients`, the number of clients.
      is_finished: Whether it came to its end.
      read: Returns its metrics, a row per round.
      plugins: The files of the user's that it was made with.
    """

    name: str
    settings: Mapping[str, Any]
    is_finished: bool
    read: Callable[[], pd.DataFrame]
    plugins: tuple[str, ...] = ()


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
    allowance = stored_files.Allowance()
    for path in stored_files.find(folder, [CONFIGURATION]):
        metrics = _metrics(path.parent)
        content = stored_files.read_json(
            path, stored_files.Configuration, allowance=allowance
        )
        if content.get("format") == RUN:
            own.add(str(path.parent))
            yield _run(path.parent, content, metrics, allowance)
        elif content.get("format") == COMPARISON and metrics is not None:
            comparisons.append(path.parent)
    for place in comparisons:
        for run in kept(place, allowance):
            if run.name not in own:
                yield run


def _metrics(folder: pathlib.Path) -> pathlib.Path | None:
    paths = (folder / name for name in METRICS)
    return next((path for path in paths if stored_files.is_file(path)), None)


def read_summary(
    folder: pathlib.Path, inside: pathlib.Path | None = None
) -> dict[str, Any]:
    """Returns what a folder's summary says, nothing if there is none.

    Args:
      folder: The folder.
      inside: The folder that it must lie in.

    Raises:
      ValueError: If it is damaged.
    """
    return stored_files.read_json(folder / SUMMARY, stored_files.Summary, inside)


def _run(
    folder: pathlib.Path,
    content: Mapping[str, Any],
    metrics: pathlib.Path | None,
    allowance: stored_files.Allowance,
) -> Run:
    configuration = content.get("configuration") or {}
    if "task" not in configuration:
        raise ValueError(
            f"{str(folder)!r} holds a run of another program than tff-drift: its "
            f"{CONFIGURATION} names no task. Give folders of train, compare, sweep or "
            "preset."
        )
    stored_files.check(folder / CONFIGURATION, configuration, stored_files.RunSettings)
    summary = read_summary(folder)
    is_finished = summary.get("rounds") == configuration["rounds"]
    if is_finished and metrics is None:
        raise ValueError(
            f"{str(folder)!r} is damaged: it has a {SUMMARY} of a finished run, but no "
            f"file {METRICS[0]}. Put the file back, or remove the folder."
        )
    return Run(
        name=str(folder),
        settings={
            **configuration,
            "clients": _clients(folder, summary) if is_finished else None,
        },
        is_finished=is_finished,
        # Nobody reads a run that is not finished, which may have no rows yet.
        read=lambda: stored_files.read_metrics(
            metrics or folder / METRICS[0], allowance=allowance
        ),
        plugins=_plugins(content.get("circumstances")),
    )


def _plugins(circumstances: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns the values of --plugin."""
    given = (circumstances or {}).get("plugin")
    return tuple(map(str, given)) if isinstance(given, list) else ()


def _clients(folder: pathlib.Path, summary: Mapping[str, Any]) -> int:
    if summary.get("clients") is None:
        raise ValueError(f"{str(folder / SUMMARY)!r} is damaged: no 'clients'.")
    return summary["clients"]


def kept(
    folder: pathlib.Path, allowance: stored_files.Allowance | None = None
) -> Iterator[Run]:
    """Yields the runs of a comparison that are in its one table of metrics.

    Args:
      folder: Its folder.
      allowance: What may be read with it.

    Raises:
      ValueError: If there is no such table, or a file is damaged.
    """
    metrics = _metrics(folder)
    if metrics is None:
        raise ValueError(f"{str(folder)!r} has no {METRICS[1]}.")
    path = folder / CONFIGURATION
    content = stored_files.read_json(path, stored_files.Configuration)
    clients = _clients(folder, read_summary(folder))
    table = stored_files.read_metrics(metrics, ["method"], allowance)
    for settings in content.get("runs", []):
        stored_files.check(path, settings, stored_files.RunEntry)
        settings = dict(settings)
        name = settings.pop("folder")
        place = pathlib.PurePath(name)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"{str(path)!r} is damaged: {name!r} is not below it.")
        is_this = (table["method"] == str(place.parent)) & (
            table["seed"] == settings["seed"]
        )
        rows = table[is_this].drop(columns=["method", "seed"])
        yield Run(
            name=str(folder / name),
            settings={**settings, "clients": clients},
            is_finished=bool((rows["round"] == settings["rounds"]).any()),
            read=rows.copy,
            plugins=_plugins(content.get("flags")),
        )
