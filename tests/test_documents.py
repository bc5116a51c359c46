"""The code that the documents show runs, and does what they say."""

import asyncio
import collections
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_drift
from tests import models
from tff_drift import algorithms

ROOT = pathlib.Path(__file__).parents[1]


def python_blocks(document):
    text = (ROOT / document).read_text()
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_example_of_the_readme_trains():
    [code] = python_blocks("README.md")
    names = {}
    exec(code, names)
    result = names["result"]
    assert len(result.rows) == 10
    assert all(np.isfinite(row["train_loss"]) for row in result.rows)
    kernel, _ = result.model_weights.trainable
    assert np.shape(kernel) == (5, 2)


def test_the_readmes_table_says_what_the_rows_say():
    text = (ROOT / "README.md").read_text()
    table = re.findall(r"^\|.*\| \[(.+), (\d{4})\]\((.+)\) \|$", text, re.MULTILINE)
    lines = re.findall(r"^\|.*`build_.*\|$", text, re.MULTILINE)
    assert len(lines) == len(table)
    rows, named = algorithms.methods(), []
    for line, (authors, year, url) in zip(lines, table):
        for name in re.findall(r"`build_(\w+)`", line):
            named.append(name)
            assert rows[name].paper.startswith(f"{authors} ({year})")
            assert rows[name].url == url
    assert len(named) > 10
    # A name that nobody has is no method, and none is told twice.
    assert len(named) == len(set(named))


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """The names that the examples on client states use without defining them."""
    monkeypatch.chdir(tmp_path)
    arrays = models.client_arrays([5, 8, 11])
    clients = {f"client_{index}": client for index, client in enumerate(arrays)}
    train = tff_drift.simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    return {
        "asyncio": asyncio,
        "collections": collections,
        "tf": tf,
        "tff": tff,
        "tff_drift": tff_drift,
        "train": train,
        "process": algorithms.build_adabest(models.softmax_regression, 0.1),
        "cohorts": [["client_0", "client_2"], ["client_2", "client_1"]],
        "datasets": dict(zip(clients, models.datasets(arrays))),
    }


def test_the_examples_on_client_states_run(surroundings):
    blocks = python_blocks("docs/client_state.md")
    with_driver, own_loop, simulation_loop, program, by_hand, at_clients = blocks

    def last_rounds(store):
        names = ["client_0", "client_1", "client_2"]
        return [int(state["last_round"]) for state in store.gather(names)]

    exec(with_driver.replace("cohort_size=10", "cohort_size=2"), surroundings)
    assert len(surroundings["states"]) == 3
    exec(own_loop, surroundings)
    assert last_rounds(surroundings["kept"].client_states) == [0, 1, 1]
    asyncio.set_event_loop(asyncio.new_event_loop())
    for loop, folder in [
        (simulation_loop, "program"),
        (program, "federated_program"),
    ]:
        exec(loop, surroundings)
        assert max(last_rounds(surroundings["kept"].client_states)) == 2
        assert pathlib.Path(folder, "program_state_3").is_dir()
    exec(by_hand, surroundings)
    assert last_rounds(surroundings["states"]) == [0, 1, 1]
    exec(at_clients, surroundings)
    assert last_rounds(surroundings["states"]) == [0, 2, 2]
