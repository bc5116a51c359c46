"""The instruments of large-cohort training, in runs of the command."""

import json

import pandas as pd
import pytest

from tests import tiers

QUADRATIC = ("--task=quadratic", "--num_clients=8", "--rounds_per_evaluation=2")


def train(run_command, folder, *words):
    outcome = run_command("train", *QUADRATIC, *words, f"--output_dir={folder}")
    assert outcome.status == 0, outcome.stderr
    assert outcome.lacking_files() == []
    return pd.read_csv(folder / "metrics.csv").set_index("round")


@pytest.mark.no_smoke
def test_all_instruments_in_one_run(run_command, tmp_path):
    rows = train(
        run_command,
        tmp_path,
        "--rounds=4",
        "--clients_per_round=2",
        "--cohort_doubling=rounds",
        "--cohort_doubling_at=1,3",
        "--local_steps=3",
        "--batch_size=1",
        "--straggler_clock",
        "--straggler_delay=0",
        "--straggler_seconds_per_example=2",
        "--straggler_left_out=0.5",
        "--evaluate_on_training_clients",
    )
    # Cohorts of 2, 4, 4, 8, of which half is left out.
    assert rows["cohort_size"].tolist()[1:] == [1, 2, 2, 4]
    # Three batches of one example, at two seconds.
    assert rows["simulated_seconds"].tolist()[1:] == [6.0] * 4
    assert rows["total_examples"].tolist()[1:] == [3, 9, 15, 27]
    last = rows["final_train_distance"]
    assert last.notna().tolist() == [False] * 4 + [True]
    assert {"model_norm", "client_work/drift", "finalizer/pseudo_gradient_norm"} <= set(
        rows
    )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["final"]["final_train_distance"] == last.iloc[-1]


# One of each composition; methods in one have their metrics from the same code.
@pytest.mark.conformance
@pytest.mark.parametrize("algorithm", tiers.first([0], ["fed_sgd", "adabest"]))
def test_methods_say_their_norms(run_command, tmp_path, algorithm):
    rows = train(
        run_command, tmp_path, "--rounds=1", "--clients_per_round=8",
        f"--algorithm={algorithm}",
    )  # fmt: skip
    columns = ["model_norm", "client_work/drift", "finalizer/pseudo_gradient_norm"]
    assert (rows[columns].iloc[-1] > 0).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--algorithm=uga", "--local_steps=3"],
            "--local_steps=3 has no meaning for uga",
        ),
        (
            ["--cohort_doubling=rounds", "--cohort_doubling_at=4,2"],
            "--cohort_doubling=rounds: rounds must increase, found [4, 2]. See --",
        ),
        (
            ["--cohort_doubling=examples", "--cohort_doubling_at=4",
             "--max_clients_per_round=1"],
            "maximum must be at least 2, found 1",
        ),
        (["--cohort_doubling=examples"], "needs --cohort_doubling_at."),
        (["--straggler_delay=3"], "no meaning without --straggler_clock"),
        (
            ["--algorithm=fed_adam", "--bias_correction", "--initial_accumulator=1"],
            "initial_accumulator must be 0 with bias_correction",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_told_before_anything_runs(run_command, tmp_path, words, message):
    outcome = run_command(
        "train", *QUADRATIC, "--clients_per_round=2", *words, f"--output_dir={tmp_path}"
    )
    assert outcome.status == 2
    assert message in outcome.stderr
    assert not (tmp_path / "metrics.csv").exists()
