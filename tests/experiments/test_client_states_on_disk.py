"""Clients' states in files of the run's folder, as a user of the command sees it."""

import contextlib
import shutil
import sqlite3

import pandas as pd
import pytest

pytestmark = pytest.mark.no_smoke

FLAGS = (
    "--task=quadratic",
    "--algorithm=scaffold",
    "--num_clients=4",
    "--clients_per_round=2",
    "--rounds_per_checkpoint=1",
)


@pytest.fixture
def train(run_command):
    def train(folder, *words):
        return run_command("train", *FLAGS, *words, f"--output_dir={folder}")

    return train


def metrics(folder):
    frame = pd.read_csv(folder / "metrics.csv")
    return frame[[name for name in frame if not name.startswith("seconds")]]


@pytest.mark.conformance
def test_a_run_goes_on_with_its_store_and_refuses_others(train, tmp_path):
    on_disk, in_memory = tmp_path / "disk", tmp_path / "memory"
    assert train(in_memory, "--rounds=4").status == 0
    assert train(on_disk, "--rounds=2", "--client_states=disk").status == 0
    half = tmp_path / "half"
    shutil.copytree(on_disk, half)
    assert train(on_disk, "--rounds=4", "--client_states=disk").status == 0
    pd.testing.assert_frame_equal(metrics(on_disk), metrics(in_memory))
    assert (on_disk / "client_states" / "states.bin").stat().st_size > 0

    def refuse(name, *words):
        states = tmp_path / name / "client_states" / "states.bin"
        before = states.read_bytes()
        outcome = train(tmp_path / name, "--rounds=4", *words)
        assert outcome.status == 2
        assert outcome.stderr.count("\n") == 1
        assert states.read_bytes() == before
        return outcome.stderr

    # The states of another run, whose clients have states of the same form.
    other = tmp_path / "other"
    assert train(other, "--rounds=2", "--seed=9", "--client_states=disk").status == 0
    foreign = tmp_path / "foreign"
    shutil.copytree(half, foreign)
    shutil.rmtree(foreign / "client_states")
    shutil.copytree(other / "client_states", foreign / "client_states")
    message = refuse("foreign", "--client_states=disk")
    assert "it is that of another run" in message

    # Bytes that changed on the disk.
    damaged = tmp_path / "damaged"
    shutil.copytree(half, damaged)
    path = damaged / "client_states" / "states.bin"
    path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))
    assert "damaged" in refuse("damaged", "--client_states=disk")

    # Neither kind of store has what the other kept.
    assert "--client_states=disk" in refuse("half")
    shutil.copytree(in_memory, tmp_path / "moved")
    outcome = train(tmp_path / "moved", "--rounds=6", "--client_states=disk")
    assert outcome.status == 2
    assert "--client_states=ram" in outcome.stderr


@pytest.mark.conformance
def test_a_run_in_ram_goes_on_beside_what_a_kill_left_of_one_on_disk(train, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert train(whole, "--rounds=4").status == 0
    # Killed before its first checkpoint.
    (folder / "client_states").mkdir(parents=True)
    assert train(folder, "--rounds=2").status == 0
    outcome = train(folder, "--rounds=4", "--client_states=disk")
    assert outcome.status == 2
    assert "in its checkpoint: continue with --client_states=ram" in outcome.stderr
    assert train(folder, "--rounds=4").status == 0
    pd.testing.assert_frame_equal(metrics(folder), metrics(whole))


@pytest.mark.conformance
def test_a_run_goes_on_whose_store_names_it_as_earlier_versions_did(train, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert train(whole, "--rounds=4").status == 0
    assert train(folder, "--rounds=1", "--client_states=disk").status == 0
    # With a digest of all flags that there were.
    with contextlib.closing(
        sqlite3.connect(folder / "client_states" / "index.sqlite")
    ) as index:
        name = "scaffold on quadratic, seed 0, configuration 0123456789ab"
        index.execute("update properties set value = ? where name = 'run_id'", [name])
        index.commit()
    for rounds in (2, 4):
        outcome = train(folder, f"--rounds={rounds}", "--client_states=disk")
        assert outcome.status == 0, outcome.stderr
    pd.testing.assert_frame_equal(metrics(folder), metrics(whole))


@pytest.mark.conformance
def test_states_on_disk_that_are_lost_are_told(train, tmp_path):
    assert train(tmp_path, "--rounds=1", "--client_states=disk").status == 0
    shutil.rmtree(tmp_path / "client_states")
    for words in ([], ["--client_states=disk"]):
        outcome = train(tmp_path, "--rounds=2", *words)
        assert outcome.status == 2
        assert "keeps its clients' states" in outcome.stderr
    assert "is not there: put it back, or restart the run" in outcome.stderr
