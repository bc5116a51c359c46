"""What stands in output folders before any training starts: checks and finished runs.

`tff_drift.simulation.run_training` checks its own folder when it begins. A
comparison wants to know of all its folders before it trains for hours.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.reports import comparison, results
from tff_drift import files, simulation
from tff_drift.simulation.records import checkpoint, run_directory


def check_comparison_folder(
    folder: pathlib.Path, runs: Sequence[RunSettings] = ()
) -> None:
    """Creates the folder of a comparison and checks that it may be used.

    Args:
      folder: The folder.
      runs: Its runs, whose folders are in it.

    Raises:
      UserError: If it cannot be written, or holds something else.
    """
    try:
        files.make_folder(folder)
        for run in runs:
            files.check_inside(run.folder, folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"output_dir {str(folder)!r} cannot be written: {error}. Choose a folder "
            "that can be created and written."
        ) from error
    names = sorted(os.listdir(folder))
    if names and not _is_comparison(folder / run_directory.CONFIGURATION_FILE):
        raise UserError(
            f"output_dir {str(folder)!r} holds files, but no comparison of tff-drift: "
            f"{', '.join(names[:3])}. Choose an empty or a new folder."
        )


def _is_comparison(path: pathlib.Path) -> bool:
    try:
        return files.read_json(path)["format"] == comparison.FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check_run_folder(settings: RunSettings) -> int:
    """Creates the folder of a run and checks that the run may use it.

    Args:
      settings: The run.

    Returns:
      The rounds that the folder's checkpoint has completed, 0 if there is none.

    Raises:
      CheckpointError: If the checkpoint is damaged.
      MetricsFileError: If the metrics are damaged.
      OutputDirError: If the folder cannot be written, is in use, or holds other
        files or another run.
      UserError: If the run has more rounds than asked for.
    """
    path = settings.folder / run_directory.CHECKPOINT_FILE
    training, completed = {}, 0
    if path.is_file():
        saved = checkpoint.load_checkpoint(path)
        # The configuration says all that is to be compared here.
        training = saved.description.get("training", {})
        completed = saved.rounds_completed
    run_directory.RunDirectory(
        settings.folder, user_configuration=settings.configuration, training=training
    ).close()
    if completed > settings.rounds:
        raise UserError(
            f"--rounds is {settings.rounds}, but the run in "
            f"{str(settings.folder)!r} has completed {completed}. Ask for at least as "
            "many, or choose another output_dir."
        )
    return completed


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
