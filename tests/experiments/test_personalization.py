"""Clients before and after local training, in `tff-drift analyze`."""

import json
import math

import pandas as pd
import pytest

from experiments import analysis
from experiments.analysis import clients
from tests.experiments import made_up_runs

TABLE = pd.DataFrame(
    {
        "examples": [10, 20, 30, 40],
        "accuracy_before": [0.5, 0.6, 0.7, 0.8],
        "accuracy_after": [0.7, 0.6, 0.9, 0.6],
    },
    index=pd.Index(["a", "b", "c", "d"], name="client"),
)


@pytest.fixture
def folder(tmp_path):
    made_up_runs.write(tmp_path / "runs" / "one", [0.1, 0.5])
    made_up_runs.write(tmp_path / "runs" / "two", [0.1, 0.6], algorithm="scaffold")
    TABLE.to_csv(tmp_path / "runs" / "one" / "clients.csv")
    return tmp_path / "runs"


def test_means_and_the_share_that_gained(folder):
    runs = analysis.read(folder)
    found = clients.read(runs, "test_accuracy")
    assert list(found) == [str(folder / "one")]
    table = clients.tabulate(found, analysis.labels(runs))
    [row] = table.to_dict("records")
    assert row == pytest.approx(
        {
            "clients": 4,
            "accuracy before": 0.65,
            "accuracy after": 0.7,
            clients.GAINED: 0.5,
        }
    )


def test_a_lower_loss_is_a_gain(folder):
    columns = {
        name: name.replace("accuracy", "loss") for name in TABLE if name != "examples"
    }
    TABLE.rename(columns=columns).to_csv(folder / "one" / "clients.csv")
    runs = analysis.read(folder)
    found = clients.read(runs, "test_accuracy")
    table = clients.tabulate(found, analysis.labels(runs))
    assert table[clients.GAINED].iloc[0] == 0.25
    assert "loss before" in table


def test_a_lower_distance_is_a_gain(tmp_path):
    made_up_runs.write(tmp_path / "one", [0.1, 0.5], task="quadratic")
    frame = pd.DataFrame(
        {"distance_before": [0.1, 0.5, 0.3], "distance_after": [0.2, 0.4, 0.4]},
        index=pd.Index(["a", "b", "c"], name="client"),
    )
    frame.to_csv(tmp_path / "one" / "clients.csv")
    runs = analysis.read(tmp_path)
    found = clients.read(runs, "test_distance")
    table = clients.tabulate(found, analysis.labels(runs))
    assert table[clients.GAINED].iloc[0] == pytest.approx(1 / 3)


def test_analyze_tells_and_draws_them(folder, tmp_path, run_command):
    outcome = run_command("analyze", folder, f"--output_dir={tmp_path / 'out'}")
    assert outcome.status == 0, outcome.stderr
    assert "before and after local training" in outcome.stdout
    assert "65.00 %" in outcome.stdout
    assert "50 %" in outcome.stdout
    assert (tmp_path / "out" / "personalization.png").is_file()
    assert "70.00 %" in (tmp_path / "out" / "personalization.md").read_text()


def test_a_damaged_table_is_named(folder, tmp_path, run_command):
    (folder / "one" / "clients.csv").write_text("client,examples\na,1\n")
    outcome = run_command("analyze", folder, f"--output_dir={tmp_path / 'out'}")
    assert outcome.status == 2
    assert "is not a table of clients before and after training" in outcome.stderr


def test_a_client_that_broke_down_does_not_drop_out(folder):
    broken = TABLE.copy()
    broken.iloc[0, list(broken).index("accuracy_after")] = float("nan")
    broken.to_csv(folder / "one" / "clients.csv")
    runs = analysis.read(folder)
    found = clients.read(runs, "test_accuracy")
    [row] = clients.tabulate(found, analysis.labels(runs)).to_dict("records")
    assert row["accuracy before"] == pytest.approx(0.65)
    assert math.isnan(row["accuracy after"])


def test_a_table_in_the_folder_of_a_comparison_is_not_replaced(
    folder, tmp_path, run_command
):
    config = {"format": "tff_drift comparison", "flags": {}, "runs": []}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "table.md").write_text("mine")
    outcome = run_command("analyze", folder, f"--output_dir={folder}")
    assert outcome.status == 2
    assert "output_dir must be a folder without a comparison" in outcome.stderr
    assert (folder / "table.md").read_text() == "mine"
