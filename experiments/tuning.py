"""The search for the default learning rates of `digits` and `quadratic`.

    python -m experiments.tuning digits tuning.csv

trains every algorithm of `SERVER_RATES` over a grid of rates with the seeds 1, 2
and 3, for the task's default rounds and cohort, and prints for each algorithm the
point with the best mean over seeds. `experiments.defaults` holds what it printed.

No test example is looked at. A fifth of the *training* clients is held out, as in
Charles et al. (2021), On Large-Cohort Training for Federated Learning,
https://arxiv.org/abs/2106.07820; the others train; a point counts by the mean
accuracy on the training examples of the clients held out, over the last three
evaluations. On `quadratic`, which has no test data and whose clients each have an
optimum of their own, all clients train, and a point counts by their mean loss after
the last round; the client rate is fixed, because drift is what the task is to show,
and a small one would hide it.
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
from experiments import catalogue, command_line, defaults, processes, settings
from tff_drift import execution, simulation

SEEDS = (1, 2, 3)
HELD_OUT_FRACTION = 0.2
EVALUATIONS = 3
CLIENT_RATES = {"digits": (0.1, 0.3, 1.0), "quadratic": (0.1,)}
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


def grid(task: str, algorithm: str) -> Iterator[Point]:
    """Yields the points to try.

    Args:
      task: The task's name.
      algorithm: The algorithm's name.
    """
    clients: tuple[float | None, ...] = CLIENT_RATES[task]
    if not catalogue.algorithms()[algorithm].has_client_rate:
        clients = (None,)
    for client, server in itertools.product(clients, SERVER_RATES[algorithm]):
        yield {"client": client, "server": server}


def _split(task: tasks.Task) -> tuple[list[str], list[str]]:
    """Returns the ids of the clients to train on and of those held out."""
    ids = list(task.train.client_ids)
    if not task.higher_is_better:
        return ids, ids
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


def try_seed(
    task: tasks.Task, algorithm: str, rounds: int, cohort: int, every: int
) -> Iterator[dict[str, Any]]:
    """Trains an algorithm with one seed at every point of its grid.

    Args:
      task: The task, loaded with the seed.
      algorithm: The algorithm's name.
      rounds: The rounds of training.
      cohort: The clients per round.
      every: The rounds from one evaluation to the next.

    Yields:
      One row per point.
    """
    trained, held_out = _split(task)
    data = task.train.subset(trained)
    flags = [f"--task={task.name}", f"--algorithm={algorithm}"]
    (run,) = settings.resolve(command_line.parse("train", flags))
    process = processes.build_process(run, task)
    evaluation = simulation.build_evaluation(
        task.model_fn,
        task.train.subset(held_out),
        accuracy_metric=task.accuracy_metric,
    )
    sampling = simulation.build_uniform_sampling(trained, cohort, task.seed)
    initial = process.initialize()
    last_evaluations = range(rounds, 0, -every)[
        : EVALUATIONS if task.higher_is_better else 1
    ]
    for point in grid(task.name, algorithm):
        state = _at_point(process, initial, point)
        measured = []
        for round_number in range(rounds):
            clients = sampling(round_number)
            state = process.next(
                state, [data.training_data(name, round_number) for name in clients]
            ).state
            if round_number + 1 in last_evaluations:
                measured.append(evaluation(process.get_model_weights(state)))
        frame = pd.DataFrame(measured)[[task.accuracy_metric, "loss"]].mean()
        yield {"algorithm": algorithm, "seed": task.seed, **point, **frame}


def best_points(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Returns the best point of each algorithm, by the mean over seeds.

    Args:
      rows: What `try_seed` yields, for all algorithms and seeds.
      task: The task's name.
    """
    definition = tasks.describe(task)
    point = ["algorithm", "client", "server"]
    means = rows.groupby(point, dropna=False, sort=False).mean(numeric_only=True)
    means = means.drop(columns="seed").reset_index()
    # Points of equal accuracy differ in loss.
    by = ["loss"]
    if definition.higher_is_better:
        by = [definition.accuracy_metric, "loss"]
    ranked = means.sort_values(by, ascending=[name == "loss" for name in by])
    return ranked.groupby("algorithm", sort=False).head(1)


def main(task_name: str, path: str) -> None:
    """Runs the search.

    Args:
      task_name: "digits" or "quadratic".
      path: The CSV file for all points.
    """
    execution.set_local_execution_context()
    of_task = defaults.of_task(task_name)
    rows: list[dict[str, Any]] = []
    for algorithm in SERVER_RATES:
        for seed in SEEDS:
            rows.extend(
                try_seed(
                    tasks.load(task_name, seed=seed),
                    algorithm,
                    of_task.rounds,
                    of_task.clients_per_round,
                    of_task.rounds_per_evaluation,
                )
            )
            pd.DataFrame(rows).to_csv(pathlib.Path(path), index=False)
        print(best_points(pd.DataFrame(rows), task_name).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
