"""Client states on disk.

Layout. A store is a folder of two files. `states.bin` is a row of slots of one
size, each with the bytes of one state. `index.sqlite` says which slot holds the
state of which client from which version on, with a checksum of the bytes; SQLite
makes its changes atomic and durable.

The choice was made by measurement, against states as blobs inside SQLite: long
blobs are chains of pages, which are written to a journal or a log too. Milliseconds
per round for clients that have states already, `gather` + `scatter` + a tenth of
`commit` and `prune`, best of 30 rounds (10 in the last row), on two virtual cores
shared with other work, by `python benchmarks/client_states.py`:

| bytes of a state | cohort |    RAM | disk | blobs in SQLite |
|-----------------:|-------:|-------:|-----:|----------------:|
|            5,000 |     10 |    0.2 |  1.4 |             1.0 |
|            5,000 |     50 |    1.0 |  2.5 |             5.1 |
|          200,000 |     10 |    0.3 |  2.8 |             8.9 |
|          200,000 |     50 |    3.1 |   42 |              81 |
|        4,800,000 |     10 |    8.2 |  143 |             424 |
|        4,800,000 |     50 |    353 | 1311 |            3774 |

For clients that are sampled for the first time the two on disk differ less, by a
factor of 0.6 to 1.9. With `--memory`: 200 rounds of 50 out of 342,477 clients, states
of 200 kB, 9,872 clients seen, 1982 MB on disk; the program's RAM grew by 10.0 MB in
the first round, the cohort's states, and by 0.4 MB in the 199 others.

Why a kill at any moment is safe. Two rules:

1. A slot is written only while no row of the index names it. So the bytes of a
   state that the index knows never change.
2. The index changes only by SQLite transactions. `commit` first makes all slots
   durable, then the version; `prune` and `restore` make their change durable
   before they let the slots that became free be written again.

Call c the version of the checkpoint that exists, which was committed before the
checkpoint was written. Versions are pruned only when a newer checkpoint is durable,
so version c is in the index. A kill may come

*   during `scatter`: slots were written that no row names, or rows were added that
    belong to no version. Opening the store drops such rows; the slots are free.
    They did not overwrite the rows of version c, which were only given an end,
    `valid_to`, that is taken back.
*   during `commit`, or after it and before the new checkpoint exists: the index has
    version c and perhaps one above it, which `restore(c)` drops in the same way.
*   after the new checkpoint exists, before or during `prune`: the index has the new
    version, and perhaps old rows, which the next `prune` removes.
*   during `restore` or the opening: their transactions are there or not, and are
    repeated by the next start.

`SIGKILL` leaves the operating system's caches alone, so that for it the order of
calls is all that counts. Against a loss of power there are the waits for the disk in
`commit`, `prune` and `restore`; `scatter` waits for nothing.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import threading
import uuid
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tff_drift import checks, files
from tff_drift.client_states import state_index
from tff_drift.client_states.slot_file import SlotFile
from tff_drift.client_states.state_index import Place, StateIndex
from tff_drift.client_states.store import Arrays, ClientStates, ClientStatesError

_INDEX_FILE = "index.sqlite"
_NEW_INDEX_FILE = ".index.sqlite.tmp"
_STATES_FILE = "states.bin"
# Left behind by a kill while a store was created.
_CREATION_FILES = tuple(
    _NEW_INDEX_FILE + suffix for suffix in ("", "-journal", "-wal", "-shm")
)

_RUN_ID = "run_id"
_TEMPLATE = "template"
# A random name, of this store and its copies alone.
_STORE_ID = "store_id"

# The stores that are open: process, device and index file. A child process inherits
# those of its parent, which are not its own.
_open_stores: set[tuple[int, int, int]] = set()
_open_stores_lock = threading.Lock()

_LEFT_ALONE = "It was left unchanged: move it away, or choose another path."


def _key(client_id: str) -> bytes:
    return client_id.encode(errors="surrogatepass")


def _client_id(key: bytes) -> str:
    return key.decode(errors="surrogatepass")


def _checksum(key: bytes, row: np.ndarray) -> int:
    # With the client's id, so that another client's state is not taken for it.
    return zlib.crc32(row.data, zlib.crc32(key))


class DiskClientStates(ClientStates):
    """Keeps client states in a folder.

    Only clients that have been seen occupy space: one state each, and one more
    from the moment that they are scattered after a `commit` until the next
    `prune`. The RAM used does not grow with the clients seen. The time of `gather` and
    `scatter` follows the number of clients asked for.

    The folder is made if necessary, and opened again by the next program; the states
    are then those of the last version, and what was not committed is gone. Only
    one program at a time may have it open, and once: `close` it, or use it in a `with`
    statement, to open it again. The folder must not be on a network
    file system without locks. Copy or move it as a whole, while it is closed.

    What is in it is checked when it is opened; the bytes of a state whenever it is
    gathered. A store that is damaged, of other states, of another run, or not a
    store at all is refused and not written to.
    """

    # Whether versions are to outlive a loss of power, not the program alone.
    _waits_for_the_disk = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        initial_state: Any,
        *,
        run_id: str | None = "",
    ) -> None:
        """Opens a store, or makes an empty one.

        Args:
          path: The folder.
          initial_state: The state of a client that has not been seen; it is
            copied. A store that exists must have been made with an equal one.
          run_id: Says which run the states belong to; a store that exists must
            have been made with the same. `None` takes that of any run: for who gives
            `restore` fingerprints, which say more.

        Raises:
          ClientStatesError: If the folder cannot be used, is in use, holds files
            of others, or holds a store that is damaged or that was made with
            another `initial_state` or `run_id`.
          TypeError: If `path` is not a path, `run_id` neither a string nor `None`, or
            a leaf of `initial_state` neither numbers nor booleans.
          ValueError: If `path` is empty or holds a NUL character, or `initial_state`
            holds no array.
        """
        super().__init__(initial_state)
        checks.check_instance("run_id", run_id, (str, type(None)), "a string or None")
        checks.check_path("path", path)
        # The same folder wherever the program goes.
        self.path = pathlib.Path(path).absolute()
        self._run_id = run_id
        self._closing = contextlib.ExitStack()
        # An SQLite connection that nobody has any more is open until Python looks for
        # cycles.
        weakref.finalize(self, self._closing.close).atexit = False
        self._closed = False
        try:
            with self._reported():
                self._open()
        except BaseException:
            self._closing.close()
            raise

    def __str__(self) -> str:
        return f"The store of client states {checks.shown(str(self.path))}"

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Says which store could not be read or written."""
        if self._closed:
            raise ClientStatesError(f"{self} is closed. Open it again to use it.")
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            if str(error) == "database is locked":
                raise ClientStatesError(
                    f"{self} is in use by another program. Wait for its end, or "
                    "choose another path."
                ) from error
            raise self._unusable(error) from error
        # SQLite's message quotes what it cannot read.
        except (EOFError, UnicodeDecodeError, sqlite3.DatabaseError) as error:
            raise self._damaged(checks.shortened(error)) from error

    def _damaged(self, what: str) -> ClientStatesError:
        return ClientStatesError(
            f"{self} is damaged: {what}. {_LEFT_ALONE} Restart the run, or go on "
            "from copies of the store and of its checkpoint."
        )

    def _open(self) -> None:
        index = self.path / _INDEX_FILE
        files.make_folder(self.path)
        if not index.exists():
            self._create()
        self._check_not_open(index)
        foreign = state_index.describe_foreign(index)
        if foreign is not None:
            raise ClientStatesError(
                f"{checks.shown(str(index))} is not an index of client states: "
                f"{foreign}. {_LEFT_ALONE}"
            )
        self._index = StateIndex(index)
        self._closing.callback(self._index.close)
        self._check_index()
        self._check_states_file()
        self._store_id = self._index.properties().get(_STORE_ID, "")
        if not self._store_id:
            # Of an earlier version: no checkpoint names it yet.
            self._store_id = uuid.uuid4().hex
            self._index.add_property(_STORE_ID, self._store_id)
        # Rows that belong to no version: of a program that ended before a commit.
        self._index.discard_after(self._last_version())
        self._slots = SlotFile(
            self.path / _STATES_FILE, self.state_nbytes, self._index.slots()
        )
        self._closing.callback(self._slots.close)

    def _check_not_open(self, index: pathlib.Path) -> None:
        """Raises if this program has the store open, and notes that it has it now.

        SQLite's locks are those of the process: if it opens and closes the file once
        more, they are gone, and other programs are let in.
        """
        status = index.stat()
        store = os.getpid(), status.st_dev, status.st_ino
        with _open_stores_lock:
            if store in _open_stores:
                raise ClientStatesError(
                    f"{self} is open in this program already: use that object, or call "
                    "its close() first."
                )
            _open_stores.add(store)
        self._closing.callback(_open_stores.discard, store)

    def _create(self) -> None:
        """Makes an empty store; the index's name appears last."""
        self._check_unused()
        for name in _CREATION_FILES:
            (self.path / name).unlink(missing_ok=True)
        properties = {
            _RUN_ID: self._run_id or "",
            _TEMPLATE: self._template.identity(),
            _STORE_ID: uuid.uuid4().hex,
        }
        state_index.create(self.path / _NEW_INDEX_FILE, properties)
        files.create(self.path / _STATES_FILE).close()
        os.replace(self.path / _NEW_INDEX_FILE, self.path / _INDEX_FILE)
        files.sync_folder(self.path)

    def _check_unused(self) -> None:
        others = set(os.listdir(self.path)) - set(_CREATION_FILES)
        states = self.path / _STATES_FILE
        if states.exists() and states.stat().st_size == 0:
            others.discard(_STATES_FILE)
        if others:
            shown = ", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else "")
            raise ClientStatesError(
                f"{checks.shown(str(self.path))} holds no {_INDEX_FILE} of client "
                f"states, but other files: {shown}. Choose an empty or a new folder."
            )

    def _check_index(self) -> None:
        damage = self._index.damage()
        if damage is not None:
            raise self._damaged(damage)
        found = {_RUN_ID: "", _TEMPLATE: "", **self._index.properties()}
        if self._run_id not in (None, found[_RUN_ID]):
            raise ClientStatesError(
                f"{self} belongs to the run {checks.shown(found[_RUN_ID])}, not to "
                f"{checks.shown(self._run_id)}. {_LEFT_ALONE}"
            )
        self._check_made_with(found[_TEMPLATE])

    def _check_states_file(self) -> None:
        states = self.path / _STATES_FILE
        if not os.path.lexists(states):
            raise self._damaged(f"{_STATES_FILE} is gone")
        files.check_in_place(states)
        needed = self._index.num_slots(self._last_version()) * self.state_nbytes
        found = states.stat().st_size
        if found < needed:
            raise self._damaged(
                f"{_STATES_FILE} has {found} bytes, its index needs {needed}"
            )

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be restored, ascending."""
        with self._lock, self._reported():
            return self._index.versions()

    @property
    def nbytes(self) -> int:
        """The bytes of the store's files, older versions and free slots included."""
        with self._lock, self._reported():
            return sum(entry.stat().st_size for entry in os.scandir(self.path))

    def close(self) -> None:
        """Closes the files; what was not committed is dropped."""
        with self._lock:
            self._closed = True
            self._closing.close()

    def _read(self, client_ids: Sequence[str]) -> Iterator[Arrays | None]:
        for client_id in client_ids:
            place = self._index.find(_key(client_id))
            yield None if place is None else self._template.unpack(self._load(place))

    def _load(self, place: Place) -> np.ndarray:
        """Returns the bytes of a state."""
        row = self._slots.read(place.slot)
        if _checksum(place.key, row) != place.checksum:
            client = checks.shown(_client_id(place.key))
            raise self._damaged(f"the state of client {client} has changed")
        return row

    def _keep(self, key: bytes, row: np.ndarray) -> Place:
        """Writes the bytes of a state where no other one is."""
        return Place(key, self._slots.write(row), _checksum(key, row))

    def _write(
        self, client_ids: Sequence[str], states: Sequence[Arrays], copy: bool
    ) -> None:
        del copy
        places: list[Place] = []
        try:
            for client_id, arrays in zip(client_ids, states, strict=True):
                row = self._template.pack(arrays)
                places.append(self._keep(_key(client_id), row))
            unused = self._index.put(places, valid_from=self._last_version() + 1)
        except BaseException:
            self._take_back(places)
            raise
        self._slots.release(unused)

    def _take_back(self, places: Sequence[Place]) -> None:
        """Releases the slots of a call that failed."""
        # An interrupt may have come when the index named them already, all or none.
        # If it does not report them, they are free again when the store is opened.
        with contextlib.suppress(sqlite3.Error):
            if places and self._index.find(places[0].key) != places[0]:
                self._slots.release(place.slot for place in places)

    def _count(self) -> int:
        return self._index.count()

    def _seen(self) -> Iterable[str]:
        return map(_client_id, self._index.client_keys())

    def _has_changes(self) -> bool:
        return self._index.has_after(self._last_version())

    def _commit(self, version: int) -> None:
        if self._waits_for_the_disk:
            self._slots.sync()
        self._index.add_version(version, self._waits_for_the_disk)

    def _fingerprint(self, version: int) -> str:
        # Another program would not find what is written to files that are gone.
        found = os.path.lexists(self.path / _INDEX_FILE)
        if not found or self._slots.is_deleted():
            raise ClientStatesError(
                f"{self} is gone: its files were deleted or moved while it was open, "
                "and nothing more is kept. Put back a copy, or restart the run with an "
                "empty store."
            )
        return f"{self._store_id}-{self._index.digest(version):032x}"

    def _restore(self, version: int) -> None:
        self._slots.release(self._index.discard_after(version))

    def _prune(self, version: int) -> None:
        unused = self._index.discard_before(version, self._waits_for_the_disk)
        self._slots.release(unused)
