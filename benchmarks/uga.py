"""The cost of UGA's rounds beside FedAvg's, with the same epochs.

    python benchmarks/uga.py [--task emnist_digits] [--epochs 5] [--rounds 3]
        [--clients 10] [--cache_dir data]

Both methods train on the same cohorts of the task, in the in-process context, one
client at a time, and take turns, so that both meet the same load of the machine. What
counts is the ratio of their processor seconds. The peak memory is that of the whole
program after FedAvg's first rounds, before UGA is built, and at the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_drift import algorithms, execution, system

_RATE = 0.002


class _Run:
    """Rounds of one method."""

    def __init__(self, process: tff.learning.templates.LearningProcess) -> None:
        self._process = process
        self._state = process.initialize()
        self.wall: list[float] = []
        self.processor: list[float] = []

    def round(self, data: list[Any]) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        self._state = self._process.next(self._state, data).state
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)

    def medians(self) -> tuple[float, float]:
        """Wall and processor seconds of a round, the first one left out."""
        return statistics.median(self.wall[1:]), statistics.median(self.processor[1:])


def _peak_memory() -> float:
    """The largest memory that the program has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="emnist_digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--cache_dir")
    options = parser.parse_args()
    execution.set_local_execution_context(max_concurrent_clients=1)
    task = tasks.load(
        options.task, cache_dir=options.cache_dir, seed=1, epochs=options.epochs
    )

    def cohort(round_number: int) -> list[Any]:
        first = round_number * options.clients
        names = task.train.client_ids[first : first + options.clients]
        return [task.train.training_data(name, round_number) for name in names]

    fed_avg = _Run(algorithms.build_fed_avg(task.model_fn, _RATE))
    for round_number in range(2):
        fed_avg.round(cohort(round_number))
    memory = _peak_memory()
    uga = _Run(
        algorithms.build_uga(task.model_fn, _RATE, _RATE, local_epochs=options.epochs)
    )
    for round_number in range(2):
        uga.round(cohort(round_number))
    for round_number in range(2, options.rounds + 1):
        for run in (fed_avg, uga):
            run.round(cohort(round_number))
    print(
        f"{task.name}, {options.clients} clients, {options.epochs} epochs, batches of "
        f"{task.train.batching.batch_size}, {system.processors()} processors, load "
        f"{os.getloadavg()[0]:.1f}, TensorFlow {tf.__version__}, medians of "
        f"{options.rounds} rounds"
    )
    print("| method | processor seconds | wall seconds | first round | peak memory |")
    print("|---|---|---|---|---|")
    for name, run, peak in (
        ("FedAvg", fed_avg, memory),
        ("UGA", uga, _peak_memory()),
    ):
        wall, processor = run.medians()
        print(
            f"| {name} | {processor:.2f} | {wall:.2f} | {run.wall[0]:.1f} "
            f"| {peak:.0f} MB |"
        )
    ratio = uga.medians()[1] / fed_avg.medians()[1]
    print(f"UGA / FedAvg: {ratio:.2f} in processor seconds")


if __name__ == "__main__":
    main()
