"""Client states that stay at the actors: what an actor does with its shards of them.

A shard is a store on disk, which outlives the process of its actor. Each write makes a
version of it, and every call says of which version it is: a call that is repeated,
since its actor was lost, finds what it found before, and what was written by a round
that failed is dropped. Nothing waits for the disk but `sync`, before a checkpoint.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import platform
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_drift import aligned_memory, checks, compat, files
from tff_drift.client_states import ClientStatesError, DiskClientStates
from tff_drift.client_states.state_index import Place
from tff_drift.client_states.template import StateTemplate
from tff_drift.execution import containers
from tff_drift.execution.on_ray import partition, wire

MANIFEST_FILE = "shards.json"
# How much of a shard to keep in RAM besides, of the states used last.
RECENT_BYTES = 256 * 2**20
# How long to wait for the files of an actor that is ending.
_PATIENCE_SECONDS = 60.0

# By client the arrays of its state, None if it has not been seen.
ArraysByClient = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Store:
    """A store of client states, as its actors know it.

    Attributes:
      key: The name of the store, of no other one, whoever opens it.
      folder: Where the shards are; None for the temporary folder of their node.
      initial_state: The state of a client that has not been seen.
    """

    key: str
    folder: str | None
    initial_state: Any

    def path(self, shard: int) -> pathlib.Path:
        """Returns the folder of a shard."""
        return self._folder() / f"shard-{shard}"

    def _folder(self) -> pathlib.Path:
        if self.folder is None:
            return pathlib.Path(tempfile.gettempdir()) / f"tff_drift-{self.key}"
        return pathlib.Path(self.folder)

    def make_folder(self, shard: int) -> None:
        """Makes the folder of a shard, in a folder that the driver sees, or raises."""
        if self.folder is not None and not (self._folder() / MANIFEST_FILE).is_file():
            raise ClientStatesError(
                f"The folder of the client states, {checks.shown(self.folder)}, is not "
                f"to be found on the node {checks.shown(platform.node())}. Put "
                "output_dir under a path that all nodes share."
            )
        try:
            files.make_folder(self.path(shard), inside=self._folder())
        except OSError as error:
            raise ClientStatesError(
                "The folder of the client states, "
                f"{checks.shown(str(self._folder()))}, cannot be used: {error}."
            ) from error

    def remove(self) -> None:
        """Removes the folder, if it is temporary."""
        if self.folder is None:
            shutil.rmtree(self._folder(), ignore_errors=True)


class _Shard(DiskClientStates):
    """A store whose versions are durable from the next `sync` on.

    They outlive the end of the process at once: only a loss of power asks for more.
    The states used last are in RAM as well, so that a population of which everybody
    takes part again and again is not read from files.
    """

    _waits_for_the_disk = False

    def __init__(self, path: pathlib.Path, initial_state: Any, run_id: str) -> None:
        """Opens a store, or makes an empty one; see `DiskClientStates`."""
        # Of slots their bytes, as the file has them, the ones used last at the end.
        self._recent: collections.OrderedDict[int, np.ndarray] = (
            collections.OrderedDict()
        )
        super().__init__(path, initial_state, run_id=run_id)

    def _load(self, place: Place) -> np.ndarray:
        row = self._recent.get(place.slot)
        return self._remember(place, super()._load(place) if row is None else row)

    def _keep(self, key: bytes, row: np.ndarray) -> Place:
        place = super()._keep(key, row)
        self._remember(place, row)
        return place

    def _remember(self, place: Place, row: np.ndarray) -> np.ndarray:
        aligned_memory.make_read_only(row)
        self._recent[place.slot] = row
        self._recent.move_to_end(place.slot)
        while len(self._recent) * self.state_nbytes > RECENT_BYTES:
            self._recent.popitem(last=False)
        return row

    def _check_states_file(self) -> None:
        """After a loss of power, versions yet to be dropped may lack states."""

    def arrays(self, client_ids: Sequence[str]) -> ArraysByClient:
        """Returns the arrays of clients' states."""
        with self._lock, self._reported():
            return dict(zip(client_ids, self._read(client_ids), strict=True))

    def write(self, new: ArraysByClient) -> None:
        """Replaces clients' states by arrays."""
        with self._lock, self._reported():
            self._write(list(new), list(new.values()), copy=False)

    def fingerprint(self, version: int) -> str:
        """Returns the fingerprint of a version that is held."""
        with self._lock, self._reported():
            return self._fingerprint(version)

    def sync(self) -> None:
        """Makes the versions durable."""
        with self._lock, self._reported():
            self._slots.sync()
            self._index.sync()


class Shards:
    """The shards that an actor has opened."""

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        """Makes an actor that has opened none.

        Args:
          fetch: Returns the object of a reference.
        """
        self._fetch = fetch
        self._stores: dict[str, Store] = {}
        self._open: dict[tuple[str, int], _Shard] = {}

    def read(
        self, store: wire.Sent, shard: int, version: int, client_ids: Sequence[str]
    ) -> ArraysByClient:
        """Returns the arrays of clients' states at a version of a shard."""
        return self._at(store, shard, version).arrays(client_ids)

    def seen(self, store: wire.Sent, shard: int, version: int) -> list[str]:
        """Returns the clients of a shard that have been seen."""
        return self._at(store, shard, version).client_ids()

    def nbytes(self, store: wire.Sent, shard: int, version: int) -> int:
        """Returns the bytes of the files of a shard."""
        return self._at(store, shard, version).nbytes

    def fingerprint(self, store: wire.Sent, shard: int, version: int, of: int) -> str:
        """Returns the fingerprint of a version `of` a shard; none later is dropped."""
        return self._at(store, shard, version).fingerprint(of)

    def sync(self, store: wire.Sent, shard: int, version: int) -> None:
        """Makes a version of a shard durable."""
        self._at(store, shard, version).sync()

    def write(
        self,
        store: wire.Sent,
        shard: int,
        version: int,
        oldest: int,
        *new: ArraysByClient,
    ) -> None:
        """Writes the version of a shard that follows another one.

        Args:
          store: A `Store`.
          shard: The number of the shard.
          version: The version to begin with.
          oldest: The oldest version that may be asked for later.
          *new: The new states of clients.
        """
        found = self._at(store, shard, version)
        try:
            for each in new:
                found.write(each)
            found.commit(version + 1)
            found.prune(oldest)
        except BaseException:
            # Opened again, it is without what was written.
            self._open.pop((store.key, shard)).close()
            raise

    def close(self, store: wire.Sent) -> None:
        """Closes the shards of a store; temporary ones are removed."""
        for key in [key for key in self._open if key[0] == store.key]:
            self._open.pop(key).close()
        self.store(store).remove()
        del self._stores[store.key]

    def _leave(self, path: pathlib.Path) -> None:
        """Closes a shard if its store was opened before and has not been closed.

        Opened anew, it is compared with what it is taken for now.
        """
        for key in [key for key, each in self._open.items() if each.path == path]:
            self._open.pop(key).close()
            # Asked again, it is sent again.
            self._stores.pop(key[0], None)

    def store(self, sent: wire.Sent) -> Store:
        """Returns a store that was sent."""
        if sent.key not in self._stores:
            self._stores[sent.key] = self._fetch(sent.reference[0])
        return self._stores[sent.key]

    def _at(self, sent: wire.Sent, shard: int, version: int) -> _Shard:
        """Returns a shard at a version; later ones are dropped."""
        found = self._open.get((sent.key, shard))
        if found is None:
            store = self.store(sent)
            self._leave(store.path(shard))
            found = _open(store, shard)
            self._open[sent.key, shard] = found
        if version != found.versions[-1]:
            if version not in found.versions:
                raise ClientStatesError(
                    f"Version {version} of the client states' shard {shard} is not in "
                    f"{checks.shown(str(found.path))} on the node "
                    f"{checks.shown(platform.node())}, which holds "
                    f"{list(found.versions)}: it was lost with its node. Go on from "
                    "the last checkpoint, with output_dir under a path that all nodes "
                    "share, or restart the run."
                )
            found.restore(version)
        return found


def _open(store: Store, shard: int) -> _Shard:
    store.make_folder(shard)
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            found = _Shard(store.path(shard), store.initial_state, run_id=store.key)
            break
        except ClientStatesError as error:
            in_use = isinstance(error.__cause__, sqlite3.OperationalError)
            if not in_use or time.monotonic() > end:
                raise
        time.sleep(0.1)
    if not found.versions:
        found.commit(0)
    return found


class StatesOfPart:
    """The states of an actor's clients in a round."""

    def __init__(
        self,
        shards: Shards,
        part: wire.Part,
        visiting: Sequence[ArraysByClient],
    ) -> None:
        """Reads the states.

        Args:
          shards: The shards of the actor.
          part: The actor's part of an argument.
          visiting: The states of clients whose shards are at other actors.
        """
        assert part.states is not None
        self._sent = part.states
        self._template = StateTemplate(shards.store(part.states.store).initial_state)
        # By the index that a client's new state comes with.
        self._names: dict[int, str] = {
            int(value.index): value.state.client_id
            for column in part.columns
            for value in column
            if isinstance(getattr(value, "state", None), wire.SentState)
        }
        self._arrays = dict(each for arrays in visiting for each in arrays.items())
        own: dict[int, list[str]] = collections.defaultdict(list)
        for name in self._names.values():
            own[self._shard(name)].append(name)
        for shard, version in self._sent.versions.items():
            self._arrays.update(
                shards.read(self._sent.store, shard, version, own[shard])
            )

    def _shard(self, client_id: str) -> int:
        return partition.home(client_id, self._sent.num_shards)

    def state(self, client_id: str) -> Any:
        """Returns a client's state."""
        arrays = self._arrays[client_id]
        if arrays is None:
            arrays = self._template.initial_arrays()
        return self._template.build(arrays)

    def take(self, result: Any, computation: Any) -> tuple[Any, list[ArraysByClient]]:
        """Takes the new states out of what a computation returned.

        Args:
          result: What it returned.
          computation: The computation, whose clients' new states are collected, each
            beside the index of its client.

        Returns:
          The result with those of no client, and the new states by shard.
        """
        if not self._sent.returned:
            return result, []
        result, collected = _take(
            result, computation.type_signature.result, self._wanted(computation)
        )
        new: dict[int, ArraysByClient] = {shard: {} for shard in self._sent.returned}
        if collected is not None:
            indices, *columns = map(np.asarray, tree.flatten(dict(collected)))
            for row, index in enumerate(indices):
                name = self._names[int(index)]
                new[self._shard(name)][name] = [column[row] for column in columns]
        return result, list(new.values())

    def _wanted(self, computation: Any) -> set[str]:
        """Returns how the types of collected states look."""
        return {
            _collected(type_.state)
            for type_ in partition.client_types(computation.type_signature.parameter)
            if isinstance(type_, compat.StructType)
            and {"index", "state"} <= set(compat.structure_names(type_))
        }


def _collected(state_type: compat.Type) -> str:
    """Returns how the type looks of states that are stacked beside their indices."""
    sent = compat.StructType([("index", np.int32), ("state", state_type)])
    return str(_stacked(sent))


def _stacked(type_: compat.Type) -> compat.Type:
    if isinstance(type_, compat.StructType):
        return compat.StructType(
            (name, _stacked(element))
            for name, element in compat.structure.iter_elements(type_)
        )
    shape: Any = type_.shape
    return compat.TensorType(type_.dtype, [None, *shape])


def _take(
    value: Any, type_signature: compat.Type, wanted: set[str]
) -> tuple[Any, Any | None]:
    """Returns a value with the wanted part emptied, and that part."""
    if isinstance(type_signature, compat.FederatedType):
        if partition.is_of_clients(type_signature):
            return value, None
        return _take(value, type_signature.member, wanted)
    if not isinstance(type_signature, compat.StructType):
        return value, None
    if str(type_signature) in wanted:
        return tf.nest.map_structure(lambda array: np.asarray(array)[:0], value), value
    elements, taken = [], None
    for element, (name, element_type) in zip(
        containers.struct_elements(value, type_signature),
        compat.structure.iter_elements(type_signature),
        strict=True,
    ):
        rest, found = _take(element, element_type, wanted)
        elements.append((name, rest))
        taken = found if taken is None else taken
    if taken is None:
        return value, None
    return compat.structure.Struct(elements), taken
