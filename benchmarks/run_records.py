"""What it costs to keep a run: this library's files beside those of `tff.program`.

    python benchmarks/run_records.py

prints milliseconds, the best and the median of several calls, for a server state of
two vectors of 1.2 million float32, and for one row of 20 numbers in a file that has
10, 1,000 or 5,000 rows already.
"""

from __future__ import annotations

import asyncio
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import tensorflow_federated as tff

from tff_drift.simulation.records import checkpoint, metrics_file

WEIGHTS = 1_200_000
COLUMNS = {f"column_{index}": 0.1234567 * index for index in range(20)}
ROWS = (10, 1000, 5000)


def _show(name: str, call: Callable[[int], object], times: int = 7) -> None:
    """Prints what a call costs; it is given 0, 1, 2, ..."""
    milliseconds = []
    for number in range(times):
        start = time.perf_counter()
        call(number)
        milliseconds.append(1000 * (time.perf_counter() - start))
    best, median = min(milliseconds), statistics.median(milliseconds)
    print(f"{name:45}{best:10.2f}{median:10.2f}", flush=True)


def _states(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    state = {
        name: random.normal(size=WEIGHTS).astype(np.float32)
        for name in ("weights", "control_variate")
    }
    manager = tff.program.FileProgramStateManager(folder / "program", keep_total=3)
    _show("FileProgramStateManager.save", lambda n: asyncio.run(manager.save(state, n)))
    _show("FileProgramStateManager.load", lambda n: asyncio.run(manager.load(6, state)))
    path = folder / "checkpoint.npz"
    structures = {"server_state": state}
    _show(
        "save_checkpoint", lambda n: checkpoint.save_checkpoint(path, n, {}, structures)
    )
    _show(
        "load_checkpoint",
        lambda n: checkpoint.load_checkpoint(path).restore("server_state", state),
    )


def _rows(folder: pathlib.Path, count: int) -> None:
    path = folder / f"rows_{count}.csv"
    with open(path, "w") as file:
        file.write(",".join(["key", *COLUMNS]) + "\n")
        for number in range(1, count):
            file.write(",".join(map(str, [number, *COLUMNS.values()])) + "\n")
    for mode in tff.program.CSVSaveMode:
        manager = tff.program.CSVFileReleaseManager(path, save_mode=mode)
        first = count if mode == tff.program.CSVSaveMode.APPEND else count + 10
        _show(
            f"CSVFileReleaseManager, {mode.name}, {count} rows",
            lambda n, m=manager, f=first: asyncio.run(m.release(COLUMNS, f + n)),
        )
    ours = metrics_file.MetricsFile(
        folder / f"metrics_{count}.csv",
        [{"round": number, **COLUMNS} for number in range(1, count)],
    )
    _show(
        f"MetricsFile.append, {count} rows",
        lambda n: ours.append({"round": count + n, **COLUMNS}),
    )
    _show(
        f"MetricsFile.append with a new column, {count} rows",
        lambda n: ours.append({"round": count + 10 + n, **COLUMNS, f"new_{n}": 1}),
    )
    _show("MetricsFile.sync", lambda n: ours.sync())


def main() -> None:
    """Prints the costs."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _states(folder)
        for count in ROWS:
            _rows(folder, count)


if __name__ == "__main__":
    main()
