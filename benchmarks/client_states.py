"""Time and memory of the stores of client states.

`python benchmarks/client_states.py` prints, for each store, size of state and
cohort, the milliseconds of a round's calls: of `gather`, of `scatter`, and of `commit`
with `prune`, called every ten rounds, divided by ten. Each is the fastest of the
rounds after the first ten: other programs on the machine can only add to it. In the
row `new` nearly all clients are sampled for the first time, in the row `seen` nearly
all have been sampled before.

`python benchmarks/client_states.py --memory` trains 200 rounds of 50 out of 342,477
clients on disk and prints the memory of this process and the size of the store.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tff_drift import client_states

POPULATION = 342_477
STATE_BYTES = (5_000, 200_000, 4_800_000)
COHORTS = (10, 50)
ROUNDS_PER_CHECKPOINT = 10


class _SqliteBlobs:
    """The alternative that was not chosen: states as blobs in SQLite.

    Pages of 64 KiB and a rollback journal were the fastest for long blobs, of pages
    of 4 and 64 KiB and of a rollback journal and a write-ahead log.
    """

    def __init__(
        self, path: pathlib.Path, initial_state: dict[str, np.ndarray]
    ) -> None:
        self._initial = initial_state["variate"]
        self._version = 0
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA page_size = 65536",
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA journal_mode = TRUNCATE",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE states (client_id TEXT, valid_from INTEGER, "
            "valid_to INTEGER, checksum INTEGER, state BLOB)",
            "CREATE UNIQUE INDEX clients ON states (client_id, valid_from)",
            "CREATE INDEX old ON states (valid_to) WHERE valid_to IS NOT NULL",
            "BEGIN",
        ):
            self._connection.execute(statement)

    def gather(self, client_ids: Sequence[str]) -> list[dict[str, np.ndarray]]:
        query = (
            "SELECT state, checksum FROM states "
            "WHERE client_id = ? AND valid_to IS NULL"
        )
        states = []
        for client_id in client_ids:
            row = self._connection.execute(query, (client_id,)).fetchone()
            variate = self._initial
            if row is not None:
                assert zlib.crc32(row[0]) == row[1]
                variate = np.frombuffer(row[0], self._initial.dtype)
            states.append({"variate": variate.copy()})
        return states

    def scatter(
        self, client_ids: Sequence[str], states: Sequence[dict[str, np.ndarray]]
    ) -> None:
        for client_id, state in zip(client_ids, states, strict=True):
            data = state["variate"].data
            self._connection.execute(
                "UPDATE states SET valid_to = ? "
                "WHERE client_id = ? AND valid_to IS NULL AND valid_from < ?",
                (self._version, client_id, self._version),
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO states VALUES (?, ?, NULL, ?, ?)",
                (client_id, self._version, zlib.crc32(data), data),
            )

    def commit(self, version: int) -> None:
        self._version = version + 1
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")

    def prune(self, version: int) -> None:
        self._connection.execute("DELETE FROM states WHERE valid_to <= ?", (version,))
        self.commit(version)

    def close(self) -> None:
        self._connection.close()


def _initial_state(state_bytes: int) -> dict[str, np.ndarray]:
    return {"variate": np.zeros(state_bytes // 4, np.float32)}


def _build_store(name: str, folder: pathlib.Path, state_bytes: int) -> Any:
    initial = _initial_state(state_bytes)
    if name == "memory":
        return client_states.InMemoryClientStates(initial)
    if name == "disk":
        return client_states.DiskClientStates(folder / "states", initial)
    return _SqliteBlobs(folder / "states.sqlite", initial)


def _cohorts(population: int, cohort: int, rounds: int) -> Iterator[list[str]]:
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        clients = rng.choice(population, cohort, replace=False)
        yield [f"client_{client:07d}" for client in clients]


def _milliseconds_since(start: float) -> float:
    return 1e3 * (time.perf_counter() - start)


def _measure_time(
    name: str, state_bytes: int, cohort: int, population: int, rounds: int
) -> None:
    rng = np.random.default_rng(1)
    new_states = [
        {"variate": rng.random(state_bytes // 4, np.float32)} for _ in range(cohort)
    ]
    times: dict[str, list[float]] = {"gather": [], "scatter": [], "commit": []}
    with tempfile.TemporaryDirectory() as folder:
        store = _build_store(name, pathlib.Path(folder), state_bytes)
        for round_number, ids in enumerate(_cohorts(population, cohort, rounds)):
            start = time.perf_counter()
            store.gather(ids)
            times["gather"].append(_milliseconds_since(start))
            start = time.perf_counter()
            store.scatter(ids, new_states)
            times["scatter"].append(_milliseconds_since(start))
            if (round_number + 1) % ROUNDS_PER_CHECKPOINT == 0:
                start = time.perf_counter()
                store.commit(round_number)
                store.prune(round_number)
                times["commit"].append(_milliseconds_since(start))
        store.close()
    gather = min(times["gather"][ROUNDS_PER_CHECKPOINT:])
    scatter = min(times["scatter"][ROUNDS_PER_CHECKPOINT:])
    commit = min(times["commit"][1:]) / ROUNDS_PER_CHECKPOINT
    print(
        f"{name:7} {state_bytes:9,d} {cohort:6d} "
        f"{'new' if population == POPULATION else 'seen':>6} {gather:8.1f} "
        f"{scatter:8.1f} {commit:8.1f} {gather + scatter + commit:8.1f}",
        flush=True,
    )


def _resident_megabytes() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _measure_memory(state_bytes: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = client_states.DiskClientStates(
            pathlib.Path(folder) / "states", _initial_state(state_bytes)
        )
        before = _resident_megabytes()
        for round_number, ids in enumerate(_cohorts(POPULATION, 50, rounds), start=1):
            states = store.gather(ids)
            for state in states:
                state["variate"] += 1
            store.scatter(ids, states)
            del states
            if round_number % ROUNDS_PER_CHECKPOINT == 0:
                store.commit(round_number)
                store.prune(round_number)
            if round_number in (1, rounds // 10, rounds // 2, rounds):
                print(
                    f"state {state_bytes:9,d} bytes, round {round_number:3d}: "
                    f"{len(store):6,d} clients seen, store "
                    f"{store.nbytes / 1e6:8.1f} MB, memory "
                    f"{_resident_megabytes() - before:+6.1f} MB",
                    flush=True,
                )
        store.close()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="measure memory instead")
    parser.add_argument("--rounds", type=int, help="40, or 200 with --memory")
    parser.add_argument(
        "--cohorts", type=int, nargs="*", default=COHORTS, help="the sizes of a cohort"
    )
    parser.add_argument(
        "--state_bytes", type=int, nargs="*", help="the sizes of a state"
    )
    arguments = parser.parse_args()
    if arguments.memory:
        for state_bytes in arguments.state_bytes or STATE_BYTES[:2]:
            _measure_memory(state_bytes, arguments.rounds or 200)
        return
    rounds = arguments.rounds or 40
    print("store       bytes cohort clients  gather  scatter   commit    total")
    for state_bytes in arguments.state_bytes or STATE_BYTES:
        for cohort in arguments.cohorts:
            for population in (POPULATION, 3 * cohort):
                for name in ("memory", "disk", "sqlite"):
                    _measure_time(name, state_bytes, cohort, population, rounds)


if __name__ == "__main__":
    _main()
