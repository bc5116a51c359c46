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
    ray         federated averaging and SCAFFOLD of 100 clients on --actors actors on
                Ray, on this machine, and the local context, a round of each in turns

Seconds are medians, of the rounds after the first two; seconds of processor time are
those of this process and, in `ray`, of the actors. Megabytes are those of the loopback
interface, which other programs use too. RAM is the
peak of this process above what it was before the part began.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import populations
import tensorflow_federated as tff
from loopback import megabytes_received, processor_seconds
from models import ALGORITHMS, FED_AVG, build_scaffold
from populations import Work

from tff_drift import client_states, execution, simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.loop.rounds import client_data

POPULATION = 342_477
_WARM_UP_ROUNDS = 2
_ROUNDS_PER_CHECKPOINT = 10
_SMALL_STATE_FLOATS = 250
_MEGABYTE = 1e6


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table; None for what a part does not measure.

    Attributes:
      part: Of the command line.
      what: What was done.
      clients: In a round, or in the store.
      seconds: Of a round, or of the opening of a store.
      cpu_seconds: The processor time of the same.
      ram_mb: The most RAM above that before the part, in megabytes.
      disk_mb: What the store takes on disk.
      network_mb: What went over the network in a round, both ways.
    """

    part: str
    what: str
    clients: int
    seconds: float
    cpu_seconds: float | None = None
    ram_mb: float | None = None
    disk_mb: float | None = None
    network_mb: float | None = None

    @property
    def ms_per_client(self) -> float:
        """The milliseconds of a round for each of its clients."""
        return 1000 * self.seconds / self.clients


_COLUMNS = [field.name for field in dataclasses.fields(Row)]


def _status_megabytes(name: str) -> float:
    """Returns what Linux says of this process: `VmRSS`, or its peak, `VmHWM`."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024 / _MEGABYTE
    raise SystemExit(f"/proc/self/status has no {name}: this needs Linux.")


class _Ram:
    """The peak of RAM since this was made."""

    def __init__(self) -> None:
        # Makes the present size the peak.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        self._before = _status_megabytes("VmRSS")

    def megabytes(self) -> float:
        """Returns by how much the peak is above the beginning."""
        # Linux counts pages by threads, and may tell of a peak a little below it.
        return max(0.0, _status_megabytes("VmHWM") - self._before)


class _Readings(callbacks.Callback):
    """Reads a counter after every round."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self.readings: list[float] = []

    def before_training(self, run: callbacks.TrainingRun) -> None:
        del run
        self.readings.append(self._read())

    def after_row(self, row: Mapping[str, Any]) -> None:
        if row["round"]:
            self.readings.append(self._read())

    def median(self) -> float:
        """Returns by how much a round raises the counter, the first ones left out."""
        return statistics.median(np.diff(self.readings)[_WARM_UP_ROUNDS:])


def _clients(work: Work) -> simulation.ClientDatasets:
    load = populations.slices(work)
    return simulation.ClientDatasets(
        [str(number) for number in range(work.population_size or 0)],
        lambda client_id: load(int(client_id)),
        batch_size=work.batch_size,
        cache_bytes=0,
    )


def _train(
    process: tff.learning.templates.LearningProcess,
    work: Work,
    rounds: int,
    readings: Mapping[str, Callable[[], float]],
    **options: Any,
) -> dict[str, float]:
    """Trains; returns the medians of the rounds' readings, by name."""
    counters = {name: _Readings(read) for name, read in readings.items()}
    simulation.run_training(
        process,
        _clients(work),
        rounds=_WARM_UP_ROUNDS + rounds,
        cohort_size=work.cohort_size,
        callbacks=list(counters.values()),
        **options,
    )
    return {name: counter.median() for name, counter in counters.items()}


_TIMES = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}


def _cohorts(options: argparse.Namespace) -> Iterator[Row]:
    """Larger and larger cohorts."""
    context = execution.create_local_execution_context()
    ram = _Ram()
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
    ram = _Ram()
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
                store.nbytes / _MEGABYTE,
            )
        yield _opened(path, initial)
        yield from _everybody(folder / "small", options.population)


def _everybody(path: pathlib.Path, population: int) -> Iterator[Row]:
    """A store with a small state of every client."""
    initial = np.zeros(_SMALL_STATE_FLOATS, np.float32)
    ram = _Ram()
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
            store.nbytes / _MEGABYTE,
        )
    yield _opened(path, initial)


def _opened(path: pathlib.Path, initial_state: Any) -> Row:
    ram = _Ram()
    start, cpu = time.perf_counter(), time.process_time()
    with client_states.DiskClientStates(path, initial_state) as store:
        return Row(
            "population",
            "open that store again",
            len(store),
            time.perf_counter() - start,
            time.process_time() - cpu,
            ram.megabytes(),
            store.nbytes / _MEGABYTE,
        )


def _ray(options: argparse.Namespace) -> Iterator[Row]:
    """Actors on Ray on this machine, and the local context, in turns."""
    work = Work("logistic", options.ray_cohort, options.population)
    local = execution.create_local_execution_context()
    start, cpu = time.perf_counter(), time.process_time()
    on_ray = execution.create_ray_execution_context(
        num_actors=options.actors, processors=1, object_store_bytes=500 * 2**20
    )
    yield Row(
        "ray",
        f"start {options.actors} actors",
        work.cohort_size,
        time.perf_counter() - start,
        time.process_time() - cpu,
    )
    pids = [actor["pid"] for actor in on_ray.actors]
    scaffold = build_scaffold(work, options.population)
    initial = scaffold.initial_client_state
    stateful = {
        "local": simulation.ProcessWithClientStates(scaffold),
        "on Ray": simulation.ProcessWithClientStates(
            scaffold, on_ray.open_client_states(initial)
        ),
    }
    fed_avg = ALGORITHMS[FED_AVG](work)
    contexts = {"local": local, "on Ray": on_ray}
    yield from _in_turns("FedAvg", contexts, {}, fed_avg, pids, options)
    yield from _in_turns("SCAFFOLD", contexts, stateful, scaffold, pids, options)
    stateful["on Ray"].client_states.close()
    on_ray.close()


def _in_turns(
    method: str,
    contexts: Mapping[str, Any],
    stateful: Mapping[str, simulation.ProcessWithClientStates],
    process: tff.learning.templates.LearningProcess,
    pids: list[int],
    options: argparse.Namespace,
) -> Iterator[Row]:
    """Yields the first and the median round of a method, by context."""
    work = Work("logistic", options.ray_cohort, options.population)
    train = _clients(work)
    choose = simulation.build_uniform_sampling(
        train.client_ids, work.cohort_size, seed=0
    )
    with tff.framework.get_context_stack().install(contexts["local"]):
        states = dict.fromkeys(contexts, process.initialize())
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in contexts}
    for round_number in range(_WARM_UP_ROUNDS + options.rounds):
        cohort = choose(round_number)
        for name, context in contexts.items():
            here, there = time.process_time(), sum(map(processor_seconds, pids))
            start, sent = time.perf_counter(), megabytes_received()
            with tff.framework.get_context_stack().install(context):
                data = {each: client_data(train, each, round_number) for each in cohort}
                if name in stateful:
                    output = stateful[name].next(states[name], data)
                else:
                    output = process.next(states[name], list(data.values()))
            states[name] = output.state
            times[name].append(
                (
                    time.perf_counter() - start,
                    time.process_time() - here,
                    sum(map(processor_seconds, pids)) - there,
                    megabytes_received() - sent,
                )
            )
    for name, of_rounds in times.items():
        seconds, here, there, network = np.median(of_rounds[_WARM_UP_ROUNDS:], axis=0)
        first, *of_first = of_rounds[0]
        what = f"{method} {name}, the first round"
        yield Row("ray", what, work.cohort_size, first, sum(of_first[:2]))
        what = f"{method} {name}; {here:.3f} s of processor time here"
        yield Row(
            *("ray", what, work.cohort_size, float(seconds), float(here + there)),
            network_mb=float(network),
        )


PARTS = {
    "cohorts": _cohorts,
    "population": _population,
    "ray": _ray,
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
        cell(row.network_mb, 0),
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
    parser.add_argument("--ray_cohort", type=int, default=100)
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
            writer.writerow(_COLUMNS)
            writer.writerows(dataclasses.astuple(row) for row in rows)
    return rows


if __name__ == "__main__":
    main()
