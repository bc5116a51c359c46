"""Checks of the folders of runs, before a command trains any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.reports import results
from tff_drift import files, simulation
from tff_drift.simulation.records import run_directory, run_folder


def check_folder(settings: RunSettings, data: Mapping[str, Any]) -> None:
    """Creates the folder of a run and checks that the run may use it.

    `tff_drift.simulation.run_training` checks it when it begins. A comparison wants to
    know of all its folders before it trains for hours.

    Args:
      settings: The run.
      data: What says of which data it is, in the structure of a training's arguments.

    Raises:
      CheckpointError: If the checkpoint is damaged.
      MetricsFileError: If the metrics are damaged.
      OutputDirError: If the folder cannot be written, is in use, or holds other
        files, another run, or one of other data.
      UserError: If the run has more rounds than asked for.
    """
    with contextlib.closing(run_directory.RunDirectory(settings.folder)) as found:
        if found.saved_rounds is not None:
            found.identify(settings.configuration)
            found.check_data(data)
        completed = found.saved_rounds or 0
    if completed > settings.rounds:
        raise UserError(
            f"--rounds is {settings.rounds}, but the run in "
            f"{str(settings.folder)!r} has completed {completed}. Ask for at least as "
            "many, or choose another output_dir."
        )


def check_data(settings: RunSettings, data: Mapping[str, Any]) -> None:
    """Checks that a run that is over is of the data that is there now.

    Its config.json is enough: who lacks room may have removed the checkpoint.

    Args:
      settings: The run.
      data: As for `check_folder`.

    Raises:
      OSError: If config.json cannot be read.
      OutputDirError: If the data, or how it becomes batches, has changed.
      ValueError: If config.json is damaged.
    """
    was = _said(settings).get("training", {})
    run_folder.check_data(settings.folder, was, data)


def read_finished(settings: RunSettings) -> results.Result | None:
    """Returns the result of a run whose folder has all of it.

    Args:
      settings: The run, whose folder holds this run or none.

    Returns:
      The result; `None` if the run has rounds to go, which it has too if one of other
      callbacks stopped it, or its summary is damaged or that of another run. It is
      then written anew.

    Raises:
      MetricsFileError: If the metrics are damaged.
    """
    try:
        summary = files.read_json(settings.folder / results.SUMMARY_FILE)
        _, rows = simulation.read_rows(settings.folder / run_directory.METRICS_FILE)
        asked = _said(settings)["configuration"]["rounds"]
    except (OSError, KeyError, TypeError, ValueError):
        return None
    if not results.is_of(summary, rows, settings.task):
        return None
    # A run that was to go on, and was killed, has rows after those of its summary.
    if not summary["rounds"] == asked == settings.rounds:
        return None
    if summary.get("stop_reason") and "callbacks" in changed_circumstances(settings):
        return None
    return results.Result(settings, rows, summary)


def changed_circumstances(settings: RunSettings) -> list[str]:
    """Returns the flags that results do not depend on and that changed since a run.

    Args:
      settings: The run, whose folder holds it.
    """
    before = _said(settings).get("circumstances", {})
    return [
        name
        for name, value in results.json_values(settings.circumstances).items()
        if value != before.get(name)
    ]


def _said(settings: RunSettings) -> dict[str, Any]:
    """Returns what config.json says of a run."""
    path = settings.folder / run_directory.CONFIGURATION_FILE
    return files.read_json(path)
