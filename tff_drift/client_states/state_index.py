"""The index, in SQLite, of the slots in which clients' states are stored.

A row says: from version `valid_from` on, and before version `valid_to` if that is
not null, the state of `client_id` is in `slot`. The present state is the row whose
`valid_to` is null. Rows written after the last version carry the number that
follows it: whatever number the next version has, they belong to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tff_drift import files

# "tffd" in SQLite's header says whose file it is.
_APPLICATION_ID = 0x74666664
_FORMAT_VERSION = 1
_SQLITE_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

_SCHEMA = """
CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (version INTEGER PRIMARY KEY);
CREATE TABLE states (
  client_id BLOB NOT NULL,
  valid_from INTEGER NOT NULL,
  valid_to INTEGER,
  slot INTEGER NOT NULL UNIQUE,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (client_id, valid_from)
) WITHOUT ROWID;
CREATE INDEX superseded ON states (valid_to) WHERE valid_to IS NOT NULL;
"""
# SQLite keeps values of any kind in any column.
_WRONG_VALUES = """
SELECT 1 FROM states WHERE typeof(client_id) != 'blob' OR typeof(slot) != 'integer'
  OR slot < 0 OR typeof(valid_from) != 'integer' OR typeof(checksum) != 'integer'
  OR typeof(valid_to) NOT IN ('integer', 'null')
UNION ALL SELECT 1 FROM properties WHERE typeof(name) != 'text'
  OR typeof(value) != 'text' LIMIT 1
"""
_PRESENT = "FROM states WHERE client_id = ? AND valid_to IS NULL"
# Sums of hashes are taken modulo this: the order of the clients does not count.
_HASHES = 2**128


class Place(NamedTuple):
    """The slot of a client's state, and the checksum of its bytes."""

    key: bytes
    slot: int
    checksum: int


def _hash(key: bytes, checksum: int) -> int:
    """Returns a number of a client and the state that it has."""
    # As text, because a damaged index may have values of any kind.
    content = repr((key, checksum)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")


def create(path: pathlib.Path, properties: Mapping[str, str]) -> None:
    """Makes an index in a file that does not exist.

    Args:
      path: The file.
      properties: What `StateIndex.properties` returns from then on.

    Raises:
      sqlite3.Error: If the file cannot be written.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")
        connection.executescript(_SCHEMA)
        connection.executemany(
            "INSERT INTO properties VALUES (?, ?)", properties.items()
        )
        # A write-ahead log needs one wait for the disk per durable transaction and
        # none for others, where a rollback journal needs several for each.
        connection.execute("PRAGMA journal_mode = WAL")


def describe_foreign(path: pathlib.Path) -> str | None:
    """Returns why a file is not an index of this version, `None` if it is one.

    The file is only read: opening it with SQLite could change it.

    Raises:
      OSError: If the file cannot be read, or is a link.
    """
    files.check_in_place(path)
    with files.open_regular(path) as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_SQLITE_MAGIC):
        return "it is not an SQLite file"
    if int.from_bytes(header[68:72], "big") != _APPLICATION_ID:
        return "it was not written by tff_drift"
    found = int.from_bytes(header[60:64], "big")
    if found != _FORMAT_VERSION:
        return f"it has format {found}, this version reads format {_FORMAT_VERSION}"
    return None


class StateIndex:
    """The rows and versions of an index; methods raise `sqlite3.Error`.

    Changes are transactions: each happens wholly or not at all, whenever the
    program is killed.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Opens an index that exists; only one program may have it open.

        Args:
          path: The file.
        """
        # The caller sees to it that threads take turns.
        self._connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            # Without another program, the log needs no shared memory file.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # The first read takes the lock.
            self._connection.execute("SELECT 1 FROM properties").fetchone()
        except BaseException:
            self._connection.close()
            raise
        # Of the present states what `digest` returns; None if it has to be found.
        self._present: int | None = None
        # Whether there may be rows after the last version.
        self._has_changed = True

    def properties(self) -> dict[str, str]:
        """Returns what the index was created with."""
        return dict(self._connection.execute("SELECT name, value FROM properties"))

    def add_property(self, name: str, value: str) -> None:
        """Adds a property, durably."""
        with self._transaction() as connection:
            connection.execute("INSERT INTO properties VALUES (?, ?)", (name, value))

    def damage(self) -> str | None:
        """Returns what is wrong with the file, `None` if nothing is found.

        It reads the whole index: half a second for 342,477 clients.
        """
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
        found = sorted(sql for (sql,) in self._connection.execute(query))
        expected = sorted(filter(None, map(str.strip, _SCHEMA.split(";"))))
        if found != expected:
            return "its tables have changed"
        if self._connection.execute(_WRONG_VALUES).fetchone() is not None:
            return "it holds a value of another kind"
        (report,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        return None if report == "ok" else " ".join(str(report).split())

    def versions(self) -> tuple[int, ...]:
        """Returns the versions, ascending."""
        query = "SELECT version FROM versions ORDER BY version"
        return tuple(version for (version,) in self._connection.execute(query))

    def find(self, key: bytes) -> Place | None:
        """Returns where a client's present state is."""
        found = self._connection.execute(
            f"SELECT client_id, slot, checksum {_PRESENT}", (key,)
        ).fetchone()
        return None if found is None else Place(*found)

    def digest(self, version: int) -> int:
        """Returns a hash of the clients' states of a version, by their checksums.

        Of the last version it costs nothing once it has been asked for; of others it
        reads the whole index.
        """
        if version != max(self.versions()) or self._has_changed:
            return self._sum_of_hashes(version)
        if self._present is None:
            self._present = self._sum_of_hashes(version)
        return self._present

    def _sum_of_hashes(self, version: int) -> int:
        rows = self._connection.execute(
            "SELECT client_id, checksum FROM states WHERE valid_from <= ? "
            "AND (valid_to IS NULL OR valid_to > ?)",
            (version, version),
        )
        return sum(_hash(*row) for row in rows) % _HASHES

    def client_keys(self) -> Iterator[bytes]:
        """Returns the clients that have a present state."""
        query = "SELECT client_id FROM states WHERE valid_to IS NULL"
        return (key for (key,) in self._connection.execute(query))

    def count(self) -> int:
        """Returns the number of clients that have a present state."""
        query = "SELECT COUNT(*) FROM states WHERE valid_to IS NULL"
        return self._connection.execute(query).fetchone()[0]

    def slots(self) -> Iterator[int]:
        """Returns the slots in use, ascending."""
        query = "SELECT slot FROM states ORDER BY slot"
        return (slot for (slot,) in self._connection.execute(query))

    def num_slots(self, version: int) -> int:
        """Returns one more than the last slot that versions up to this one use."""
        query = "SELECT MAX(slot) + 1 FROM states WHERE valid_from <= ?"
        return self._connection.execute(query, (version,)).fetchone()[0] or 0

    def has_after(self, version: int) -> bool:
        """Returns whether rows were written after a version."""
        query = "SELECT EXISTS (SELECT 1 FROM states WHERE valid_from > ?)"
        return bool(self._connection.execute(query, (version,)).fetchone()[0])

    def put(self, places: Iterable[Place], valid_from: int) -> list[int]:
        """Makes places the present ones; returns the slots that no row names now.

        This need not be durable: rows that belong to no version may be lost.
        """
        unused = []
        # An interrupt may leave it open whether the rows are there.
        digest, self._present = self._present, None
        self._has_changed = True
        change = 0
        with self._transaction(durable=False) as connection:
            for place in places:
                present = connection.execute(
                    f"SELECT valid_from, slot, checksum {_PRESENT}", (place.key,)
                ).fetchone()
                change += _hash(place.key, place.checksum)
                if present is not None:
                    change -= _hash(place.key, present[2])
                if present is not None and present[0] == valid_from:
                    connection.execute(
                        "DELETE FROM states WHERE client_id = ? AND valid_from = ?",
                        (place.key, valid_from),
                    )
                    unused.append(present[1])
                elif present is not None:
                    connection.execute(
                        "UPDATE states SET valid_to = ? "
                        "WHERE client_id = ? AND valid_from = ?",
                        (valid_from, place.key, present[0]),
                    )
                connection.execute(
                    "INSERT INTO states VALUES (?, ?, NULL, ?, ?)",
                    (place.key, valid_from, place.slot, place.checksum),
                )
        if digest is not None:
            self._present = (digest + change) % _HASHES
        return unused

    def add_version(self, version: int, durable: bool = True) -> None:
        """Adds a version."""
        with self._transaction(durable) as connection:
            connection.execute("INSERT INTO versions VALUES (?)", (version,))
        self._has_changed = False

    def discard_after(self, version: int) -> list[int]:
        """Drops what came after a version, durably; returns the slots of it."""
        if self._has_changed or self.versions()[-1:] != (version,):
            self._present = None
        with self._transaction() as connection:
            unused = self._delete(connection, "valid_from > ?", version)
            connection.execute(
                "UPDATE states SET valid_to = NULL WHERE valid_to > ?", (version,)
            )
            connection.execute("DELETE FROM versions WHERE version > ?", (version,))
        self._has_changed = False
        return unused

    def discard_before(self, version: int, durable: bool = True) -> list[int]:
        """Drops what only older versions need; returns the slots of it."""
        with self._transaction(durable) as connection:
            unused = self._delete(connection, "valid_to <= ?", version)
            connection.execute("DELETE FROM versions WHERE version < ?", (version,))
        return unused

    def sync(self) -> None:
        """Makes all transactions durable."""
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _delete(
        self, connection: sqlite3.Connection, condition: str, version: int
    ) -> list[int]:
        """Deletes rows and returns their slots."""
        query = f"SELECT slot FROM states WHERE {condition}"
        slots = [slot for (slot,) in connection.execute(query, (version,))]
        connection.execute(f"DELETE FROM states WHERE {condition}", (version,))
        return slots

    @contextlib.contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        # An interrupt may have come between the statements of the call before.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        # What is durable makes all earlier transactions durable too: they are in
        # the same log.
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
