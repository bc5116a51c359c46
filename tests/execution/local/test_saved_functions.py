"""Functions that are kept in a folder for later programs."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tests.execution.local.support import call
from tff_drift import execution
from tff_drift.execution.local.graphs import saved_functions
from tff_drift.execution.local.runners import vectorization

pytestmark = pytest.mark.no_smoke

# Batches of one size, which are taken together, and of others, which are not.
SIZES = [8, 9, 11, 8, 4, 12, 16, 8]


@pytest.fixture(scope="module")
def process():
    return models.fed_avg()


def _train(process, sizes=SIZES, **options):
    """Returns the state after a round in a context of its own."""
    context = execution.create_local_execution_context(**options)
    data = models.datasets(models.client_arrays(sizes))
    output = call(context, process.next, call(context, process.initialize), data)
    return [np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(output)]


@pytest.fixture
def built(monkeypatch):
    """What is built of many clients, a part for each entry."""
    parts = []
    of_many = vectorization.OfOneClient.of_many

    def noted(self, stacks):
        parts.append(stacks)
        return of_many(self, stacks)

    monkeypatch.setattr(vectorization.OfOneClient, "of_many", noted)
    return parts


def test_a_later_context_loads_what_an_earlier_one_built(tmp_path, process, built):
    expected = _train(process)
    folder = tmp_path / "a" / "b"
    assert _train(process, functions_folder=folder) == expected
    assert len(built) > 0
    assert len(os.listdir(folder)) == 1
    built.clear()
    assert _train(process, functions_folder=folder) == expected
    assert built == []
    # Under other limits it may be another function.
    limits = execution.Limits(largest_patches=1)
    assert _train(process, functions_folder=str(folder), limits=limits) == expected
    assert len(built) > 0
    assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_written_again(tmp_path, process, built, damage):
    expected = _train(process, functions_folder=tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "changed": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    built.clear()
    assert _train(process, functions_folder=tmp_path) == expected
    assert len(built) > 0
    built.clear()
    assert _train(process, functions_folder=tmp_path) == expected
    assert built == []


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, process, caplog):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "folder"
    context = execution.create_local_execution_context(functions_folder=folder)
    state = call(context, process.initialize)
    for sizes in (SIZES, SIZES[:6]):
        data = models.datasets(models.client_arrays(sizes))
        state = call(context, process.next, state, data).state
    (told,) = caplog.messages
    assert told.startswith("functions_folder keeps no functions from now on: ")


def test_the_functions_used_least_recently_go(tmp_path, process, monkeypatch):
    monkeypatch.setattr(saved_functions, "_MOST_FILES", 1)
    _train(process, functions_folder=tmp_path)
    (first,) = tmp_path.iterdir()
    os.utime(first, (0, 0))
    _train(process, SIZES[:6], functions_folder=tmp_path)
    (second,) = tmp_path.iterdir()
    assert second != first
