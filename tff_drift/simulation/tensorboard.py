"""The rows of a run as TensorBoard scalars."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
from collections.abc import Iterable

from tff_drift import compat
from tff_drift.simulation.metrics import ROUND, Row


class TensorBoardLog:
    """Releases rows through `tff.program.TensorBoardReleaseManager`.

    TensorBoard's writer keeps events in memory for a while, so a kill loses some.
    The log therefore begins anew whenever it is opened: event files of earlier
    openings are removed and the rows known so far are written again.
    """

    def __init__(self, folder: pathlib.Path, rows: Iterable[Row] = ()) -> None:
        """Removes the folder's event files and releases the rows so far.

        Args:
          folder: The folder of the event files; it is created if need be.
          rows: The rows to begin with.
        """
        for path in folder.glob("events.out.tfevents.*"):
            path.unlink()
        self._manager = compat.TensorBoardReleaseManager(str(folder))
        # A thread of its own, because a notebook runs an event loop in the main
        # thread, where `asyncio.run` would refuse to run.
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Releases a row under its round number.

        Args:
          row: The row.
        """
        values = {name: value for name, value in row.items() if name != ROUND}
        release = self._manager.release(values, key=int(row[ROUND]))
        self._thread.submit(asyncio.run, release).result()

    def close(self) -> None:
        """Writes what is in memory and ends the log."""
        self._thread.shutdown()
        # The manager has no method to close; its writer does so when it goes.
        del self._manager
