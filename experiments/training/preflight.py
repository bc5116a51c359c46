"""Checks of output folders before any training starts.

`tff_drift.simulation.run_training` checks its own folder when it begins. A
comparison wants to know of all its folders before it trains for hours.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Sequence

from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.reports import comparison
from tff_drift import files
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
