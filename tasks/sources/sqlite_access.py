"""Opening of SQLite files to read, with errors that say what to do."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
import urllib.parse
from collections.abc import Iterator

from tasks.sources import example_checks
from tff_drift import checks, files

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"


def check_header(path: pathlib.Path) -> None:
    """Raises unless a file is a whole SQLite file by its first bytes and its size.

    Args:
      path: The file.

    Raises:
      DataError: If it is not.
    """
    try:
        with files.open_regular(path) as file:
            header = file.read(_HEADER_BYTES)
        found = path.stat().st_size
    except OSError as error:
        raise example_checks.unreadable(str(path), error) from error
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise example_checks.DataError(
            f"{path} is not a SQLite file. Put TFF's unpacked file in its place; a "
            "file that ends in .lzma must be unpacked first."
        )
    page_bytes = int.from_bytes(header[16:18], "big")
    # The format has no room for 65536 in two bytes and writes 1 for it.
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    # Bytes 28 to 31 count the pages, and hold if the two change counters agree.
    pages = int.from_bytes(header[28:32], "big")
    expected = page_bytes * pages
    if header[24:28] == header[92:96] and found < expected:
        raise example_checks.DataError(
            f"{path} is truncated: it has {found} bytes of {expected}. Delete it and "
            "fetch it again."
        )


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    """Opens a file to read; SQLite's errors, at opening and later, become DataErrors.

    Args:
      path: The file.

    Yields:
      The connection, closed at the end.

    Raises:
      DataError: If the file cannot be read, is locked or damaged.
    """
    with errors_of(path), contextlib.closing(connect(path)) as connection:
        yield connection


def connect(path: pathlib.Path) -> sqlite3.Connection:
    """Opens a file to read, for threads that take turns.

    Args:
      path: The file.

    Raises:
      sqlite3.Error: If it cannot be opened.
    """
    if not path.is_file():
        raise sqlite3.OperationalError("unable to open database file: it is no file")
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


@contextlib.contextmanager
def errors_of(
    path: pathlib.Path, if_damaged: str = "delete it and fetch it again"
) -> Iterator[None]:
    """Turns SQLite's errors into DataErrors that name the file.

    Args:
      path: The file that is read.
      if_damaged: What to do with a damaged file.

    Yields:
      Nothing.

    Raises:
      DataError: For any error of SQLite, and for texts that are none.
    """
    try:
        yield
    # The latter for a text that is damaged, one that SQLite quotes too.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if "locked" in str(error) or "busy" in str(error):
            remedy = "Another program is writing to it: try again when it is done."
        elif "unable to open" in str(error):
            remedy = "Check the file, its folder and their rights."
        else:
            remedy = f"It may be damaged: {if_damaged}."
        raise example_checks.DataError(
            f"{path} cannot be read as a SQLite file ({checks.shortened(error)}). "
            f"{remedy}"
        ) from error
