"""Files that a kill at any moment leaves old or new, and that are read as files.

All that the library writes is opened here: a name that somebody has made a link leads
no write out of its folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

_NO_FILE = "It is not a regular file"
# Of what a file of the library's has in JSON: parsed, it takes some twenty times as
# much RAM.
_MOST_JSON = 2**24


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


def create(path: pathlib.Path) -> BinaryIO:
    """Opens a new file to write, in place of whatever has its name.

    Args:
      path: The file. A link of the name is removed, and not followed.

    Raises:
      OSError: If it cannot be created.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def open_in_place(path: pathlib.Path, flags: int) -> int:
    """Opens a file that exists, to write to it where it is.

    Args:
      path: The file; links to files are none.
      flags: Those of `os.open`, such as `os.O_RDWR`.

    Returns:
      The descriptor.

    Raises:
      OSError: If it cannot be opened, or is a link or another thing than a file.
    """
    check_in_place(path)
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _checked_regular(os.open(path, flags | more), path)


def check_in_place(path: pathlib.Path) -> None:
    """Raises an `OSError` unless there is a regular file, rather than a link to one.

    For packages that open a file by its name to write to it, such as SQLite.

    Args:
      path: The file.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, _NO_FILE, str(path))


def is_file(path: pathlib.Path) -> bool:
    """Returns whether there is a regular file, rather than a link or a device."""
    try:
        check_in_place(path)
    except OSError:
        return False
    return True


def make_folder(path: pathlib.Path, inside: pathlib.Path | None = None) -> None:
    """Makes a folder and those above it, if they are not there.

    Args:
      path: The folder.
      inside: The folder, named by the user, that it must lie in, wherever links lead;
        `None` if the user has named it itself.

    Raises:
      OSError: If it cannot be made, or is elsewhere.
    """
    if inside is not None:
        check_inside(path, inside)
    path.mkdir(parents=True, exist_ok=True)


def check_inside(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Raises an `OSError` if links lead a path out of a folder.

    Args:
      path: The path, of what there is or is to be.
      folder: The folder, which the user has named.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(errno.EINVAL, f"A link leads out of {str(folder)!r}", str(path))


def open_regular(path: pathlib.Path, follow_links: bool = True) -> BinaryIO:
    """Opens a file to read, if it is one: pipes and devices could be read forever.

    Args:
      path: The file, or a link to it.
      follow_links: Whether it may be a link.

    Raises:
      OSError: If it cannot be opened, or is not a regular file.
    """
    if not follow_links:
        check_in_place(path)
    # Without waiting: a pipe has no end until somebody writes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    return os.fdopen(_checked_regular(descriptor, path), "rb")


def _checked_regular(descriptor: int, path: pathlib.Path) -> int:
    """Returns the descriptor of a regular file; closes that of another thing."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    return descriptor


def read_bytes(path: pathlib.Path, most: int, follow_links: bool = True) -> bytes:
    """Returns what a file holds.

    Args:
      path: The file, or a link to it.
      most: The largest number of bytes that it may have.
      follow_links: Whether it may be a link.

    Raises:
      OSError: If it cannot be read, is not a regular file, or has more bytes.
    """
    with open_regular(path, follow_links) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"It has more than {most:,} bytes", str(path))
    return content


def read_json(path: pathlib.Path, most: int = _MOST_JSON) -> Any:
    """Returns what a file of the library's says in JSON.

    Args:
      path: The file, or a link to it.
      most: The largest number of bytes that it may have.

    Raises:
      OSError: If it cannot be read, is not a regular file, or has more bytes.
      ValueError: If it is not JSON in UTF-8.
    """
    try:
        return json.loads(read_bytes(path, most).decode())
    except RecursionError as error:
        raise ValueError("its brackets are too many to read") from error


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
        with create(temporary) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
