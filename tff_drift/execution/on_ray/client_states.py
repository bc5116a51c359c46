"""Client states that stay at the actors: the store as the driver sees it.

The driver knows of each shard the version that is the present one, and no state. A
round takes three steps at an actor: it reads the states of its clients, trains, and,
when all actors have trained, writes the next version of its shards. What was trained
waits for that in Ray's object store, owned by the driver, so that no loss of an actor
loses any of it. The driver's manifest, replaced at once, says which versions of the
shards are a checkpoint's: whatever comes later is dropped when a shard is next asked.

Shards lie in files rather than in the actors' RAM because a process that is killed
leaves its files, in the operating system's caches, as they are: the actor that takes
its place finds them, and no copy in another process has to be kept up to date.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tff_drift import checks, files
from tff_drift.client_states import ClientStates, ClientStatesError
from tff_drift.client_states.store import Arrays
from tff_drift.execution.on_ray import partition, shards, wire
from tff_drift.execution.on_ray.actors import Actors, Call

_FORMAT = "tff_drift shards of client states 1"
# There are as many as actors.
_MOST_SHARDS = 100_000


class RayClientStates(ClientStates):
    """A store of client states whose shards the actors on Ray keep.

    See `RayExecutionContext.open_client_states`. A client's shard is chosen by its id.
    A store in a folder may be opened again with another number of actors: its shards
    are shared out to them.

    Attributes:
      actors: The actors.
      path: The folder; None if the states end with the store.
    """

    def __init__(
        self,
        actors: Actors,
        initial_state: Any,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Opens a store, or makes an empty one; see `open_client_states`."""
        super().__init__(initial_state)
        self.actors = actors
        self.path: pathlib.Path | None = None
        self._closed = False
        # Identifies the store among others in the same place, whoever opens it.
        self._key = uuid.uuid4().hex
        # As the manifest has it; None in one of a version that did not write it.
        self._identity: str | None = self._template.identity()
        self._num_shards = len(actors)
        # The shards' versions of each version that can be restored.
        self._versions: dict[int, list[int]] = {}
        if path is not None:
            checks.check_path("path", path)
            self.path = pathlib.Path(path).absolute()
            self._open(self.path)
        self._present = [0] * self._num_shards
        if self._versions:
            self._present = list(self._versions[max(self._versions)])
        # Those whose last version is not durable.
        self._unsynced: set[int] = set()
        # New states that are being written, and what waits for that.
        self._begun: tuple[Any, Callable[[], object]] | None = None
        folder = None if self.path is None else str(self.path)
        store = shards.Store(self._key, folder, self.initial_state)
        # Opened again, with another state perhaps, it is something new to the actors.
        self._sent = wire.Sent(uuid.uuid4().hex, [actors.put(store)])

    def __str__(self) -> str:
        return "The store of client states " + (
            "at the actors" if self.path is None else checks.shown(str(self.path))
        )

    def _open(self, path: pathlib.Path) -> None:
        try:
            files.make_folder(path)
            files.temporary_path(path / shards.MANIFEST_FILE).unlink(missing_ok=True)
            if not os.listdir(path):
                self._write_manifest()
            found = files.read_json(path / shards.MANIFEST_FILE)
        except FileNotFoundError as error:
            raise ClientStatesError(
                f"{checks.shown(str(path))} holds no {shards.MANIFEST_FILE} of client "
                "states, but other files. Choose an empty or a new folder."
            ) from error
        except OSError as error:
            raise self._unusable(error) from error
        except ValueError as error:
            raise _damaged(path, error) from error
        try:
            if found["format"] != _FORMAT:
                raise ValueError(f"it has format {checks.shown(found['format'])}")
            self._key, self._num_shards = str(found["key"]), found["num_shards"]
            if self._num_shards not in range(1, _MOST_SHARDS + 1):
                raise ValueError(
                    f"it has {checks.shown(str(self._num_shards)[:40])} shards"
                )
            self._identity = found.get("template")
            if not isinstance(self._identity, (str, type(None))):
                raise ValueError("its template is no text")
            self._versions = {
                int(version): [int(each) for each in of_shards]
                for version, of_shards in found["versions"].items()
            }
            if {*map(len, self._versions.values())} - {self._num_shards}:
                raise ValueError("its numbers of shards differ")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error
        if self._identity is not None:
            self._check_made_with(self._identity)

    def _write_manifest(self) -> None:
        if self.path is None:
            return
        manifest = {
            "format": _FORMAT,
            "key": self._key,
            "num_shards": self._num_shards,
            "versions": self._versions,
        }
        if self._identity is not None:
            manifest["template"] = self._identity
        text = json.dumps(manifest)
        try:
            files.replace_file(
                self.path / shards.MANIFEST_FILE,
                lambda file: file.write(text.encode()),
            )
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def num_shards(self) -> int:
        """The number of shards, that of the actors that the store was made with."""
        return self._num_shards

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be restored, ascending."""
        return tuple(sorted(self._versions))

    @property
    def nbytes(self) -> int:
        """The bytes of the shards' files, older versions included."""
        with self._lock:
            return sum(self._of_all("nbytes"))

    def close(self) -> None:
        """Closes the shards; those without a folder are removed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.actors.run(
                [
                    Call(number, "of_shards", ("close", self._sent))
                    for number in range(len(self.actors))
                ]
            )

    def place(self, shard: int) -> int:
        """Returns the actor that has a shard."""
        return shard % len(self.actors)

    def call(self, method: str, shard: int, *arguments: Any) -> Call:
        """Returns the call of a method of `Shards` for the present of a shard."""
        if self._closed:
            raise ClientStatesError(f"{self} is closed. Open it again to use it.")
        # Who asks for the present of a shard has what is being written dropped.
        self._begun = None
        present = (method, self._sent, shard, self._present[shard])
        return Call(self.place(shard), "of_shards", (*present, *arguments))

    def _of_all(self, method: str) -> list[Any]:
        return self.actors.run(
            [self.call(method, shard) for shard in range(self._num_shards)]
        )

    def by_shard(self, client_ids: Iterable[str]) -> dict[int, list[str]]:
        """Returns the clients of each shard."""
        found: dict[int, list[str]] = {}
        for client_id in client_ids:
            shard = partition.home(client_id, self._num_shards)
            found.setdefault(shard, []).append(client_id)
        return dict(sorted(found.items()))

    def part_of(
        self, number: int, client_ids: Sequence[str]
    ) -> tuple[wire.PartOfStates, list[Call]]:
        """Returns where an actor finds the states of its clients.

        Args:
          number: The number of the actor.
          client_ids: Its clients.

        Returns:
          The message to it, and calls that return the states that other actors keep.
        """
        self._begun = None
        parts = self.by_shard(client_ids)
        at_home = {
            shard: self._present[shard]
            for shard in parts
            if self.place(shard) == number
        }
        visiting = [
            self.call("read", shard, ids)
            for shard, ids in parts.items()
            if shard not in at_home
        ]
        sent = wire.PartOfStates(self._sent, self._num_shards, at_home, list(parts))
        return sent, visiting

    def begin_write(self, new: Sequence[tuple[int, Any]]) -> None:
        """Starts writing new states, which replace none before `write` is called.

        Args:
          new: As in `write`.
        """
        with self._lock:
            by_shard: dict[int, list[Any]] = {}
            for shard, reference in new:
                by_shard.setdefault(shard, []).append(reference)
            oldest = [
                min(of_shard)
                for of_shard in zip(
                    self._present, *self._versions.values(), strict=True
                )
            ]
            calls = [
                self.call("write", shard, oldest[shard], *references)
                for shard, references in by_shard.items()
            ]
            self._begun = new, self.actors.begin(calls)

    def write(self, new: Sequence[tuple[int, Any]]) -> None:
        """Replaces states by new ones.

        Args:
          new: Shards, and references to new states of their clients.
        """
        with self._lock:
            # Rounds on Ray come here without `scatter`.
            self._num_writes += 1
            if self._begun is None or self._begun[0] is not new:
                self.begin_write(new)
            assert self._begun is not None
            _, wait = self._begun
            self._begun = None
            wait()
            # Before this line the new versions are those of a write that failed.
            shards_of_new = {shard for shard, _ in new}
            self._present = [
                version + (shard in shards_of_new)
                for shard, version in enumerate(self._present)
            ]
            self._unsynced.update(shards_of_new)

    def _read(self, client_ids: Sequence[str]) -> Iterator[Arrays | None]:
        calls = [
            self.call("read", shard, ids)
            for shard, ids in self.by_shard(dict.fromkeys(client_ids)).items()
        ]
        found: shards.ArraysByClient = {}
        for arrays in self.actors.run(calls):
            found.update(arrays)
        return iter([found[client_id] for client_id in client_ids])

    def _write(
        self, client_ids: Sequence[str], states: Sequence[Arrays], copy: bool
    ) -> None:
        del copy
        arrays = dict(zip(client_ids, states, strict=True))
        self.write(
            [
                (shard, self.actors.put({name: list(arrays[name]) for name in ids}))
                for shard, ids in self.by_shard(client_ids).items()
            ]
        )

    def _count(self) -> int:
        return len(list(self._seen()))

    def _seen(self) -> Iterable[str]:
        return [name for names in self._of_all("seen") for name in names]

    def _has_changes(self) -> bool:
        return self._versions.get(self._last_version()) != self._present

    def _commit(self, version: int) -> None:
        if self.path is not None:
            self.actors.run([self.call("sync", shard) for shard in self._unsynced])
        self._replace_versions({**self._versions, version: list(self._present)})
        self._unsynced = set()

    def _fingerprint(self, version: int) -> str:
        shards_of = enumerate(self._versions[version])
        found = self.actors.run(
            [self.call("fingerprint", shard, each) for shard, each in shards_of]
        )
        return f"{self._key}-{hashlib.sha256(' '.join(found).encode()).hexdigest()}"

    def _restore(self, version: int) -> None:
        kept = {each: of for each, of in self._versions.items() if each <= version}
        if kept != self._versions:
            self._replace_versions(kept)
        self._present = list(kept[version])

    def _prune(self, version: int) -> None:
        kept = {each: of for each, of in self._versions.items() if each >= version}
        if kept != self._versions:
            self._replace_versions(kept)

    def _replace_versions(self, versions: dict[int, list[int]]) -> None:
        before, self._versions = self._versions, versions
        try:
            self._write_manifest()
        except BaseException:
            self._versions = before
            raise


def _damaged(path: pathlib.Path, error: Exception) -> ClientStatesError:
    return ClientStatesError(
        f"{checks.shown(str(path / shards.MANIFEST_FILE))} is damaged or of another "
        f"version of tff_drift: {error}. It was left unchanged: choose another folder, "
        "or restart the run."
    )


class StatesOfRound:
    """The states of the clients of a round, by name: its cohort's store.

    Attributes:
      new: Shards and references to their clients' new states, once trained.
    """

    def __init__(self, store: RayClientStates) -> None:
        """Names states of a store."""
        self.new: list[tuple[int, Any]] | None = None
        self._store = store

    def gather(self, client_ids: Sequence[str], copy: bool) -> list[wire.SentState]:
        """Returns the names of clients' states, which are read where these train."""
        del copy
        return [wire.SentState(client_id, self) for client_id in client_ids]

    def of_actor(
        self, number: int, client_ids: Sequence[str]
    ) -> tuple[wire.PartOfStates, list[Call]]:
        """Returns where an actor finds its clients' states, see `part_of`."""
        return self._store.part_of(number, client_ids)

    def begin(self) -> None:
        """Starts writing the new states, which replace none before `keep`."""
        if self.new is not None:
            self._store.begin_write(self.new)

    def scatter(
        self, client_ids: Sequence[str], states: Sequence[Any], copy: bool
    ) -> None:
        """Puts the new states, which stayed where they are, in place of the old ones.

        All or none of them.
        """
        del client_ids, states, copy
        if self.new is None:
            raise RuntimeError("No round has been trained on these states.")
        self._store.write(self.new)
        self.new = None
