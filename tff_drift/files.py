"""Writing files so that a kill at any moment leaves the old or the new one."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable
from typing import BinaryIO


def temporary_path(path: pathlib.Path) -> pathlib.Path:
    """Returns the path of the file that is written before it replaces `path`."""
    return path.with_name(f".{path.name}.tmp")


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in a folder durable, as `fsync` does for a file's bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: pathlib.Path, write: Callable[[BinaryIO], object]) -> None:
    """Replaces a file by a new one in one step.

    The bytes go to a temporary file in the same folder, are made durable, and
    only then take the name `path`. A reader, or a program that starts after a
    kill, finds the whole old file or the whole new one.

    Args:
      path: The file to create or replace.
      write: Writes the new content to the open file it is given.

    Raises:
      OSError: If the file cannot be written; the old one is untouched.
    """
    temporary = temporary_path(path)
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
