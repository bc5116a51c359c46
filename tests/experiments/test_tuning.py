import dataclasses

import pandas as pd
import pytest

import tasks
from experiments.training import processes, tuning
from tests.experiments.programs import resolve
from tff_drift import simulation


def test_the_best_mean_over_seeds_wins_and_ties_go_to_the_loss():
    columns = [
        "algorithm",
        "seed",
        "client_learning_rate",
        "server_learning_rate",
        "accuracy",
        "loss",
    ]
    rows = [
        ("a", 1, 0.1, 1.0, 0.9, 0.5),
        ("a", 2, 0.1, 1.0, 0.1, 0.5),
        ("a", 1, 0.3, 1.0, 0.6, 0.4),
        ("a", 2, 0.3, 1.0, 0.6, 0.2),
        ("a", 1, 1.0, 1.0, 0.6, 0.5),
        ("a", 2, 1.0, 1.0, 0.6, 0.5),
        # An algorithm without a client rate.
        ("b", 1, None, 0.1, 0.2, 0.5),
        ("b", 1, None, 0.3, 0.3, 0.5),
    ]
    best = tuning.best_points(pd.DataFrame(rows, columns=columns))
    best = best.set_index("algorithm")
    assert best.loc["a", "client_learning_rate"] == 0.3
    assert best.loc["a", "server_learning_rate"] == 1.0
    assert best.loc["b", "server_learning_rate"] == 0.3


def test_grids():
    points = list(tuning.grid("fed_avg"))
    assert len(points) == len(tuning.CLIENT_RATES) * 3
    assert {point["client_learning_rate"] for point in tuning.grid("fed_sgd")} == {None}


@pytest.mark.parametrize("algorithm", ["fed_avg", "scaffold"])
def test_a_point_is_the_mean_of_its_last_evaluations(algorithm):
    flags = ("--task=quadratic", "--rounds=5", "--clients_per_round=2")
    run = resolve(*flags, f"--algorithm={algorithm}", "--rounds_per_evaluation=1")
    task = tasks.load("quadratic", seed=1)
    kept, held_out = (
        task.train.subset(ids) for ids in (task.train.client_ids[:7], ["client_8"])
    )
    task = dataclasses.replace(task, train=kept)
    points = [{"client_learning_rate": rate} for rate in (0.1, 0.01)]
    rows = list(tuning.try_points(run, task, held_out, points))
    assert [row["client_learning_rate"] for row in rows] == [0.1, 0.01]

    # The same at a rate that the process is built with.
    slow = resolve(*flags, f"--algorithm={algorithm}", "--client_learning_rate=0.01")
    process = processes.build_process(slow, task)
    evaluation = simulation.build_evaluation(
        task.model_fn, held_out, accuracy_metric="distance"
    )
    losses = []
    for rounds in (3, 4, 5):
        training = simulation.run_training(
            process, kept, rounds=rounds, cohort_size=2, seed=1
        )
        losses.append(evaluation(training.model_weights)["loss"])
    assert rows[1]["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)
    assert rows[0]["loss"] != pytest.approx(rows[1]["loss"])
