"""An index of each client's rows in a SQLite file of TFF's format.

The official files have no index on clients: finding one client's rows is a pass
over the whole file, tens of gigabytes for Stack Overflow. The index here costs one
pass, once: it is kept in a small file beside the data, and later openings of the
data only look rows up in it. It is a SQLite file itself, so that neither building
nor using it holds the rows in RAM.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from absl import logging

from tasks.sources import example_checks, sqlite_access
from tff_drift import checks

# Smaller files are passed over in a moment, and need no second file.
_KEPT_FROM_BYTES = 64 * 2**20
# What is added to the name of a file for that of its index.
SUFFIX = ".rows"
# Part of the fingerprint: indices written by other versions are not read.
_VERSION = "tff_drift rows 2"

_IF_DAMAGED = "delete it, and it is made anew"

_TABLES = """
    CREATE TABLE source (fingerprint TEXT NOT NULL);
    CREATE TABLE clients (
        number INTEGER PRIMARY KEY, split_name TEXT NOT NULL, client_id TEXT NOT NULL,
        num_rows INTEGER
    );
    CREATE TABLE runs (
        client INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL
    );
"""
_INDICES = """
    CREATE UNIQUE INDEX clients_by_name ON clients (split_name, client_id);
    CREATE INDEX runs_by_client ON runs (client, first, last);
"""
# By it, runs that damage has changed or lost are noticed.
_COUNTS = """
    UPDATE clients SET num_rows = (
        SELECT SUM(last - first + 1) FROM runs WHERE client = clients.number
    );
"""


class RowIndex:
    """The clients of a SQLite file of TFF's format, and the rows of each.

    Instances may be used from several threads.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Opens the index of a file, or makes it if there is none that fits.

        Args:
          path: The file, of the format that `sqlite_files.check_file` checks.

        Raises:
          DataError: If the file cannot be read.
        """
        self._lock = threading.Lock()
        self._path = path.with_name(path.name + SUFFIX)
        with sqlite_access.errors_of(path):
            self._connection = _open(path)

    def client_ids(self, split_name: str) -> list[str]:
        """Returns the ids of a split's clients, sorted.

        Args:
          split_name: The split.

        Raises:
          DataError: If the index is damaged.
        """
        # Client numbers follow the order of splits and ids.
        query = "SELECT client_id FROM clients WHERE split_name = ? ORDER BY number"
        return [row[0] for row in self._fetch(query, (split_name,))]

    def runs(self, split_name: str, client_id: str) -> list[tuple[int, int]]:
        """Returns the first and the last row of every run of a client's rows.

        Args:
          split_name: The split.
          client_id: The client.

        Returns:
          Row numbers of the table `examples`, in ascending order; none if the
          client is unknown or has no rows.

        Raises:
          DataError: If the index is damaged.
        """
        clients = "SELECT number, num_rows FROM clients WHERE split_name = ? AND "
        found = self._fetch(clients + "client_id = ?", (split_name, client_id))
        if not found:
            return []
        ((number, num_rows),) = found
        query = "SELECT first, last FROM runs WHERE client = ? ORDER BY first"
        runs = self._fetch(query, (number,))
        try:
            is_whole = sum(last - first + 1 for first, last in runs) == (num_rows or 0)
        except TypeError:  # What damage left is not a number.
            is_whole = False
        if not is_whole:
            raise example_checks.DataError(
                f"{self._path}: the rows of client {checks.shown(client_id)} are not "
                f"as many as they were. The file is damaged: {_IF_DAMAGED}."
            )
        return runs

    def _fetch(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock, sqlite_access.errors_of(self._path, _IF_DAMAGED):
            return self._connection.execute(query, values).fetchall()


def _open(path: pathlib.Path) -> sqlite3.Connection:
    kept = path.with_name(path.name + SUFFIX)
    is_large = path.stat().st_size >= _KEPT_FROM_BYTES
    if is_large and (_fits(path, kept) or _was_written(path, kept)):
        return sqlite_access.connect(kept)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    _build(path, connection)
    return connection


def _fingerprint(path: pathlib.Path) -> str:
    """Returns what changes whenever the file does."""
    status = path.stat()
    return f"{_VERSION}: {status.st_size} bytes, changed {status.st_mtime_ns}"


def _fits(path: pathlib.Path, kept: pathlib.Path) -> bool:
    """Returns whether there is an index, and it was made of the file as it is."""
    if not kept.is_file():
        return False
    try:
        with sqlite_access.reading(kept) as connection:
            found = connection.execute("SELECT fingerprint FROM source").fetchone()
    except example_checks.DataError:
        return False
    return found is not None and found[0] == _fingerprint(path)


def _was_written(path: pathlib.Path, kept: pathlib.Path) -> bool:
    """Writes the index of a file, if it can; returns whether it could."""
    logging.warning(
        "Passing over all of %s once, to find where each client's rows are.", path
    )
    try:
        _build_file(path, kept)
    except (OSError, sqlite3.OperationalError) as error:
        logging.warning(
            "%s cannot be written (%s): every opening of the data will pass over all "
            "of it.",
            kept,
            error,
        )
        return False
    return True


def _build_file(path: pathlib.Path, kept: pathlib.Path) -> None:
    # Written aside and then renamed: neither a crash nor another program that
    # builds the same index leaves half of one under the final name.
    handle, name = tempfile.mkstemp(prefix=kept.name, suffix=".part", dir=kept.parent)
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(name)) as connection:
            _build(path, connection)
        shutil.copymode(path, name)
        os.replace(name, kept)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)


def _build(path: pathlib.Path, index: sqlite3.Connection) -> None:
    """Fills an empty database with the index of the file at `path`."""
    # Taken before the rows are read: if the file changes meanwhile, the index
    # does not fit it.
    fingerprint = _fingerprint(path)
    index.execute("PRAGMA journal_mode = OFF")
    index.execute("PRAGMA synchronous = OFF")
    index.executescript(_TABLES)
    with contextlib.closing(sqlite_access.connect(path)) as data:
        clients = data.execute(
            "SELECT DISTINCT split_name, client_id FROM client_metadata "
            "ORDER BY split_name, client_id"
        ).fetchall()
        numbers = {client: number for number, client in enumerate(clients)}
        index.executemany(
            "INSERT INTO clients VALUES (?, ?, ?, NULL)",
            ((number, *client) for client, number in numbers.items()),
        )
        rows = data.execute(
            "SELECT rowid, split_name, client_id FROM examples ORDER BY rowid"
        )
        index.executemany(
            "INSERT INTO runs VALUES (?, ?, ?)",
            (
                (numbers[client], first, last)
                for client, first, last in _find_runs(rows)
                # Like TFF, which reads the clients of the table of clients.
                if client in numbers
            ),
        )
    index.executescript(_INDICES + _COUNTS)
    index.execute("INSERT INTO source VALUES (?)", (fingerprint,))
    index.commit()


def _find_runs(
    rows: Iterable[tuple[int, str, str]],
) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Yields split and client, first and last row of runs of successive rows."""
    client: tuple[str, str] | None = None
    first = last = 0
    for row, *key in rows:
        if client is not None and row == last + 1 and (key[0], key[1]) == client:
            last = row
            continue
        if client is not None:
            yield client, first, last
        client, first, last = (key[0], key[1]), row, row
    if client is not None:
        yield client, first, last
