"""The search for the default learning rates of `digits`.

    python -m experiments.tuning tuning.csv

trains every algorithm of `SERVER_RATES` over a grid of rates with the seeds 1, 2
and 3, for the task's default rounds and cohort, and prints for each algorithm the
point with the best mean over seeds. `experiments.defaults` holds what it printed.

No test example is looked at. A fifth of the *training* clients is held out, as in
Charles et al. (2021), On Large-Cohort Training for Federated Learning,
https://arxiv.org/abs/2106.07820; the others train; a point counts by the mean
accuracy on the training examples of the clients held out, over the last three
evaluations.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import tensorflow_federated as tff

import tasks
from experiments import catalogue, command_line, processes, settings
from tff_drift import execution, simulation

TASK = "digits"
SEEDS = (1, 2, 3)
HELD_OUT_FRACTION = 0.2
EVALUATIONS = 3
CLIENT_RATES = (0.1, 0.3, 1.0)
SERVER_RATES = {
    "fed_avg": (0.3, 1.0, 3.0),
    "fed_avgm": (0.1, 0.3, 1.0),
    "fed_adagrad": (0.01, 0.03, 0.1, 0.3),
    "fed_adam": (0.01, 0.03, 0.1, 0.3),
    "fed_yogi": (0.01, 0.03, 0.1, 0.3),
    "fed_lars": (0.003, 0.01, 0.03, 0.1),
    "fed_lamb": (0.003, 0.01, 0.03, 0.1),
    "normalized_fed_avg": (0.1, 0.3, 1.0),
    "fed_sgd": (0.1, 0.3, 1.0, 3.0),
}

Point = Mapping[str, Any]


def grid(algorithm: str) -> Iterator[Point]:
    """Yields the points to try.

    Args:
      algorithm: The algorithm's name.
    """
    clients: tuple[float | None, ...] = CLIENT_RATES
    if not catalogue.algorithms()[algorithm].has_client_rate:
        clients = (None,)
    for client, server in itertools.product(clients, SERVER_RATES[algorithm]):
        yield {"client": client, "server": server}


def _split(task: tasks.Task) -> tuple[list[str], list[str]]:
    """Returns the ids of the clients to train on and of those held out."""
    ids = list(task.train.client_ids)
    # Clients are numbered in the order in which they were drawn at random.
    kept = round(len(ids) * (1 - HELD_OUT_FRACTION))
    return ids[:kept], ids[kept:]


def _at_point(
    process: tff.learning.templates.LearningProcess, state: Any, point: Point
) -> Any:
    """Returns a state with the point's rates: one compilation serves the grid."""
    hparams = process.get_hparams(state)
    if point["client"] is not None:
        hparams["client_work"]["learning_rate"] = point["client"]
    hparams["finalizer"]["learning_rate"] = point["server"]
    return process.set_hparams(state, hparams)


def try_seed(seed: int, algorithm: str) -> Iterator[dict[str, Any]]:
    """Trains an algorithm with one seed at every point of its grid.

    Args:
      seed: The seed of the task and of the sampling.
      algorithm: The algorithm's name.

    Yields:
      One row per point.
    """
    flags = [f"--task={TASK}", f"--algorithm={algorithm}"]
    (run,) = settings.resolve(command_line.parse("train", flags))
    task = tasks.load(TASK, seed=seed)
    trained, held_out = _split(task)
    data = task.train.subset(trained)
    process = processes.build_process(run, task)
    evaluation = simulation.build_evaluation(
        task.model_fn, task.train.subset(held_out), accuracy_metric="accuracy"
    )
    sampling = simulation.build_uniform_sampling(
        trained, run.configuration["clients_per_round"], seed
    )
    every = run.configuration["rounds_per_evaluation"]
    last_evaluations = range(run.rounds, 0, -every)[:EVALUATIONS]
    initial = process.initialize()
    for point in grid(algorithm):
        state = _at_point(process, initial, point)
        measured = []
        for round_number in range(run.rounds):
            clients = sampling(round_number)
            state = process.next(
                state, [data.training_data(name, round_number) for name in clients]
            ).state
            if round_number + 1 in last_evaluations:
                measured.append(evaluation(process.get_model_weights(state)))
        figures = pd.DataFrame(measured)[["accuracy", "loss"]].mean()
        yield {"algorithm": algorithm, "seed": seed, **point, **figures}


def best_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the best point of each algorithm, by the mean over seeds.

    Args:
      rows: What `try_seed` yields, for all algorithms and seeds.
    """
    point = ["algorithm", "client", "server"]
    means = rows.groupby(point, dropna=False, sort=False).mean(numeric_only=True)
    means = means.drop(columns="seed").reset_index()
    # Among points of equal accuracy the loss decides.
    ranked = means.sort_values(["accuracy", "loss"], ascending=[False, True])
    return ranked.groupby("algorithm", sort=False).head(1)


def main(path: str) -> None:
    """Runs the search.

    Args:
      path: The CSV file for all points.
    """
    execution.set_local_execution_context()
    rows: list[dict[str, Any]] = []
    for algorithm in SERVER_RATES:
        for seed in SEEDS:
            rows.extend(try_seed(seed, algorithm))
            pd.DataFrame(rows).to_csv(pathlib.Path(path), index=False)
    print(best_points(pd.DataFrame(rows)).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
