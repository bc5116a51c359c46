"""How rounds, RAM and stores grow: with the cohort, the population and the actors.

    python benchmarks/scaling.py [--parts cohorts,population,ray] [--rounds 5]
        [--cohorts 10,100,1000,10000] [--output scaling.csv]

Logistic regression on the shapes of EMNIST, 62 classes; clients of unequal sizes
(log-normal, see `populations.py`) of a population of 342,477, whose examples are
slices of one array: what the table says of RAM is what training takes, not what
keeps the data. Cohorts are drawn anew for every round.

    cohorts     federated averaging with so many clients in a round, local context
    population  SCAFFOLD, 100 clients in a round, their states on disk, committed every
                ten rounds; then a store that has seen everybody, and how long it takes
                to open it again
    ray         on --actors actors on Ray, each on a node of its own of the cluster at
                --ray_address, or of one that is simulated on this machine, and in the
                local context, a round of each in turns: federated averaging and
                SCAFFOLD of 100 clients of 400, and a CNN
    ray_cohorts cohorts of --ray_cohorts clients of all on one such actor and on all
    ray_states  SCAFFOLD, FedDyn and AdaBest on such actors, --ray_cohort clients of all
                in a round, their states at the actors, a checkpoint in every round

Seconds are medians, of the rounds after the first two; seconds of processor time are
those of this process and, on Ray, of the actors. Megabytes are those that came in by
the loopback interface, which joins simulated nodes and which other programs use too.
RAM is the peak of this process above what it was before the part began.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import scaling_on_ray
import tensorflow_federated as tff
from models import ALGORITHMS, FED_AVG, build_scaffold
from populations import Work
from scaling_rows import (
    COLUMNS,
    MEGABYTE,
    WARM_UP_ROUNDS,
    Ram,
    Readings,
    Row,
    clients_of,
)

from tff_drift import client_states, execution, simulation

POPULATION = 342_477
_ROUNDS_PER_CHECKPOINT = 10
_SMALL_STATE_FLOATS = 250


def _train(
    process: tff.learning.templates.LearningProcess,
    work: Work,
    rounds: int,
    readings: Mapping[str, Callable[[], float]],
    **options: Any,
) -> dict[str, float]:
    """Trains; returns the medians of the rounds' readings, by name."""
    counters = {name: Readings(read) for name, read in readings.items()}
    simulation.run_training(
        process,
        clients_of(work),
        rounds=WARM_UP_ROUNDS + rounds,
        cohort_size=work.cohort_size,
        callbacks=list(counters.values()),
        **options,
    )
    return {name: float(counter.median()) for name, counter in counters.items()}


_TIMES = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}


def _cohorts(options: argparse.Namespace) -> Iterator[Row]:
    """Larger and larger cohorts."""
    context = execution.create_local_execution_context()
    ram = Ram()
    for cohort_size in options.cohorts:
        work = Work("logistic", cohort_size, options.population)
        with tff.framework.get_context_stack().install(context):
            process = ALGORITHMS[FED_AVG](work)
            medians = _train(process, work, options.rounds, _TIMES)
        yield Row(
            "cohorts",
            "FedAvg",
            cohort_size,
            medians["seconds"],
            medians["cpu_seconds"],
            ram_mb=ram.megabytes(),
        )


def _population(options: argparse.Namespace) -> Iterator[Row]:
    """Client states on disk: rounds that keep them, and a store of everybody."""
    work = Work("logistic", min(100, options.population), options.population)
    process = build_scaffold(work, options.population)
    ram = Ram()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        path, initial = folder / "states", process.initial_client_state
        with client_states.DiskClientStates(path, initial) as store:
            context = execution.create_local_execution_context()
            with tff.framework.get_context_stack().install(context):
                medians = _train(
                    process,
                    work,
                    _ROUNDS_PER_CHECKPOINT * options.rounds,
                    _TIMES,
                    client_states=store,
                    output_dir=simulation.OutputDir(
                        folder / "run", _ROUNDS_PER_CHECKPOINT
                    ),
                )
            yield Row(
                "population",
                f"SCAFFOLD, {len(store):,} clients seen",
                work.cohort_size,
                medians["seconds"],
                medians["cpu_seconds"],
                ram.megabytes(),
                store.nbytes / MEGABYTE,
            )
        yield _opened(path, initial)
        yield from _everybody(folder / "small", options.population)


def _everybody(path: pathlib.Path, population: int) -> Iterator[Row]:
    """A store with a small state of every client."""
    initial = np.zeros(_SMALL_STATE_FLOATS, np.float32)
    ram = Ram()
    start, cpu = time.perf_counter(), time.process_time()
    with client_states.DiskClientStates(path, initial) as store:
        for first in range(0, population, 10_000):
            ids = [str(k) for k in range(first, min(population, first + 10_000))]
            store.scatter(ids, [initial + 1] * len(ids), copy=False)
        store.commit(1)
        yield Row(
            "population",
            f"keep a state of {initial.nbytes} bytes of everybody",
            population,
            time.perf_counter() - start,
            time.process_time() - cpu,
            ram.megabytes(),
            store.nbytes / MEGABYTE,
        )
    yield _opened(path, initial)


def _opened(path: pathlib.Path, initial_state: Any) -> Row:
    ram = Ram()
    start, cpu = time.perf_counter(), time.process_time()
    with client_states.DiskClientStates(path, initial_state) as store:
        return Row(
            "population",
            "open that store again",
            len(store),
            time.perf_counter() - start,
            time.process_time() - cpu,
            ram.megabytes(),
            store.nbytes / MEGABYTE,
        )


PARTS = {
    "cohorts": _cohorts,
    "population": _population,
    "ray": scaling_on_ray.small_cohorts,
    "ray_cohorts": scaling_on_ray.large_cohorts,
    "ray_states": scaling_on_ray.states,
}


def _markdown(row: Row) -> str:
    def cell(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    cells = [
        row.part,
        row.what,
        f"{row.clients:,}",
        cell(row.seconds, 3),
        cell(row.ms_per_client, 3),
        cell(row.cpu_seconds, 3),
        cell(row.ram_mb, 0),
        cell(row.disk_mb, 0),
        cell(row.network_mb, 2),
    ]
    return f"| {' | '.join(cells)} |"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="cohorts,population")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cohorts", type=_numbers, default=[10, 100, 1000, 10_000])
    parser.add_argument("--population", type=int, default=POPULATION)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--ray_address", help="a cluster; default: one simulated here")
    parser.add_argument("--ray_cohort", type=int, default=100)
    parser.add_argument("--ray_cohorts", type=_numbers, default=[1000, 10_000])
    parser.add_argument("--cnn_rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the stores are made; default: /tmp")
    parser.add_argument("--output", help="a CSV file for the table")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[Row]:
    """Measures, prints a table and returns its rows."""
    options = parse(arguments)
    print(
        "| part | what | clients | seconds | ms per client | processor seconds | RAM, "
        "MB | disk, MB | network, MB |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    rows = []
    for part in options.parts.split(","):
        for row in PARTS[part](options):
            print(_markdown(row), flush=True)
            rows.append(row)
    if options.output:
        with open(options.output, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(dataclasses.astuple(row) for row in rows)
    return rows


if __name__ == "__main__":
    main()
