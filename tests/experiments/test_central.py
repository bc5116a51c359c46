"""Baselines and data of one's own from the command line."""

import numpy as np
import pandas as pd
import pytest

from tff_drift import simulation


def test_pooled_data_are_one_clients():
    clients = {
        "ann": (np.arange(3.0), np.arange(3)),
        "bob": (np.arange(3.0, 8.0), np.arange(3, 8)),
    }
    train = simulation.ClientDatasets.from_arrays(
        clients, batch_size=3, epochs=2, max_examples=4, transform=lambda e, _: e
    )
    pooled = simulation.pool(train)
    assert pooled.client_ids == ("everyone",)
    features, labels = pooled.examples("everyone")
    assert features.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert labels.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (pooled.batching.batch_size, pooled.batching.epochs) == (3, 2)
    assert pooled.num_examples_per_round("everyone") == 14
    with pytest.raises(TypeError, match=r"datasets must be a tff_drift\.simulation"):
        simulation.pool([train])


def test_central_training(run_command, tmp_path):
    outcome = run_command(
        "train", "--task=quadratic", "--algorithm=central", "--num_clients=4",
        "--rounds=2", f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    rows = pd.read_csv(tmp_path / "metrics.csv")
    assert rows["cohort_size"].tolist()[1:] == [1, 1]
    # A round is ten passes over ten examples of each of four clients.
    assert rows["total_examples"].tolist()[1:] == [400, 800]
    assert rows["test_distance"].iloc[1] < rows["test_distance"].iloc[0]


def test_central_training_has_one_client(run_command, tmp_path):
    outcome = run_command(
        "train", "--task=quadratic", "--algorithm=central", "--clients_per_round=2",
        f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert outcome.status == 2
    assert "--clients_per_round has no meaning for central" in outcome.stderr


@pytest.mark.conformance
def test_data_of_ones_own(run_command, tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(40, 2)), columns=["a", "b"])
    frame["hospital"] = [f"h{row % 4}" for row in range(40)]
    frame["ill"] = (frame["a"] > 0).astype(int)
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    folder = tmp_path / "run"
    outcome = run_command(
        "train", "--task=own_data", f"--data={path}", "--client_column=hospital",
        "--label=ill", "--clients_per_round=2", "--rounds=2",
        "--last_batch=bootstrap", f"--output_dir={folder}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    rows = pd.read_csv(folder / "metrics.csv")
    # Eight examples of each client to train on, in one batch filled up to 20.
    assert rows["total_examples"].tolist()[1:] == [40, 80]


@pytest.mark.conformance
def test_numbers_of_ones_own_in_the_order_of_time(run_command, tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"load": draw.normal(size=40), "device": list("abcd") * 10})
    frame["hour"] = pd.date_range("2024", periods=40, freq="h").astype(str)
    frame["next"] = frame.groupby("device")["load"].shift(-1).fillna(0.5)
    path = tmp_path / "loads.csv"
    frame.to_csv(path, index=False)
    words = [f"--data={path}", "--client_column=device", "--label=next"]
    folder = tmp_path / "run"
    outcome = run_command(
        "train", "--task=own_numbers", *words, "--time_column=hour", "--window=2",
        "--clients_per_round=2", "--rounds=2", f"--output_dir={folder}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    rows = pd.read_csv(folder / "metrics.csv")
    # Of ten rows eight are to train on, which have seven windows of two.
    assert rows["total_examples"].tolist()[1:] == [14, 28]
    assert np.isfinite(rows["test_mae"].dropna()).all()
    assert rows["test_mae"].count() == 2
    outcome = run_command(
        "train", "--task=own_data", *words, "--time_column=hour",
        f"--output_dir={tmp_path / 'other'}",
    )  # fmt: skip
    assert outcome.status == 2
    assert "Give --task=own_numbers to predict numbers." in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task=own_data"], "Give --data=FOLDER or --data=FILE."),
        (["--task=own_data", "--data=a.txt"], "there is no file or folder 'a.txt'"),
        (["--task=own_data", f"--data={__file__}"], "or a file that ends in .csv"),
        (["--task=own_data", "--data=a.csv"], "there is no file 'a.csv'"),
        (["--task=own_data", "--data=a.sqlite"], "num_classes must be given"),
        (["--data=a.csv"], "--data is not an option of task digits"),
    ],
)
def test_bad_data_is_told_before_anything_runs(run_command, tmp_path, words, message):
    outcome = run_command("train", *words, f"--output_dir={tmp_path}")
    assert outcome.status == 2
    assert message in outcome.stderr
