"""The parts of `scaling.py` on Ray."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import tensorflow_federated as tff
from loopback import megabytes_received
from models import ALGORITHMS, FED_AVG, build_scaffold
from populations import Work
from scaling_rows import (
    MEGABYTE,
    WARM_UP_ROUNDS,
    Ram,
    Readings,
    Row,
    clients_of,
)

from tff_drift import execution, simulation
from tff_drift.execution.on_ray import cluster
from tff_drift.simulation.cohorts import Cohort, Selection, run_round

# Of whom everybody has a state after some rounds.
_FEW_CLIENTS = 400
_STORE_BYTES = 300 * 2**20


@contextlib.contextmanager
def _nodes(options: argparse.Namespace) -> Iterator[str]:
    """A cluster of Ray: the one that was named, or nodes simulated on this machine."""
    if options.ray_address:
        yield options.ray_address
        return
    # As the context does before it starts an instance of its own.
    cluster.set_environment(None)
    import ray
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    # The head, to which this process is connected, trains nobody.
    nodes = Cluster(initialize_head=True, head_node_args={**store, "num_cpus": 0})
    for _ in range(options.actors):
        nodes.add_node(**store, num_cpus=1)
    try:
        yield nodes.address
    finally:
        ray.shutdown()
        nodes.shutdown()


@contextlib.contextmanager
def _actors(address: str, number: int) -> Iterator[Any]:
    context = execution.create_ray_execution_context(
        address=address, num_actors=number, processors=1
    )
    try:
        yield context
    finally:
        context.close()


def small_cohorts(options: argparse.Namespace) -> Iterator[Row]:
    """Actors on Ray, each on a node of its own, and the local context, in turns."""
    start, cpu = time.perf_counter(), time.process_time()
    with _nodes(options) as address, _actors(address, options.actors) as on_ray:
        yield Row(
            "ray",
            f"start Ray and {options.actors} actors",
            options.actors,
            time.perf_counter() - start,
            time.process_time() - cpu,
        )
        contexts = {
            "local": execution.create_local_execution_context(),
            "on Ray": on_ray,
        }
        population = min(options.population, _FEW_CLIENTS)
        logistic = Work("logistic", options.ray_cohort, population)
        rounds = 3 * options.rounds
        fed_avg = ALGORITHMS[FED_AVG]
        yield from _in_turns("FedAvg", contexts, fed_avg(logistic), logistic, rounds)
        scaffold = build_scaffold(logistic, population)
        store = on_ray.open_client_states(scaffold.initial_client_state)
        stateful = {
            "local": simulation.ProcessWithClientStates(scaffold),
            "on Ray": simulation.ProcessWithClientStates(scaffold, store),
        }
        yield from _in_turns(
            "SCAFFOLD", contexts, scaffold, logistic, rounds, stateful=stateful
        )
        store.close()
        for cohort_size in (10, options.ray_cohort):
            cnn = Work("cnn", cohort_size, population)
            yield from _in_turns("CNN", contexts, fed_avg(cnn), cnn, options.cnn_rounds)


def large_cohorts(options: argparse.Namespace) -> Iterator[Row]:
    """The driver's RAM when cohorts grow."""
    with _nodes(options) as address:
        for number in sorted({1, options.actors}):
            with _actors(address, number) as on_ray:
                for cohort_size in options.ray_cohorts:
                    work = Work("logistic", cohort_size, options.population)
                    ram = Ram()
                    _, row = _in_turns(
                        f"FedAvg, {number} actors,",
                        {"on Ray": on_ray},
                        ALGORITHMS[FED_AVG](work),
                        work,
                        rounds=2,
                        warm_up=1,
                    )
                    yield dataclasses.replace(row, ram_mb=ram.megabytes())


def states(options: argparse.Namespace) -> Iterator[Row]:
    """Methods whose clients have states, which the actors keep."""
    work = Work("logistic", options.ray_cohort, options.population)
    with _nodes(options) as address, _actors(address, options.actors) as on_ray:
        for name in ("build_scaffold", "build_fed_dyn", "build_adabest"):
            yield _with_states(name, work, on_ray, options)


def _with_states(
    name: str, work: Work, on_ray: Any, options: argparse.Namespace
) -> Row:
    """Trains as a user does, with a checkpoint in every round."""
    ram = Ram()
    # Of other machines this process cannot tell.
    theirs = [] if options.ray_address else [Ram(each["pid"]) for each in on_ray.actors]
    readings = Readings(lambda: _readings(on_ray))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with tff.framework.get_context_stack().install(on_ray):
            simulation.run_training(
                ALGORITHMS[name](work),
                clients_of(work),
                rounds=WARM_UP_ROUNDS + options.rounds,
                cohort_size=work.cohort_size,
                output_dir=simulation.OutputDir(folder, rounds_per_checkpoint=1),
                callbacks=[readings],
            )
        files = [each for each in pathlib.Path(folder).rglob("*") if each.is_file()]
        disk_bytes = sum(512 * each.stat().st_blocks for each in files)
    seconds, here, there, network = map(float, readings.median())
    most = max((each.megabytes() for each in theirs), default=float("nan"))
    return Row(
        "ray_states",
        f"{name}, {options.actors} actors; {1000 * here:.1f} ms of processor time "
        f"here; RAM of an actor at most {most:.0f} MB more",
        work.cohort_size,
        seconds,
        here + there,
        ram.megabytes(),
        disk_bytes / MEGABYTE,
        network,
    )


def _in_turns(
    method: str,
    contexts: Mapping[str, Any],
    process: Any,
    work: Work,
    rounds: int,
    warm_up: int = 2,
    stateful: Mapping[str, simulation.ProcessWithClientStates] | None = None,
) -> Iterator[Row]:
    """Yields the first and the median round of a method, by context."""
    train = clients_of(work)
    choose = simulation.build_uniform_sampling(
        train.client_ids, work.cohort_size, seed=0
    )
    with tff.framework.get_context_stack().install(contexts["on Ray"]):
        states = dict.fromkeys(contexts, process.initialize())
    times: dict[str, list[np.ndarray]] = {name: [] for name in contexts}
    for round_number in range(warm_up + rounds):
        cohort = choose(round_number)
        for name, context in contexts.items():
            before = _readings(contexts["on Ray"])
            with tff.framework.get_context_stack().install(context):
                if stateful:
                    data = Selection(train, cohort, round_number)
                    output = stateful[name].next(states[name], data)
                else:
                    clients = Cohort(round_number, cohort, train)
                    output = run_round(process, states[name], clients)
            states[name] = output.state
            times[name].append(_readings(contexts["on Ray"]) - before)
    for name, of_rounds in times.items():
        first, median = of_rounds[0], np.median(of_rounds[warm_up:], axis=0)
        for what, found in ((", the first round", first), ("", median)):
            seconds, here, there, network = map(float, found)
            yield Row(
                "ray",
                f"{method} {name}{what}; {1000 * here:.1f} ms of processor time here",
                work.cohort_size,
                seconds,
                here + there,
                network_mb=network,
            )


def _readings(on_ray: Any) -> np.ndarray:
    """Returns seconds, those of processors here and at actors, and megabytes."""
    there = sum(actor["processor_seconds"] for actor in on_ray.ask_actors())
    return np.array(
        [time.perf_counter(), time.process_time(), there, megabytes_received()]
    )
