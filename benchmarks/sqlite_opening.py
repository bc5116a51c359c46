"""Time and memory of writing and opening a SQLite file of very many clients.

`python benchmarks/sqlite_opening.py` writes a file of 300,000 clients like those of
Stack Overflow, one to nine sentences each, with `tasks.write_sqlite`, and prints the
seconds that it takes, each time in a new process, to open it as the task
`stackoverflow_word`, to sample 50 of its clients and to read their sentences: for
the first time, which passes over the file, and again. The file has no index, as the
official ones have none. Peak memory is that of the process, TensorFlow included. The
seconds of CPU are what a quiet machine takes.

Measured on 20 November 2026 on two cores of an AMD EPYC that ran other programs too
(load 7), a file of 198 MiB:

    write: 40.0 s, no memory to speak of
    first: 5.53 s (3.53 s of CPU) to open, 0.06 s to draw 50 clients
    again: 0.84 s (0.41 s of CPU) to open, 0.21 s (0.10 s of CPU) to draw 50 clients
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

NUM_CLIENTS = 300_000
COHORT = 50
_SPLITS = {"train": 1.0, "test": 0.1, "heldout": 0.1}
_SENTENCE = "how to find the rows of a client in a file that has no index ?"


def _clients(number: int) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for k in range(number):
        yield f"{k:08}", {"tokens": [_SENTENCE] * (1 + k % 9)}


def _peak_megabytes() -> float:
    # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write(folder: pathlib.Path, num_clients: int) -> None:
    """Writes the file and the counts of its words."""
    import tasks

    before = _peak_megabytes()
    start = time.monotonic()
    tasks.write_sqlite(
        folder / "stackoverflow.sqlite",
        {split: _clients(int(share * num_clients)) for split, share in _SPLITS.items()},
    )
    seconds = time.monotonic() - start
    size = (folder / "stackoverflow.sqlite").stat().st_size / 2**20
    print(
        f"write: {seconds:.1f} s, {size:.0f} MiB, peak memory {_peak_megabytes():.0f} "
        f"MiB, of which {before:.0f} MiB before"
    )
    (folder / "datasets").mkdir()
    words = sorted(set(_SENTENCE.split()))
    counts = "".join(f"{word} 1\n" for word in words)
    (folder / "datasets" / "stackoverflow.word_count").write_text(counts)


def draw(folder: pathlib.Path, name: str) -> None:
    """Opens the file and reads a cohort."""
    import tasks
    from tff_drift.simulation.data import sampling

    clock = [_clocks()]
    task = tasks.load("stackoverflow_word", cache_dir=str(folder), vocabulary_size=10)
    clock.append(_clocks())
    sample = sampling.build_uniform_sampling(task.train.client_ids, COHORT)
    sentences = sum(map(task.train.num_examples, sample(0)))
    clock.append(_clocks())
    opening, drawing = (
        f"{after[0] - before[0]:.2f} s ({after[1] - before[1]:.2f} s of CPU)"
        for before, after in itertools.pairwise(clock)
    )
    print(
        f"{name}: {opening} to open {len(task.train)} clients, {drawing} to draw "
        f"{COHORT} with {sentences} sentences, peak memory {_peak_megabytes():.0f} MiB"
    )


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def main() -> None:
    """Runs each step in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=NUM_CLIENTS)
    parser.add_argument("--step", choices=("write", "first", "again"))
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.step == "write":
        write(arguments.folder, arguments.clients)
    elif arguments.step:
        draw(arguments.folder, arguments.step)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("write", "first", "again", "again"):
                flags = [f"--step={step}", f"--folder={folder}"]
                flags.append(f"--clients={arguments.clients}")
                subprocess.run([sys.executable, __file__, *flags], check=True)


if __name__ == "__main__":
    main()
