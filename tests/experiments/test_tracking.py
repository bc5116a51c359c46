"""Trackers, from the command line."""

import csv
import sys

import pytest

from tff_drift.simulation import callbacks
from tff_drift.simulation.callbacks import Tracker


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_without_its_package_the_extra_is_named(
    run_command, monkeypatch, tmp_path, package
):
    monkeypatch.setitem(sys.modules, package, None)
    outcome = run_command(
        "train", f"--track={package}", f"--output_dir={tmp_path / 'run'}"
    )
    assert outcome.status == 2
    assert f"--track={package}: " in outcome.stderr
    assert f"pip install 'tff-drift[{package}]'" in outcome.stderr
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_is_not_known(run_command):
    outcome = run_command("train", "--track=mlfow")
    assert outcome.status == 2
    assert "Did you mean mlflow?" in outcome.stderr


class Unreachable(Tracker):
    title, extra = "MLflow", "mlflow"

    def check(self):
        pass

    def _open(self, known, settings, name):
        raise ConnectionError("nobody answers.")

    _log = _log_files = _close = None


def test_a_tracker_that_cannot_be_reached_is_named(run_command, monkeypatch, tmp_path):
    monkeypatch.setattr(callbacks, "MLflowTracker", Unreachable)
    words = ("train", "--task=quadratic", "--rounds=1", "--clients_per_round=2")
    words += (f"--output_dir={tmp_path / 'run'}",)
    told = (
        "tff-drift: error: --track=mlflow: MLflow cannot start the run: nobody "
        "answers. Fix that, or train without it: the run can be sent to it later.\n"
    )
    outcome = run_command(*words, "--track=mlflow")
    assert (outcome.status, outcome.stderr) == (2, told)
    assert run_command(*words).status == 0
    outcome = run_command(*words, "--track=mlflow")
    assert outcome.status == 2
    assert outcome.stderr.endswith(told)
    (tmp_path / "run" / "trackers.json").write_text("{")
    outcome = run_command(*words, "--track=mlflow")
    assert outcome.status == 2
    assert "--track=mlflow: " in outcome.stderr
    assert "trackers.json is damaged" in outcome.stderr


@pytest.mark.no_smoke
def test_mlflow_has_the_flags_and_the_rounds(run_command, monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="MLflow, the extra, is not installed")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    words = (
        "train", "--task=quadratic", "--algorithm=scaffold", "--num_clients=4",
        "--clients_per_round=2", "--output_dir=run", "--track=mlflow",
    )  # fmt: skip

    def check(rounds):
        outcome = run_command(*words, f"--rounds={rounds}")
        assert outcome.status == 0, outcome.stderr
        client = mlflow.MlflowClient(uri)
        experiment = client.get_experiment_by_name("tff_drift")
        [run] = client.search_runs([experiment.experiment_id])
        assert run.data.params["algorithm"] == "scaffold"
        assert run.data.params["clients_per_round"] == "2"
        with open("run/metrics.csv") as file:
            kept = [
                (int(row["round"]), row["train_loss"]) for row in csv.DictReader(file)
            ]
        logged = client.get_metric_history(run.info.run_id, "train_loss")
        assert [(each.step, each.value) for each in logged] == [
            (number, float(loss)) for number, loss in kept if loss
        ]
        assert len(logged) == rounds

    check(3)
    check(5)
    # What a tracker missed of a finished run it is told when the command comes again.
    (tmp_path / "run" / "trackers.json").unlink()
    uri = f"sqlite:///{tmp_path}/elsewhere.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    check(5)
