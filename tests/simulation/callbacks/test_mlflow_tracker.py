"""Runs in MLflow, the real one, in its local store."""

import json
import os
import pathlib
import re
import shutil
import time
import types

import pandas as pd
import pytest

from tests.simulation import fakes
from tff_drift import simulation
from tff_drift.simulation.callbacks import Callback, MLflowTracker
from tff_drift.simulation.loop.callbacks import tracker as tracker_module

mlflow = pytest.importorskip("mlflow", reason="MLflow, the extra, is not installed")


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """A store without runs; to make its tables takes longest."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(autouse=True)
def _store(tmp_path, monkeypatch, empty_store):
    """Has MLflow keep runs in a new store in a new current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    shutil.copy(empty_store, tmp_path / "elsewhere.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")


def train(*callbacks, rounds=4, folder="runs/first", process=None, **options):
    return simulation.run_training(
        process or fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=2,
        seed=7,
        callbacks=[*callbacks],
        output_dir=folder
        and simulation.OutputDir(
            folder, rounds_per_checkpoint=2, configuration={"note": "a"}
        ),
        **options,
    )


def runs():
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name("tff_drift")
    return client.search_runs([found.experiment_id])


def history(run, column):
    client = mlflow.MlflowClient()
    return [
        (each.step, each.value)
        for each in client.get_metric_history(run.info.run_id, column)
    ]


def expected(result, column):
    return [(row["round"], row[column]) for row in result.rows if column in row]


def test_parameters_metrics_of_all_rounds_and_artifacts(tmp_path):
    tracker = MLflowTracker()
    result = train(tracker)
    [run] = runs()
    assert run.info.run_id == tracker.run_id
    assert run.info.run_name == "runs/first"
    assert run.info.status == "FINISHED"
    assert run.data.params["seed"] == "7"
    assert run.data.params["cohort_size"] == "2"
    assert run.data.params["train.batch_size"] == "2"
    assert run.data.params["note"] == "a"
    assert run.data.tags["rounds"] == "4"
    for column in ("train_loss", "seconds", "total_bytes"):
        assert history(run, column) == expected(result, column)
        assert len(history(run, column)) == 4
    client = mlflow.MlflowClient()
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert names == {"config.json", "metrics.csv", "curves.png"}
    copy = client.download_artifacts(run.info.run_id, "metrics.csv", tmp_path)
    pd.testing.assert_frame_equal(
        pd.read_csv(copy), pd.read_csv("runs/first/metrics.csv")
    )


class BrokenError(Exception):
    pass


def _broken_in(last):
    process = fakes.AveragingProcess()

    def before_round(number):
        if number == last:
            raise BrokenError

    process.before_round = before_round
    return process


def test_a_resumed_run_goes_on_in_the_same_run_without_gap_or_double():
    with pytest.raises(BrokenError):
        train(MLflowTracker(), process=_broken_in(3))
    [run] = runs()
    assert run.info.status == "FAILED"
    result = train(MLflowTracker(), rounds=5)
    [again] = runs()
    assert again.info.run_id == run.info.run_id
    assert again.info.status == "FINISHED"
    assert history(again, "train_loss") == expected(result, "train_loss")
    assert [step for step, _ in history(again, "train_loss")] == [1, 2, 3, 4, 5]
    result = train(MLflowTracker(), rounds=7)
    assert [step for step, _ in history(again, "round")] == [1, 2, 3, 4, 5, 6, 7]
    assert runs()[0].data.tags["rounds"] == "7"


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing is saved any more, nobody is told."""


class KilledTracker(MLflowTracker):
    def after_row(self, row):
        super().after_row(row)
        if row["round"] == 4:
            self._call.result()
            raise Killed

    def after_training(self, result):
        del result


def test_a_run_killed_after_rounds_that_no_checkpoint_has(monkeypatch):
    """The rounds since the checkpoint are trained again, and logged once."""
    monkeypatch.setattr(tracker_module, "_BETWEEN_CALLS", 0.0)
    folder = simulation.OutputDir("killed", rounds_per_checkpoint=3)

    def go_on(tracker):
        return simulation.run_training(
            fakes.AveragingProcess(),
            fakes.client_datasets(),
            rounds=6,
            cohort_size=2,
            callbacks=[tracker],
            output_dir=folder,
        )

    with pytest.raises(Killed):
        go_on(KilledTracker())
    [run] = runs()
    assert run.info.status == "RUNNING"
    assert [step for step, _ in history(run, "round")] == [1, 2, 3, 4]
    result = go_on(MLflowTracker())
    [again] = runs()
    assert again.info.status == "FINISHED"
    assert history(again, "train_loss") == expected(result, "train_loss")


def test_without_a_folder_each_program_has_a_run_of_its_own():
    train(MLflowTracker("other", run_name="mine"), folder=None)
    client = mlflow.MlflowClient()
    [run] = client.search_runs([client.get_experiment_by_name("other").experiment_id])
    assert run.info.run_name == "mine"
    assert len(history(run, "train_loss")) == 4


def test_a_folder_trained_before_is_tracked_later():
    result = train()
    MLflowTracker().track_folder("runs/first")
    [run] = runs()
    assert history(run, "train_loss") == expected(result, "train_loss")
    assert run.data.params["seed"] == "7"
    train(MLflowTracker(), rounds=5)
    assert [step for step, _ in history(runs()[0], "round")] == [1, 2, 3, 4, 5]


def test_a_run_that_the_store_lacks_is_refused_before_training(monkeypatch):
    train(MLflowTracker())
    store = os.environ["MLFLOW_TRACKING_URI"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    process = fakes.AveragingProcess()
    with pytest.raises(ValueError, match=r"has no run .* MLFLOW_TRACKING_URI"):
        train(MLflowTracker(), rounds=6, process=process)
    assert process.rounds_run == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    known = json.loads(pathlib.Path("runs/first/trackers.json").read_text())
    mlflow.MlflowClient().delete_run(known["mlflow"]["run_id"])
    with pytest.raises(ValueError, match=r"was deleted there. Restore it"):
        train(MLflowTracker(), rounds=6, process=process)


def test_names_that_mlflow_does_not_take():
    class Odd(Callback):
        def after_round(self, round_number, state, row):
            return {"accuracy@5": 0.5}

    train(Odd(), MLflowTracker())
    assert history(runs()[0], "accuracy_5") == [(n, 0.5) for n in (1, 2, 3, 4)]


def test_the_code_of_tracking_md(tmp_path):
    document = pathlib.Path(__file__).parents[3] / "docs" / "tracking.md"
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names = {
        "process": fakes.AveragingProcess(),
        "train": fakes.client_datasets(),
        "model": types.SimpleNamespace(
            save=lambda name: pathlib.Path(name).write_bytes(b"model")
        ),
    }
    for block in blocks:
        exec(block, names)
    client = mlflow.MlflowClient()
    named = client.get_experiment_by_name("my experiment").experiment_id
    [first] = client.search_runs([named])
    assert len(history(first, "train_loss")) == 30
    # The folder knows its run, and `track_folder` goes on with it.
    [with_model] = runs()
    artifacts = client.list_artifacts(with_model.info.run_id)
    assert "model.keras" in {each.path for each in artifacts}


def test_a_server_that_refuses_connections_is_told_soon(monkeypatch):
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    began = time.monotonic()
    with pytest.raises(ValueError, match="MLflow cannot start the run: "):
        train(MLflowTracker(tracking_uri="http://localhost:1"))
    # By MLflow's own defaults it takes four minutes.
    assert time.monotonic() - began < 30
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
