"""A data source and a state manager, for TFF's federated programs.

`tff.learning.programs.train_model` asks a data source for each round's clients, and
saves the program's state, the position in the data among it, by a state manager.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

import numpy as np

from tff_drift import checks, compat
from tff_drift.client_states import ClientStatesError, InMemoryClientStates
from tff_drift.simulation.cohorts import Selection
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import build_uniform_sampling
from tff_drift.simulation.loop.process_with_client_states import (
    ProcessWithClientStates,
    rounds_of,
)


class ClientDataSource(compat.FederatedDataSource):
    """The cohorts of a federated program: clients sampled uniformly, by their ids.

    The selection of a round is `{client_id: dataset}`, what `next` of a
    `ProcessWithClientStates` takes, or a list of datasets, what that of all other
    processes takes. It is that of `run_training` with the same seed:
    a pure function of the seed and of the number of the selection, which is part of
    the program's state, so that a resumed program continues with the clients and
    batches that a whole one would have seen.
    """

    def __init__(
        self, train: ClientDatasets, *, seed: int = 0, by_client_id: bool = True
    ) -> None:
        """Makes a source.

        Args:
          train: The clients to train on.
          seed: The seed of the sampling.
          by_client_id: Whether a program gets the datasets by client id, for a
            `ProcessWithClientStates`; if not, as a list, for all other processes.

        Raises:
          TypeError: If `train` is not a `ClientDatasets`, `seed` is not an integer, or
            `by_client_id` no boolean.
          ValueError: If `seed` is negative.
        """
        checks.check_instance("train", train, ClientDatasets)
        checks.check_integer("seed", seed, at_least=0)
        checks.check_flag("by_client_id", by_client_id)
        self.by_client_id = by_client_id
        self._train = train
        self._seed = int(seed)  # JSON does not know NumPy's integers.
        self._federated_type = compat.FederatedType(
            compat.SequenceType(compat.tensorflow_to_type(train.element_spec)),
            compat.CLIENTS,
        )

    @property
    def federated_type(self) -> compat.FederatedType:
        """The type of the selected datasets, `{B*}@CLIENTS`."""
        return self._federated_type

    @property
    def fingerprint(self) -> str:
        """A hash of all that the selections depend on; of the examples, `examples`."""
        train, batches = self._train, self._train.batching
        parts = [self._seed, train.client_ids, batches.batch_size, batches.epochs]
        parts += [train.max_examples, batches.shuffle, batches.seed, batches.last_batch]
        parts.append(batches.local_steps)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @functools.cached_property
    def examples(self) -> dict[str, Any]:
        """Hashes of the clients' examples, see `ClientDatasets.digest`."""
        return self._train.digest()

    def select(self, round_number: int, cohort_size: int) -> Selection:
        """Returns the datasets of a round's clients.

        Args:
          round_number: The round, from 0.
          cohort_size: The number of clients.

        Returns:
          The datasets by client id. Execution contexts that run rounds do not read
          them, but the clients' data in the form that they take best.

        Raises:
          TypeError: If `cohort_size` is not an integer.
          ValueError: If it is below 1 or above the number of clients.
        """
        sample = build_uniform_sampling(self._train.client_ids, cohort_size, self._seed)
        return Selection(self._train, sample(round_number), round_number)

    def iterator(self) -> compat.FederatedDataSourceIterator:
        """Returns an iterator that begins with round 0."""
        # TFF restores an iterator by its class alone: each source has its own.
        return type("Iterator", (_Iterator,), {"_source": self})(0)


class _Iterator(compat.FederatedDataSourceIterator):
    """The number of the next selection from a source."""

    _source: ClientDataSource

    def __init__(self, round_number: int) -> None:
        self._round_number = round_number

    @classmethod
    def from_bytes(cls, buffer: bytes) -> _Iterator:
        content = json.loads(buffer)
        # Earlier versions did not save hashes of examples.
        examples = content.get("examples")
        if content["source"] != cls._source.fingerprint or examples not in (
            None,
            cls._source.examples,
        ):
            raise ValueError(
                "The saved program trained on other clients or examples, or by another "
                "seed or batch size. Give its data source, or another, empty folder."
            )
        return cls(content["round_number"])

    def to_bytes(self) -> bytes:
        content = {
            "source": self._source.fingerprint,
            "examples": self._source.examples,
            "round_number": self._round_number,
        }
        return json.dumps(content).encode()

    @property
    def federated_type(self) -> compat.FederatedType:
        return self._source.federated_type

    def select(self, k: Any = None) -> Selection | list[Any]:
        selection = self._source.select(self._round_number, k)
        self._round_number += 1
        return selection if self._source.by_client_id else list(selection.values())


class ClientStatesProgramStateManager(compat.ProgramStateManager):
    """Keeps the clients' states in step with the program states of a state manager.

    A store in RAM is saved in the program state, a copy with every version. A store on
    disk keeps a version of its own beside each, by the protocol of
    `tff_drift.client_states.ClientStates`: it is committed before the program state is
    written, with the version's fingerprint in it, and older versions are pruned
    afterwards, so that a program killed at any moment resumes with the clients' states
    of the program state it finds, and with no other ones. On disk only the latest
    version can be loaded.
    """

    def __init__(
        self, manager: compat.ProgramStateManager, process: ProcessWithClientStates
    ) -> None:
        """Wraps a state manager.

        Args:
          manager: The state manager, such as a `tff.program.FileProgramStateManager`.
          process: The process, and with it the store.

        Raises:
          TypeError: If an argument has the wrong type.
        """
        checks.check_instance("manager", manager, compat.ProgramStateManager)
        checks.check_instance("process", process, ProcessWithClientStates)
        self._manager = manager
        self._process = process
        self._store = process.client_states
        # The latest round whose program state is written.
        self._saved = -1
        process.keep_versions()

    async def get_versions(self) -> list[int] | None:
        """Returns the versions of the program state, None if there are none."""
        return await self._manager.get_versions()

    async def load_latest(self, structure: Any) -> tuple[Any, int]:
        """Returns the latest program state and its version, or (None, 0).

        Raises:
          ClientStatesError: If there is no program state but the store holds clients'
            states, or it does not hold those of the program state.
        """
        program_state, version = await super().load_latest(structure)
        if program_state is None and len(self._store):
            raise ClientStatesError(
                f"client_states holds the states of {len(self._store)} clients, but "
                "there is no program state of theirs. Begin with an empty store."
            )
        return program_state, version

    async def load(self, version: int, structure: Any) -> Any:
        """Returns a program state, and brings the store to its round.

        Raises:
          ClientStatesError: If the store does not hold the clients' states of it.
          tff.program.ProgramStateNotFoundError: If there is no such version.
        """
        if isinstance(self._store, InMemoryClientStates):
            program_state, leaves = await self._manager.load(
                version, (structure, self._store.leaves())
            )
            self._store.load_leaves({name: np.asarray(v) for name, v in leaves.items()})
            state = _server_state(program_state)
            # The next round may be discarded, before a version is saved.
            self._store.commit(rounds_of(state))
            self._process.begin(state)
        else:
            program_state, fingerprint = await self._load_on_disk(version, structure)
            self._process.go_to(_server_state(program_state), fingerprint)
        return program_state

    async def _load_on_disk(self, version: int, structure: Any) -> tuple[Any, Any]:
        """Returns a program state and the fingerprint of the store beside it."""
        try:
            program_state, encoded = await self._manager.load(
                version, (structure, np.zeros(0, np.uint8))
            )
        except (TypeError, ValueError):
            # Earlier versions saved no fingerprint.
            return await self._manager.load(version, structure), None
        return program_state, np.asarray(encoded, np.uint8).tobytes().decode()

    async def save(self, program_state: Any, version: int) -> None:
        """Saves a program state, and with it the clients' states of its round.

        Raises:
          ClientStatesError: If the store is at another round than the program state.
          tff.program.ProgramStateExistsError: If there is this version already.
        """
        # Up to the first `await` nothing else runs: a program that trains on while it
        # saves has not changed the store yet.
        state = _server_state(program_state)
        if not self._process.is_in_step(state):
            raise ClientStatesError(
                f"{self._store} is not at the round of program state {version}. Save "
                "it before the next round ends, and give each process a store."
            )
        rounds = rounds_of(state)
        fingerprint = self._store.commit(rounds)
        if isinstance(self._store, InMemoryClientStates):
            program_state = (program_state, self._store.leaves())
        else:
            encoded = np.frombuffer(fingerprint.encode(), np.uint8)
            program_state = (program_state, encoded)
        await self._manager.save(program_state, version)
        if rounds > self._saved:
            self._saved = rounds
            self._store.prune(rounds)


def _server_state(program_state: Any) -> Any:
    """Returns the server state in the program state of one of TFF's loops."""
    return getattr(program_state, "state", program_state)
