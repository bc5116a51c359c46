"""Functions that are kept in a folder for later programs."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tests.execution.local.support import call
from tff_drift import execution
from tff_drift.execution.local.graphs import functions, saved_functions
from tff_drift.execution.local.runners import vectorization

pytestmark = pytest.mark.no_smoke

# Batches of one size, which are taken together, and of others, which are not.
SIZES = [8, 9, 11, 8, 4, 12, 16, 8]


@pytest.fixture(scope="module")
def process():
    return models.fed_avg()


@pytest.fixture(scope="module")
def expected(process):
    """The state after a round without a folder."""
    return _train(process)


@pytest.fixture(scope="module")
def good_file(process, expected, tmp_path_factory):
    """The name and the content of the file that a round leaves, in a new folder."""
    folder = tmp_path_factory.mktemp("functions") / "a" / "b"
    assert _train(process, functions_folder=folder) == expected
    (path,) = folder.iterdir()
    return path.name, path.read_bytes()


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


def test_a_later_context_loads_what_an_earlier_one_built(
    tmp_path, process, expected, good_file, built
):
    name, content = good_file
    (tmp_path / name).write_bytes(content)
    assert _train(process, functions_folder=tmp_path) == expected
    assert built == []
    # Under other limits it may be another function.
    limits = execution.Limits(largest_patches=1)
    assert _train(process, functions_folder=str(tmp_path), limits=limits) == expected
    assert len(built) > 0
    assert len(os.listdir(tmp_path)) == 2


_DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "changed": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "empty": lambda content: b"",
}
every_damage = pytest.mark.parametrize("damage", _DAMAGE.values(), ids=_DAMAGE)


@pytest.mark.conformance
@every_damage
def test_after_a_file_was_damaged_a_round_is_right(
    tmp_path, process, expected, good_file, built, damage
):
    name, content = good_file
    (tmp_path / name).write_bytes(damage(content))
    assert _train(process, functions_folder=tmp_path) == expected
    assert len(built) > 0
    built.clear()
    assert _train(process, functions_folder=tmp_path) == expected
    assert built == []


def _saved(store, number, traced=None):
    """Returns what a store's function makes of 1: it adds the number.

    Args:
      store: The store.
      number: The number.
      traced: A list to which the number is added where the function is not loaded.
    """
    spec = tf.TensorSpec([], tf.float32)

    def trace():
        if traced is not None:
            traced.append(number)
        return functions.trace(lambda x: [x + number], [spec])

    (result,) = store.get([number], [spec], trace)(tf.constant(1.0))
    return float(result)


@every_damage
def test_a_damaged_file_is_written_again(tmp_path, damage):
    traced = []

    def saved():
        return _saved(saved_functions.SavedFunctions(tmp_path), 1.0, traced)

    assert [saved(), saved()] == [2.0, 2.0]
    assert traced == [1.0]
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert [saved(), saved()] == [2.0, 2.0]
    assert traced == [1.0, 1.0]


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, caplog):
    (tmp_path / "file").touch()
    store = saved_functions.SavedFunctions(tmp_path / "file" / "folder")
    assert [_saved(store, number) for number in (1.0, 2.0)] == [2.0, 3.0]
    (told,) = caplog.messages
    assert told.startswith("functions_folder keeps no functions from now on: ")


def test_the_functions_used_least_recently_go(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_functions, "_MOST_FILES", 2)
    store = saved_functions.SavedFunctions(tmp_path)
    names = []
    for number in (1.0, 2.0):
        _saved(store, number)
        (name,) = set(os.listdir(tmp_path)) - set(names)
        names.append(name)
        os.utime(tmp_path / name, (number, number))
    # Used once more, the first one is the one that stays.
    _saved(store, 1.0)
    _saved(store, 3.0)
    left = set(os.listdir(tmp_path))
    assert len(left) == 2
    assert left & set(names) == {names[0]}
