"""Rows given to TFF's release managers, that of TensorBoard among them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_drift import checks, compat
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records.metrics import ROUND
from tff_drift.simulation.records.output_dir import TENSORBOARD_FOLDER
from tff_drift.simulation.records.results import TrainingResult


class ReleaseRows(Callback):
    """Releases every row to a `tff.program.ReleaseManager`, under its round number.

    `run_training` makes this of a release manager among its callbacks. After a kill
    the rounds since the last checkpoint are trained again, and their rows released
    again under the same numbers: TFF's CSV manager then replaces them.
    """

    def __init__(self, manager: compat.ReleaseManager) -> None:
        """Initializes the callback.

        Args:
          manager: The release manager.

        Raises:
          TypeError: If it is not one.
        """
        checks.check_instance("manager", manager, compat.ReleaseManager)
        self._manager = manager

    def before_training(self, run: TrainingRun) -> None:
        """Begins to release."""
        del run
        # A thread of its own, because a notebook runs an event loop in the main
        # thread, where `asyncio.run` would refuse to run.
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Releases a row."""
        values = {name: value for name, value in row.items() if name != ROUND}
        release = self._manager.release(values, key=int(row[ROUND]))
        self._thread.submit(asyncio.run, release).result()

    def after_training(self, result: TrainingResult | None) -> None:
        """Ends the thread."""
        del result
        self._thread.shutdown()


class TensorBoard(Callback):
    """Writes the rows as TensorBoard scalars, by TFF's release manager.

    TensorBoard's writer keeps events in RAM for a while, so a kill loses some. The
    events therefore begin anew with every program: event files of earlier ones are
    removed, and the rows known so far are written again.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Initializes the callback.

        Args:
          folder: The folder of the event files, created if necessary; by default
            `tensorboard` in the folder of the run.

        Raises:
          TypeError: If `folder` is not a path.
          ValueError: If it is empty or holds a NUL character.
        """
        if folder is not None:
            checks.check_path("folder", folder)
        self._folder = None if folder is None else pathlib.Path(folder).absolute()
        self._release: ReleaseRows | None = None

    def before_training(self, run: TrainingRun) -> None:
        """Removes the folder's event files and writes the rows so far.

        Raises:
          ValueError: If there is neither a `folder` nor a folder of the run.
        """
        folder = self._folder
        if folder is None:
            if run.folder is None:
                raise ValueError(
                    "TensorBoard has no folder, and output_dir is None. Give either."
                )
            folder = run.folder / TENSORBOARD_FOLDER
        for path in folder.glob("events.out.tfevents.*"):
            path.unlink()
        self._release = ReleaseRows(compat.TensorBoardReleaseManager(str(folder)))
        self._release.before_training(run)
        for row in run.rows:
            self._release.after_row(row)

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Writes a row."""
        assert self._release is not None
        self._release.after_row(row)

    def after_training(self, result: TrainingResult | None) -> None:
        """Writes what is in RAM."""
        if self._release is not None:
            self._release.after_training(result)
        # The manager has no method to close; its writer does so when it goes.
        self._release = None
