"""The interface of a store of clients' states."""

from __future__ import annotations

import abc
import collections
import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tff_drift import checks
from tff_drift.client_states.template import StateTemplate

# A state's arrays, in the template's order.
Arrays = Sequence[np.ndarray]


class ClientStatesError(checks.ShortError):
    """A store of client states that is damaged, in use, or not the right one."""


def _checked_ids(client_ids: Sequence[str]) -> list[str]:
    what, remedy = "a sequence of ids", "Give a list of strings."
    checks.check_list("client_ids", client_ids, what, Iterable, remedy)
    ids = list(client_ids)
    for client_id in ids:
        what, remedy = "a list of strings", "Convert it by str(), or bytes by decode()."
        checks.check_instance("client_ids", client_id, str, what, remedy)
    return [str(client_id) for client_id in ids]


class ClientStates(abc.ABC):
    """Remembers a state for each client between the rounds it takes part in.

    A state is a structure (dictionary, tuple, named tuple, ...) of NumPy arrays of
    fixed dtypes and shapes. A client that has not been seen has the initial state
    and occupies no space.

    Versions make the store part of a checkpoint that someone else writes. A
    version is the number of rounds completed; the protocol for each checkpoint is

    1. `commit(version)`: from now on the states can be brought back; it returns the
       version's fingerprint;
    2. write the checkpoint of the same round, atomically and durably, with the
       fingerprint in it;
    3. `prune(version)`: no older version will be asked for.

    A program that starts again calls `restore(version, fingerprint)` with what the
    checkpoint that exists says. Whatever was scattered after it is gone; what it needs
    has not been overwritten. A number of rounds alone would be that of many stores;
    the fingerprint is of this store and of these states, and no other ones are
    restored. Without checkpoints none of the three is needed.

    The methods may be called from several threads; one runs at a time. What
    `gather` returns is a copy, and `scatter` copies what it is given, unless you
    ask it not to.

    Implementations provide `versions`, `nbytes`, `close`, and the methods whose
    names begin with `_`; those are called one at a time, with checked arguments, and
    within `_reported`.
    """

    def __init__(self, initial_state: Any) -> None:
        """Makes a store for states like the given one.

        Args:
          initial_state: The state of a client that has not been seen; it is
            copied.

        Raises:
          TypeError: If a leaf of it is neither numbers nor booleans.
          ValueError: If it holds no array.
        """
        self._template = StateTemplate(initial_state)
        self._lock = threading.RLock()
        self._num_writes = 0

    @property
    def initial_state(self) -> Any:
        """A copy of the state of a client that has not been seen."""
        return self._template.initial_state()

    @property
    def state_nbytes(self) -> int:
        """The bytes of one client's state."""
        return self._template.nbytes

    @property
    def num_writes(self) -> int:
        """The number of writes of states since the store was opened, by anyone."""
        return self._num_writes

    @property
    def has_changes(self) -> bool:
        """Whether the present states are others than those of the last version."""
        with self._lock, self._reported():
            return self._has_changes()

    def gather(self, client_ids: Sequence[str], *, copy: bool = True) -> list[Any]:
        """Returns the states of some clients.

        Args:
          client_ids: The clients, in any order; repeated ids are allowed.
          copy: Whether the arrays are the caller's own. If not, they may be
            read-only, which spares copies. They stay as they are in any case,
            whatever is scattered later.

        Returns:
          One state per id, in the containers of the initial state. Leaves without
          dimensions are NumPy scalars.

        Raises:
          ClientStatesError: If the store is damaged.
          TypeError: If an id is not a string, or `copy` no boolean.
        """
        ids = _checked_ids(client_ids)
        checks.check_flag("copy", copy)
        with self._lock, self._reported():
            return [
                self._template.build(
                    [
                        array.copy() if copy and not array.flags.writeable else array
                        for array in arrays
                    ]
                )
                for arrays in (
                    self._template.initial_arrays() if arrays is None else arrays
                    for arrays in self._read(ids)
                )
            ]

    def scatter(
        self, client_ids: Sequence[str], states: Sequence[Any], *, copy: bool = True
    ) -> None:
        """Replaces the states of some clients.

        An error leaves the store as it was. A call that was interrupted, by Ctrl-C
        for instance, may simply be repeated.

        Args:
          client_ids: The clients, each once.
          states: One state per id, with the names, dtypes and shapes of the
            initial state.
          copy: Whether the arrays may be changed afterwards. If not, a store in
            RAM may keep them as they are, and whatever they are views of.

        Raises:
          ClientStatesError: If the store is damaged or cannot be written.
          TypeError: If an id is not a string, `states` is not a list or tuple, or
            a dtype differs from that of the initial state.
          ValueError: If an id is repeated, there is not one state per id, or a
            state's structure or shapes differ from those of the initial state.
        """
        ids = _checked_ids(client_ids)
        checks.check_flag("copy", copy)
        what, remedy = "a list with one state per client", "Unstack stacked states."
        checks.check_instance("states", states, (list, tuple), what, remedy)
        if len(states) != len(ids):
            raise ValueError(
                f"There are {len(states)} states for {len(ids)} client_ids. Give one "
                "state per client."
            )
        if len(set(ids)) < len(ids):
            repeated, _ = collections.Counter(ids).most_common(1)[0]
            raise ValueError(
                f"client_ids holds {checks.shown(repeated)} more than once. A client "
                "has one state: give each id once."
            )
        arrays = [
            self._template.checked_arrays(client_id, state)
            for client_id, state in zip(ids, states, strict=True)
        ]
        with self._lock, self._reported():
            self._num_writes += 1
            self._write(ids, arrays, copy)

    def __len__(self) -> int:
        """The number of clients seen: those whose states have been scattered."""
        with self._lock, self._reported():
            return self._count()

    def client_ids(self) -> list[str]:
        """Returns the clients seen, sorted."""
        with self._lock, self._reported():
            return sorted(self._seen())

    def commit(self, version: int) -> str:
        """Keeps the present states under a version, to `restore` them later.

        On disk the version is durable when the call returns.

        Args:
          version: The number of rounds completed, at least 0 and above the last
            version. The last version may be committed again if nothing has been
            scattered since.

        Returns:
          The fingerprint of the version, a short text that distinguishes its states
          from those of other stores, and from changed ones.

        Raises:
          ClientStatesError: If the store cannot be written.
          TypeError: If `version` is not an integer.
          ValueError: If `version` is not above the last one.
        """
        checks.check_integer("version", version, at_least=0)
        with self._lock, self._reported():
            last = self._last_version()
            is_kept = version == last and not self._has_changes()
            if version <= last and not is_kept:
                raise ValueError(
                    f"version {version} is not above {last}, the last version "
                    "committed. To continue from an older one, restore it first."
                )
            if not is_kept:
                self._commit(int(version))
            return self._fingerprint(int(version))

    def restore(self, version: int, fingerprint: str | None = None) -> None:
        """Restores the states of a version; later ones are dropped.

        Args:
          version: One of `versions`.
          fingerprint: What `commit` returned for the version; `None`, where it has not
            been kept, leaves it to the caller to give the right store.

        Raises:
          ClientStatesError: If the store does not hold the version, or other states
            under it; it is left as it was.
          TypeError: If `version` is not an integer, or `fingerprint` is not a string.
          ValueError: If `version` is negative.
        """
        checks.check_integer("version", version, at_least=0)
        if fingerprint is not None:
            checks.check_instance("fingerprint", fingerprint, str, "a string")
        with self._lock, self._reported():
            remedy = "Use the store written with it, or restart with an empty one."
            if version not in self.versions:
                raise ClientStatesError(
                    f"{self} does not hold version {version} of the checkpoint, only "
                    f"{list(self.versions)}. {remedy}"
                )
            if fingerprint not in (None, self._fingerprint(int(version))):
                raise ClientStatesError(
                    f"{self} holds other states of version {version} than the "
                    "checkpoint was written with: it is that of another run, or has "
                    f"been changed. {remedy}"
                )
            self._num_writes += 1
            self._restore(int(version))

    def prune(self, version: int) -> None:
        """Drops the versions before the given one, and what only they need.

        Args:
          version: One of `versions`: the oldest that may still be restored.

        Raises:
          ClientStatesError: If the store cannot be written.
          TypeError: If `version` is not an integer.
          ValueError: If the store does not hold the version.
        """
        checks.check_integer("version", version, at_least=0)
        with self._lock, self._reported():
            if version not in self.versions:
                raise ValueError(
                    f"version {version} is not one of those held, "
                    f"{list(self.versions)}. Commit it first."
                )
            self._prune(int(version))

    def __enter__(self) -> ClientStates:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _reported(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that turns errors of files into a `ClientStatesError`."""
        return contextlib.nullcontext()

    def _unusable(self, error: Exception) -> ClientStatesError:
        return ClientStatesError(
            f"{self} cannot be used: {checks.shortened(error)}. Choose a folder that "
            "can be created and written, on a disk with enough space."
        )

    def _check_made_with(self, identity: str) -> None:
        """Raises unless a store that exists was made with this initial state."""
        if identity != self._template.identity():
            difference = self._template.describe_difference(identity)
            raise ClientStatesError(
                f"{self} was made with another initial_state: {difference}. It was "
                "left unchanged: move it away, or choose another path."
            )

    def _last_version(self) -> int:
        return max(self.versions, default=-1)

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the use of the store, of which there may be several calls."""

    @property
    @abc.abstractmethod
    def versions(self) -> tuple[int, ...]:
        """The versions that can be restored, ascending."""

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """The bytes that the store occupies now, kept older versions included."""

    @abc.abstractmethod
    def _read(self, client_ids: Sequence[str]) -> Iterator[Arrays | None]:
        """Returns states that stay as they are, `None` for clients not seen."""

    @abc.abstractmethod
    def _write(
        self, client_ids: Sequence[str], states: Sequence[Arrays], copy: bool
    ) -> None:
        """Replaces states, all or none of them; `copy` is `scatter`'s."""

    @abc.abstractmethod
    def _count(self) -> int:
        """Returns the number of clients seen."""

    @abc.abstractmethod
    def _seen(self) -> Iterable[str]:
        """Returns the clients seen."""

    @abc.abstractmethod
    def _has_changes(self) -> bool:
        """Returns whether something was written after the last version."""

    @abc.abstractmethod
    def _commit(self, version: int) -> None:
        """Makes the present states a version; it is above the others."""

    @abc.abstractmethod
    def _fingerprint(self, version: int) -> str:
        """Returns a short text that distinguishes a version from all others."""

    @abc.abstractmethod
    def _restore(self, version: int) -> None:
        """Restores a version that is held."""

    @abc.abstractmethod
    def _prune(self, version: int) -> None:
        """Drops what only versions before a version that is held need."""
