"""What `train` and `compare` refuse before they train."""

import json
import os
import re
import sqlite3

import pytest
import tensorflow as tf

import tasks
from experiments.flags import errors
from experiments.training import comparison
from tests import tiers
from tests.experiments import programs


@pytest.fixture
def refuse(run_command, tmp_path):
    """Runs a command that must be refused before it trains; returns its message."""

    def run(*words, folder=None):
        folder = tmp_path / "out" if folder is None else folder
        outcome = run_command(*words, f"--output_dir={folder}")
        assert outcome.status == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("tff-drift: error: ")
        assert outcome.stderr.count("\n") == 1
        assert not list(tmp_path.glob("out/**/metrics.csv"))
        return outcome.stderr

    return run


def test_cohort_larger_than_the_population(refuse):
    message = refuse("train", "--clients_per_round=51")
    assert "--clients_per_round is 51, but task digits has only 50" in message
    message = refuse("compare", "--seeds=1", "--num_clients=8", "--clients_per_round=9")
    assert "Choose at most 8." in message


@pytest.mark.parametrize(
    ("metric", "dimension", "told"),
    [
        ("accuracy", 2, "accuracy_metric must be one of 'distance', .*'accuracy'"),
        ("distance", 3, r"test has \[0\] of shape .*3.*, but the model takes .*2"),
    ],
)
def test_a_plugins_task_that_cannot_be_evaluated(
    refuse, monkeypatch, metric, dimension, told
):
    def build(cache_dir, seed, options):
        task = tasks.load("quadratic", dimension=2)
        test = tasks.load("quadratic", dimension=dimension).test
        return tasks.Clients(task.train, test), task.model_fn

    name = f"unevaluated_{metric}"
    definition = tasks.TaskDefinition(name, "Mine.", (), build, metric)
    monkeypatch.setattr("tasks.registry._REGISTERED", {name: definition})
    message = refuse("train", f"--task={name}", "--rounds=1", "--clients_per_round=2")
    assert re.match(f"tff-drift: error: task {name}: {told}", message)


def test_a_method_that_needs_all_clients_leaves_no_stragglers_out(refuse):
    message = refuse(
        "train", "--algorithm=scaffnew", "--task=quadratic", "--num_clients=5",
        "--clients_per_round=5", "--rounds=1", "--straggler_clock",
        "--straggler_left_out=0.4",
    )  # fmt: skip
    assert "--straggler_left_out is 0.4, but scaffnew needs all" in message


@pytest.mark.parametrize("doubling", tiers.first([0], ["rounds", "examples"]))
def test_the_servers_rate_is_not_scaled_by_a_cohort_that_grows(refuse, doubling):
    message = refuse(
        "train", "--server_rate_scaling=sqrt", f"--cohort_doubling={doubling}",
        "--cohort_doubling_at=2",
    )  # fmt: skip
    assert (
        f"--server_rate_scaling=sqrt does not fit --cohort_doubling={doubling}: "
    ) in message


def test_cache_folder_without_the_data(refuse, tmp_path):
    cache_dir = tmp_path / "empty"
    cache_dir.mkdir()
    message = refuse("train", "--task=emnist_character", f"--cache_dir={cache_dir}")
    assert str(cache_dir / "emnist_all.sqlite") in message
    assert "download" in message
    assert "synthetic" in message


def test_a_file_that_is_not_the_data(refuse, tmp_path):
    (tmp_path / "shakespeare.sqlite").write_text("To be, or not to be")
    message = refuse(
        "compare", "--task=shakespeare_character", f"--cache_dir={tmp_path}"
    )
    assert "shakespeare.sqlite is not a SQLite file" in message


@pytest.mark.conformance
def test_a_client_whose_data_is_bad(run_command, tmp_path):
    """Found when the client's turn comes, and told as plainly as other mistakes."""
    path = tmp_path / "shakespeare.sqlite"
    clients = [("HAMLET", {"snippets": ["To be"]})]
    tasks.write_sqlite(path, {"train": clients, "test": clients})
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE examples SET serialized_example_proto = CAST(replace("
            "serialized_example_proto, 'be', CAST(x'ffff' AS TEXT)) AS BLOB)"
        )
    outcome = run_command(
        "train",
        "--task=shakespeare_character",
        "--clients_per_round=1",
        f"--cache_dir={tmp_path}",
        f"--output_dir={tmp_path / 'out'}",
    )
    assert outcome.status == 2
    assert "Traceback" not in outcome.stderr
    assert (
        f"tff-drift: error: task shakespeare_character: {path}: client 'HAMLET' of "
        "split 'test' has other examples than were written"
    ) in outcome.stderr


@pytest.mark.parametrize("command", tiers.first(["train"], ["train", "compare"]))
def test_initial_weights_that_are_none_are_refused(refuse, tmp_path, command):
    message = refuse(command, f"--initial_weights={tmp_path / 'none.keras'}")
    assert "initial_weights: there is no file" in message
    other = tmp_path / "other.keras"
    tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[5])]).save(other)
    message = refuse(command, f"--initial_weights={other}")
    assert "initial_weights has 2 trainable weights, and the model of" in message


def test_values_that_the_builders_refuse(refuse):
    message = refuse("train", "--algorithm=scaffold", "--option=III")
    assert "--option: unknown value 'III'. Did you mean II?" in message
    message = refuse("train", "--algorithm=adabest", "--beta=-1")
    assert "beta must be" in message
    message = refuse(
        "train", "--algorithm=adabest", "--beta=auto", "--adaptive_clipping"
    )
    assert "--beta=auto does not fit --adaptive_clipping: " in message
    message = refuse("train", "--num_clients=360")
    assert "num_clients must be at most 359, found 360" in message


def test_more_dimensions_than_ram_holds(refuse):
    message = refuse("train", "--task=quadratic", "--dimension=1000000000")
    assert "dimension 1000000000 and num_clients 10 make" in message
    assert "Choose a dimension of at most 5181, or fewer clients." in message


@pytest.mark.parametrize("command", ["train", "compare"])
def test_output_folder_that_cannot_be_written(refuse, tmp_path, command):
    (tmp_path / "file").touch()
    message = refuse(command, folder=tmp_path / "file" / "out")
    assert "output_dir" in message
    assert "cannot be written" in message


@pytest.mark.parametrize("command", ["train", "compare"])
def test_output_folder_of_others(refuse, tmp_path, command):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    message = refuse(command, folder=folder)
    assert "output_dir" in message
    assert "thesis.tex" in message
    assert os.listdir(folder) == ["thesis.tex"]


def test_what_a_kill_left_of_the_first_file_is_not_of_others(tmp_path):
    (tmp_path / ".config.json.tmp").touch()
    run = tmp_path / "fed_avg_seed1"
    run.mkdir()
    (run / ".checkpoint.npz.tmp").touch()
    comparison.check_files(tmp_path, {}, {"digits"})
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(errors.UserError, match=r"no comparison .*: thesis\.tex\. "):
        comparison.check_files(tmp_path, {}, {"digits"})


def test_a_comparison_into_the_folder_of_a_run(refuse, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text('{"format": "tff_drift run"}')
    message = refuse("compare", folder=folder)
    assert "holds files, but no comparison of tff-drift: config.json" in message


def test_a_comparison_into_the_folder_of_one_on_another_task(refuse, tmp_path):
    folder = tmp_path / "comparison"
    folder.mkdir()
    config = {"format": "tff_drift comparison", "runs": [{"task": "quadratic"}]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "table.md").write_text("theirs")
    message = refuse("compare", folder=folder)
    assert "holds a comparison on quadratic, whose files one on digits would" in message
    assert json.loads((folder / "config.json").read_text()) == config
    assert (folder / "table.md").read_text() == "theirs"


def test_one_bad_run_stops_a_comparison_before_it_trains(refuse, tmp_path):
    folder = tmp_path / "out" / "fed_adam" / "seed_2"
    folder.mkdir(parents=True)
    (folder / "notes.txt").touch()
    config = tmp_path / "out" / "config.json"
    config.write_text('{"format": "tff_drift comparison"}')
    message = refuse("compare", "--algorithms=fed_avg,fed_adam", "--seeds=1,2")
    assert "notes.txt" in message


def test_changed_configuration(run_command, comparison):
    folder = comparison.folder / "fed_adam" / "seed_5"
    flags = [
        "--algorithm=fed_adam",
        "--seed=5",
        "--rounds=3",
        "--clients_per_round=4",
        "--rounds_per_evaluation=2",
        "--num_clients=8",
        "--adaptive_clipping",
        "--cohort_measurements",
        f"--output_dir={folder}",
    ]
    outcome = run_command("train", *flags, "--tau=0.02", "--alpha=0.5")
    assert outcome.status == 2
    assert "tau was 0.01 and is now 0.02; alpha was 0.3 and is now 0.5" in (
        outcome.stderr
    )
    assert outcome.stderr.count("\n") == 1


def test_fewer_rounds_than_completed(run_command, comparison):
    words = [
        word for word in programs.COMPARE_FLAGS if not word.startswith("--rounds=")
    ]
    outcome = run_command(
        "compare", *words, "--rounds=2", f"--output_dir={comparison.folder}"
    )
    assert outcome.status == 2
    assert "--rounds is 2, but the run in" in outcome.stderr
    assert "has completed 3" in outcome.stderr
