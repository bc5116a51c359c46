"""Checksums of clients' examples in SQLite files that `tasks.write_sqlite` writes.

SQLite finds damage to its own structure, but not a bit that flips within a value.
The table here has a checksum per client. TFF's loaders pass over it, and its
official files lack it.
"""

from __future__ import annotations

import hashlib
import pathlib
import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from tasks.sources import example_checks

TABLE = """
    CREATE TABLE client_checksums (
        split_name TEXT NOT NULL,
        client_id TEXT NOT NULL,
        crc32 INTEGER NOT NULL,
        PRIMARY KEY (split_name, client_id)
    ) WITHOUT ROWID;
"""
_DAMAGED = "The file is damaged: write it again."


def checksum(protos: Iterable[bytes]) -> int:
    """Returns the checksum of a client's serialized examples.

    Args:
      protos: The examples, in their order.
    """
    total = 0
    for proto in protos:
        # With their lengths: bytes that move to the next example count as well.
        total = zlib.crc32(len(proto).to_bytes(8, "little"), total)
        total = zlib.crc32(proto, total)
    return total


def check_counts(connection: sqlite3.Connection, path: pathlib.Path) -> bool:
    """Returns whether a file has checksums, of as many clients as it has.

    Args:
      connection: The open file.
      path: The file, for messages.

    Raises:
      DataError: If there are checksums, but not one per client.
    """
    query = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'client_checksums'"
    if not connection.execute(query).fetchone()[0]:
        return False
    clients, checksums = (
        connection.execute(
            f"SELECT split_name, COUNT(*) FROM {table} GROUP BY split_name "
            "ORDER BY split_name"
        ).fetchall()
        for table in ("client_metadata", "client_checksums")
    )
    if clients != checksums:
        raise example_checks.DataError(
            f"{path} has {clients} clients by split, but {checksums} checksums. "
            f"{_DAMAGED}"
        )
    return True


def sha256(connection: sqlite3.Connection, split_names: Sequence[str]) -> str:
    """Returns a hash of splits' clients and of their checksums.

    Args:
      connection: The open file, which has checksums.
      split_names: The splits.
    """
    digest = hashlib.sha256()
    for split_name in split_names:
        rows = connection.execute(
            "SELECT client_id, crc32 FROM client_checksums WHERE split_name = ? "
            "ORDER BY client_id",
            (split_name,),
        )
        for row in rows:
            digest.update(repr(row).encode())
        digest.update(split_name.encode())
    return digest.hexdigest()


def check(
    connection: sqlite3.Connection,
    split_name: str,
    client_id: str,
    found: int,
    where: str,
) -> None:
    """Raises unless a client's examples have the checksum that was written.

    Args:
      connection: The open file.
      split_name: The split.
      client_id: The client.
      found: The checksum of the examples as they are.
      where: The file and the client, for messages.

    Raises:
      DataError: If there is another checksum, or none.
    """
    row = connection.execute(
        "SELECT crc32 FROM client_checksums WHERE split_name = ? AND client_id = ?",
        (split_name, client_id),
    ).fetchone()
    if row is None or row[0] != found:
        raise example_checks.DataError(
            f"{where} has other examples than were written, by their checksum. "
            f"{_DAMAGED}"
        )
