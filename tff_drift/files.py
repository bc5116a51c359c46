"""Files that a kill at any moment leaves old or new, and that are read as files."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
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


def open_regular(path: pathlib.Path) -> BinaryIO:
    """Opens a file to read, if it is one: pipes and devices could be read forever.

    Args:
      path: The file, or a link to it.

    Raises:
      OSError: If it cannot be opened, or is not a regular file.
    """
    # Without waiting: a pipe has no end until somebody writes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


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
