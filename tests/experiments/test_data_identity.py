"""A run goes on, or is told as finished, only with the data that it is of."""

import concurrent.futures
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tasks
from experiments.flags import errors
from experiments.training import pool, runs
from experiments.training import sweeps as training
from tests import tiers
from tests.experiments import programs

CHANGED = "holds a run whose data has changed since ("
INPUTS = ("t.csv", "w.keras", "m.npz")


def write_table(path, sign=1):
    """Writes twenty clients, of whom one has other features if the sign is -1."""
    rows = ["client,a,b,label"]
    for client in range(20):
        # No sample of sixteen of them looks at the fifth.
        factor = sign if client == 4 else 1
        rows += [
            f"{client:02},{factor * (k + client)},{k % 3},{k % 2}" for k in range(5)
        ]
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a table, an array file, weights, and what was trained on them."""
    folder = tmp_path_factory.mktemp("own")
    write_table(folder / "t.csv")
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.build((None, 2))
    model.save(folder / "w.keras")
    np.savez(folder / "m.npz", x=np.ones([3, 2], np.float32), y=np.zeros(3, np.int32))
    outcome = programs.run_process(folder, *words(folder))
    assert outcome.status == 0, outcome.stderr
    return folder


def words(folder, rounds=1):
    return (
        "train", "--task=own_data", f"--data={folder}/t.csv", f"--rounds={rounds}",
        "--clients_per_round=2", f"--output_dir={folder}/run",
        f"--initial_weights={folder}/w.keras", f"--meta_file={folder}/m.npz",
        "--meta_step=0.1",
    )  # fmt: skip


def change_table(folder):
    write_table(folder / "t.csv", sign=-1)


def change_weights(folder):
    model = tf.keras.models.load_model(folder / "w.keras", compile=False)
    model.set_weights([2 * each + 1 for each in model.get_weights()])
    model.save(folder / "w.keras")


def change_server_data(folder):
    x, y = np.zeros([3, 2], np.float32), np.zeros(3, np.int32)
    np.savez(folder / "m.npz", x=x, y=y)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_table, f"{CHANGED}train.source_sha256, "),
        (
            change_weights,
            "initial_weights or initial_state (initial_state_sha256) was",
        ),
        (change_server_data, f"{CHANGED}method.meta.examples_sha256)"),
    ],
)
def test_other_data_under_the_same_path_are_refused(change, told, trained, run_command):
    kept = {each: (trained / each).read_bytes() for each in INPUTS}
    rows = (trained / "run" / "metrics.csv").read_bytes()
    change(trained)
    found = []
    for rounds in (1, 2):
        found.append(run_command(*words(trained, rounds)))
    for each, content in kept.items():
        (trained / each).write_bytes(content)
    for outcome in found:
        assert outcome.status == 2
        assert told in outcome.stderr
        assert "finished before" not in outcome.stderr
    assert (trained / "run" / "metrics.csv").read_bytes() == rows


def test_data_that_was_copied_or_touched_is_the_same(trained, run_command):
    path = trained / "t.csv"
    shutil.copy(path, trained / "copy.csv")
    os.replace(trained / "copy.csv", path)
    os.utime(path, (1, 1))
    outcome = run_command(*words(trained))
    assert outcome.status == 0
    assert "finished before" in outcome.stderr


def test_a_run_that_ended_does_without_what_it_began_with(trained, run_command):
    os.rename(trained / "w.keras", trained / "elsewhere.keras")
    os.rename(trained / "m.npz", trained / "elsewhere.npz")
    outcome = run_command(*words(trained))
    os.rename(trained / "elsewhere.keras", trained / "w.keras")
    os.rename(trained / "elsewhere.npz", trained / "m.npz")
    assert outcome.status == 0
    assert "finished before" in outcome.stderr


def search_table(folder, values):
    """Trains what has not been trained of a sweep on the table."""
    words = ("--task=own_data", f"--data={folder}/t.csv", "--clients_per_round=2")
    return search(folder, f"client_learning_rate={values}", *words)


def search(folder, *words):
    """Trains what has not been trained of a sweep, in this process."""
    runs.forget_tasks()
    sweep = programs.sweep(*words, "--rounds=1", f"--output_dir={folder}/sweep")
    sweep.folder.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        training.run(sweep, pool.Pool(executor, 1))
    return {path.parents[1].name for path in sweep.folder.glob("*/*/summary.json")}


@pytest.mark.parametrize("values", tiers.first([1], ["0.1,1", "0.1,1,2", "2,1"]))
def test_points_of_a_sweep_are_all_of_the_same_data(values, tmp_path):
    write_table(tmp_path / "t.csv")
    found = search_table(tmp_path, "0.1,1")
    assert len(found) == 2
    change_table(tmp_path)
    with pytest.raises(errors.UserError) as caught:
        search_table(tmp_path, values)
    assert CHANGED in str(caught.value)
    assert "train.source_sha256" in str(caught.value)
    trained = {path.parent.parent.name for path in tmp_path.glob("sweep/*/*/m*.csv")}
    assert trained == found
    write_table(tmp_path / "t.csv")
    assert search_table(tmp_path, values) >= found


def test_a_sweep_of_runs_that_say_nothing_of_their_data_goes_on(tmp_path):
    write_table(tmp_path / "t.csv")
    search_table(tmp_path, "0.1")
    (path,) = tmp_path.glob("sweep/*/*/config.json")
    content = json.loads(path.read_text())
    # As earlier versions wrote it; and who lacks room removes checkpoints.
    del content["training"]
    path.write_text(json.dumps(content))
    path.with_name("checkpoint.npz").unlink()
    assert len(search_table(tmp_path, "0.1,1")) == 2


def register_batches(**batching):
    """Registers a task of a user's, whose clients' batches are those given."""

    def build(cache_dir, seed, options):
        task = tasks.load("quadratic", seed=seed, num_clients=10)
        return tasks.Clients(task.train.replace(**batching), task.test), task.model_fn

    definition = tasks.TaskDefinition("batched", "Mine.", (), build, "distance", False)
    tasks.register(definition)


@pytest.fixture
def batches(monkeypatch):
    monkeypatch.setattr(tasks.registry, "_REGISTERED", {})
    register_batches(batch_size=2)


@pytest.mark.parametrize(
    ("rounds", "batching", "told"),
    [
        (1, {"batch_size": 1}, "train.batch_size was 2 and is now 1"),
        (2, {"batch_size": 2, "epochs": 3}, "train.epochs was 10 and is now 3"),
    ],
)
def test_batches_that_changed_are_refused(
    rounds, batching, told, batches, tmp_path, run_command
):
    words = ("train", "--task=batched", "--clients_per_round=2")
    words += (f"--output_dir={tmp_path / 'out'}",)
    assert run_command(*words, "--rounds=1").status == 0
    assert "finished before" in run_command(*words, "--rounds=1").stderr
    register_batches(**batching)
    outcome = run_command(*words, f"--rounds={rounds}")
    assert outcome.status == 2
    assert f"holds a run with another configuration: {told}. Ask" in outcome.stderr


def test_points_of_a_sweep_are_all_of_the_same_batches(batches, tmp_path):
    words = ("client_learning_rate=0.1", "--task=batched", "--clients_per_round=2")
    assert len(search(tmp_path, *words)) == 1
    assert len(search(tmp_path, *words)) == 1
    register_batches(batch_size=1)
    with pytest.raises(errors.UserError, match="batch_size was 2 and is now 1"):
        search(tmp_path, *words)
