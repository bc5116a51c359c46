"""Offline runs in Weights & Biases, the real one."""

import json
import time

import pytest

from tests.forks.programs import wait_until
from tests.simulation import fakes
from tff_drift import simulation
from tff_drift.simulation.callbacks import WandbTracker

wandb = pytest.importorskip("wandb", reason="W&B, the extra, is not installed")


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_PROJECT", "WANDB_DIR", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    yield
    # What it has read of the environment and the current folder.
    wandb.teardown()


def train(rounds=3, tracker=None):
    return simulation.run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=2,
        seed=7,
        callbacks=[tracker or WandbTracker()],
        output_dir=simulation.OutputDir("runs/first", configuration={"note": "a"}),
    )


def read(folder):
    """Returns what W&B's own file of an offline run says, when it is whole."""
    # W&B writes it in a process of its own.
    wait_until(lambda: read_now(folder)["exit"] is not None, "the end of the file")
    return read_now(folder)


def read_now(folder):
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal import datastore

    [path] = folder.glob("*.wandb")
    store = datastore.DataStore()
    store.open_for_scan(str(path))
    found = {"history": [], "config": {}, "exit": None}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["run"] = record.run
        if kind in ("run", "config"):
            config = record.run.config if kind == "run" else record.config
            for item in config.update:
                found["config"][item.key or item.nested_key[0]] = json.loads(
                    item.value_json
                )
        if kind == "history":
            found["history"].append(
                {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in record.history.item
                }
            )
        if kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def folders(tmp_path):
    return sorted((tmp_path / "wandb").glob("offline-run-*"))


def check_history(found, result):
    assert len(found["history"]) == len(result.rows)
    for logged, row in zip(found["history"], result.rows, strict=True):
        assert logged["_step"] == row["round"]
        assert {name: logged[name] for name in row} == pytest.approx(dict(row))


def test_an_offline_run(tmp_path):
    tracker = WandbTracker(run_name="mine")
    result = train(tracker=tracker)
    [folder] = folders(tmp_path)
    found = read(folder)
    assert found["run"].run_id == tracker.run_id
    assert found["run"].project == "tff_drift"
    assert found["run"].display_name == "mine"
    assert found["exit"] == 0
    assert found["config"]["seed"] == 7
    assert found["config"]["note"] == "a"
    assert found["config"]["train.batch_size"] == 2
    check_history(found, result)
    files = {path.name for path in (folder / "files").iterdir()}
    assert {"config.json", "metrics.csv", "curves.png"} <= files


def test_a_resumed_run_has_the_same_id_and_its_folder_the_whole_run(tmp_path):
    train()
    time.sleep(1.1)  # W&B names folders by the second.
    result = train(rounds=5)
    first, last = sorted(folders(tmp_path), key=lambda each: len(read(each)["history"]))
    assert read(first)["run"].run_id == read(last)["run"].run_id
    assert len(read(first)["history"]) == 3
    check_history(read(last), result)
    assert read(last)["config"]["rounds"] == 5
