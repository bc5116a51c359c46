"""The lock by which one program at a time has the folder of a run open."""

from __future__ import annotations

import fcntl
import os
import pathlib

from tff_drift.simulation.records import run_folder


class FolderLock:
    """Keeps other programs out of a folder until it is closed."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Takes the lock.

        Args:
          folder: The folder.

        Raises:
          OutputDirError: If another program has it.
        """
        self._folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise run_folder.refusal(
                folder,
                "is in use by another program that trains into it. Wait for its end, "
                "or choose another output_dir.",
            ) from error
        except OSError:
            # A file system without locks: the user has to take care.
            return

    def is_in_place(self) -> bool:
        """Whether the folder is where it was when the lock was taken."""
        opened = os.fstat(self._descriptor)
        try:
            return os.path.samestat(opened, os.stat(self._folder))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Lets other programs have the folder."""
        os.close(self._descriptor)
