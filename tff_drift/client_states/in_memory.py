"""Client states in RAM."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_drift import aligned_memory
from tff_drift.client_states.store import Arrays, ClientStates, ClientStatesError
from tff_drift.client_states.template import StateTemplate

_CLIENT_IDS = "client_ids"
_ID_LENGTHS = "client_id_lengths"
_TEMPLATE = "template_sha256"


class _Entry(NamedTuple):
    """The arrays of a state, read-only, and the first version it belongs to."""

    valid_from: int
    arrays: Arrays


class InMemoryClientStates(ClientStates):
    """Keeps client states in RAM; they end with the program.

    It holds the states of the clients seen, and nothing for others. Between
    `commit` and the next `prune` it also holds the committed state of each client
    that was scattered since. To carry the states over to another program, save
    `leaves()`, for instance in a checkpoint file, and give them to `load_leaves`;
    then no version need be committed.
    """

    def __init__(self, initial_state: Any) -> None:
        """Makes an empty store.

        Args:
          initial_state: The state of a client that has not been seen; it is
            copied.

        Raises:
          TypeError: If a leaf of it is neither numbers nor booleans.
          ValueError: If it holds no array.
        """
        super().__init__(initial_state)
        # Of each client the entries that a version or the present needs, oldest
        # first, the present one last.
        self._entries: dict[str, list[_Entry]] = {}
        self._superseded: set[str] = set()
        # With their fingerprints: nobody else can change what they hold.
        self._versions: dict[int, str] = {}

    def __str__(self) -> str:
        return "The store in RAM"

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be restored, ascending."""
        return tuple(self._versions)

    @property
    def nbytes(self) -> int:
        """The bytes of the states held, older versions included."""
        with self._lock:
            return self.state_nbytes * sum(map(len, self._entries.values()))

    def close(self) -> None:
        """Does nothing: the states end with the object."""

    def leaves(self) -> dict[str, np.ndarray]:
        """Returns the present states as a few arrays, to save without pickle.

        Returns:
          By name: the ids, as UTF-8 bytes one after the other; the bytes of each
          id; for each leaf of a state the stacked arrays of all clients seen, in
          the order of the ids; a hash of the initial state and its structure. The
          arrays are copies: this takes as much RAM again as the states.
        """
        with self._lock:
            ids = sorted(self._entries)
            states = [self._entries[client_id][-1].arrays for client_id in ids]
            encoded = [client_id.encode(errors="surrogatepass") for client_id in ids]
            return {
                _CLIENT_IDS: np.frombuffer(b"".join(encoded), np.uint8),
                _ID_LENGTHS: np.array([len(key) for key in encoded], np.int64),
                _TEMPLATE: _template_hash(self._template),
                **{
                    _leaf_name(index): array
                    for index, array in enumerate(self._template.stack(states))
                },
            }

    def load_leaves(self, leaves: Mapping[str, np.ndarray]) -> None:
        """Replaces all states by saved ones; the store then holds no version.

        Args:
          leaves: What `leaves` returned.

        Raises:
          ClientStatesError: If the arrays are not those of a store with the same
            initial state; the store is left as it was.
        """
        ids = _read_ids(leaves, self._template)
        columns = [leaves[_leaf_name(i)] for i in range(self._template.num_leaves)]
        entries = {
            client_id: [_Entry(0, self._copy([column[index] for column in columns]))]
            for index, client_id in enumerate(ids)
        }
        with self._lock:
            self._num_writes += 1
            self._entries = entries
            self._superseded = set()
            self._versions = {}

    def _copy(self, arrays: Arrays) -> Arrays:
        return self._template.unpack(
            aligned_memory.make_read_only(self._template.pack(arrays))
        )

    def _read(self, client_ids: Sequence[str]) -> Iterator[Arrays | None]:
        for client_id in client_ids:
            entries = self._entries.get(client_id)
            yield entries[-1].arrays if entries else None

    def _write(
        self, client_ids: Sequence[str], states: Sequence[Arrays], copy: bool
    ) -> None:
        valid_from = self._last_version() + 1
        # There may not be the RAM for a copy: it comes before the first change.
        held = [
            self._copy(arrays) if copy else list(map(aligned_memory.read_only, arrays))
            for arrays in states
        ]
        for client_id, arrays in zip(client_ids, held, strict=True):
            entries = self._entries.get(client_id, [])
            kept = [entry for entry in entries if entry.valid_from < valid_from]
            if kept:
                self._superseded.add(client_id)
            self._entries[client_id] = [*kept, _Entry(valid_from, arrays)]

    def _count(self) -> int:
        return len(self._entries)

    def _seen(self) -> Iterable[str]:
        return self._entries

    def _has_changes(self) -> bool:
        last = self._last_version()
        return any(entries[-1].valid_from > last for entries in self._entries.values())

    def _commit(self, version: int) -> None:
        self._versions[version] = uuid.uuid4().hex

    def _fingerprint(self, version: int) -> str:
        return self._versions[version]

    def _restore(self, version: int) -> None:
        entries = {
            client_id: [entry for entry in held if entry.valid_from <= version]
            for client_id, held in self._entries.items()
        }
        self._entries = {client_id: held for client_id, held in entries.items() if held}
        self._superseded = {
            client_id for client_id, held in self._entries.items() if len(held) > 1
        }
        self._versions = {
            held: of for held, of in self._versions.items() if held <= version
        }

    def _prune(self, version: int) -> None:
        self._versions = {
            held: of for held, of in self._versions.items() if held >= version
        }
        for client_id in list(self._superseded):
            held = self._entries[client_id]
            # Those followed by an entry that the version has already.
            needless = sum(entry.valid_from <= version for entry in held[1:])
            self._entries[client_id] = held[needless:]
            if len(self._entries[client_id]) == 1:
                self._superseded.discard(client_id)


def _leaf_name(index: int) -> str:
    return f"state/{index}"


def _template_hash(template: StateTemplate) -> np.ndarray:
    digest = hashlib.sha256(template.identity().encode()).digest()
    return np.frombuffer(digest, np.uint8)


def _read_ids(leaves: Mapping[str, np.ndarray], template: StateTemplate) -> list[str]:
    """Returns the ids in saved leaves, after checking that all of these fit."""
    names = [_CLIENT_IDS, _ID_LENGTHS, _TEMPLATE]
    names += [_leaf_name(index) for index in range(template.num_leaves)]
    why = ""
    if set(leaves) != set(names):
        why = f"have the arrays {sorted(leaves)}, expected {sorted(names)}"
    elif not np.array_equal(leaves[_TEMPLATE], _template_hash(template)):
        why = (
            "were saved with another initial_state: its structure, dtypes, shapes or "
            "values differ"
        )
    else:
        lengths = leaves[_ID_LENGTHS].tolist()
        encoded = leaves[_CLIENT_IDS].tobytes()
        if sum(lengths) != len(encoded) or not all(
            template.fits_stack(index, leaves[_leaf_name(index)], len(lengths))
            for index in range(template.num_leaves)
        ):
            why = "do not fit together: they are damaged"
    if why:
        raise ClientStatesError(
            f"The saved client states {why}. Load the states that this algorithm and "
            "model saved, or restart the run."
        )
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [
        encoded[end - length : end].decode(errors="surrogatepass")
        for end, length in zip(ends, lengths, strict=True)
    ]
