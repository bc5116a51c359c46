"""The search for the default learning rates of `digits`.

    python -m experiments.training.tuning tuning.csv

trains every algorithm of `SERVER_RATES` over a grid of rates with the seeds 1, 2
and 3, for the task's default rounds and cohort, and prints for each algorithm the
point with the best mean over seeds. `experiments.flags.published_rates` holds what it
printed.

No test example is looked at. A fifth of the *training* clients is held out, as in
Charles et al. (2021), On Large-Cohort Training for Federated Learning,
https://arxiv.org/abs/2106.07820; the others train; a point counts by the mean
accuracy on the training examples of the clients held out, over the last three
evaluations.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
import tensorflow_federated as tff

import tasks
from experiments.flags import settings
from experiments.training import processes
from tff_drift import algorithms, execution, simulation
from tff_drift.simulation import callbacks

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

# Flags that can be set in a state, so that one compilation serves a grid; each with
# the part of the process and the hyperparameter that it sets.
SETTABLE = {
    "client_learning_rate": ("client_work", "learning_rate"),
    "server_learning_rate": ("finalizer", "learning_rate"),
    "beta": ("finalizer", "beta"),
}

_HELD_OUT = "held_out_"

# Values by names of flags. `None` leaves a flag that has no meaning as it is.
Point = Mapping[str, Any]


def grid(algorithm: str) -> Iterator[Point]:
    """Yields the points to try.

    Args:
      algorithm: The algorithm's name.
    """
    clients: tuple[float | None, ...] = CLIENT_RATES
    if not algorithms.methods()[algorithm].has_client_rate:
        clients = (None,)
    for client, server in itertools.product(clients, SERVER_RATES[algorithm]):
        yield {"client_learning_rate": client, "server_learning_rate": server}


def _split(task: tasks.Task) -> tuple[list[str], list[str]]:
    """Returns the ids of the clients to train on and of those held out."""
    ids = list(task.train.client_ids)
    # Clients are numbered in the order in which they were drawn at random.
    kept = round(len(ids) * (1 - HELD_OUT_FRACTION))
    return ids[:kept], ids[kept:]


def _at_point(
    process: tff.learning.templates.LearningProcess, state: Any, point: Point
) -> Any:
    """Returns a state with the point's values."""
    hparams = process.get_hparams(state)
    for flag, value in point.items():
        part, name = SETTABLE[flag]
        if value is not None:
            hparams[part][name] = value
    return process.set_hparams(state, hparams)


def try_points(
    run: settings.RunSettings,
    task: tasks.Task,
    held_out: simulation.ClientDatasets,
    points: Iterable[Point],
) -> Iterator[dict[str, Any]]:
    """Trains a run at some points and measures it on clients held out.

    Args:
      run: The run.
      task: Its task, whose training clients are those to train on.
      held_out: The clients to measure on.
      points: The points; their flags are of `SETTABLE`.

    Yields:
      One row per point: the point, and the means of accuracy and loss over the last
      `EVALUATIONS` evaluations.
    """
    process = processes.build_process(run, task)
    evaluation = simulation.build_evaluation(
        task.model_fn, held_out, accuracy_metric=task.accuracy_metric
    )
    every = run.configuration["rounds_per_evaluation"]
    last = range(run.rounds, 0, -every)[:EVALUATIONS]
    initial = process.initialize()
    for point in points:
        training = simulation.run_training(
            process,
            task.train,
            rounds=run.rounds,
            cohort_size=run.configuration["clients_per_round"],
            seed=run.seed,
            initial_state=_at_point(process, initial, point),
            callbacks=[
                callbacks.FailureWatch(),
                callbacks.Progress(False),
                _HeldOut(process, evaluation, last),
            ],
        )
        rows = [row for row in training.rows if row["round"] in last]
        names = {_HELD_OUT + name: name for name in (task.accuracy_metric, "loss")}
        figures = pd.DataFrame(rows)[list(names)].rename(columns=names)
        # A point that broke down must not look good by what it was before.
        yield {**point, **figures.mean(skipna=False)}


class _HeldOut(callbacks.Callback):
    """Measures the model on clients held out, after some rounds."""

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        evaluation: Callable[[Any], Mapping[str, Any]],
        rounds: Collection[int],
    ) -> None:
        self._process = process
        self._evaluation = evaluation
        self._rounds = rounds

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Returns what is measured in a round of those."""
        del row
        if round_number not in self._rounds:
            return None
        measured = self._evaluation(self._process.get_model_weights(state))
        return {_HELD_OUT + name: value for name, value in measured.items()}


def try_seed(seed: int, algorithm: str) -> Iterator[dict[str, Any]]:
    """Trains an algorithm with one seed at every point of its grid.

    Args:
      seed: The seed of the task and of the sampling.
      algorithm: The algorithm's name.

    Yields:
      One row per point.
    """
    run = settings.resolve({"task": TASK, "algorithm": algorithm, "seed": seed})
    task = tasks.load(TASK, seed=seed)
    trained, held_out = (task.train.subset(ids) for ids in _split(task))
    task = dataclasses.replace(task, train=trained)
    for row in try_points(run, task, held_out, grid(algorithm)):
        yield {"algorithm": algorithm, "seed": seed, **row}


def best_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the best point of each algorithm, by the mean over seeds.

    Args:
      rows: What `try_seed` yields, for all algorithms and seeds.
    """
    point = ["algorithm", "client_learning_rate", "server_learning_rate"]
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
