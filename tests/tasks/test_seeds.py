import importlib
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks import seeds
from tests import keras3_models
from tff_drift import algorithms


@given(seed=st.integers(0, 2**63), count=st.integers(1, 50))
def test_initializer_seeds_are_distinct_and_reproducible(seed, count):
    found = seeds.initializer_seeds(seed, count)

    assert len(set(found)) == count
    # Keras takes them as 32-bit integers.
    assert all(0 <= each < 2**31 + 50 for each in found)
    assert found == seeds.initializer_seeds(seed, count)


def test_streams_differ_by_seed_and_purpose():
    draws = [
        seeds.generator(seed, purpose).random()
        for seed in (0, 1)
        for purpose in ("partition", "writers")
    ]

    assert len(set(draws)) == 4
    assert seeds.generator(1, "writers").random() == draws[-1]


KERAS = [2, pytest.param(3, marks=keras3_models.needed)]


@pytest.fixture(autouse=True)
def without_set_random_seed(monkeypatch):
    """Keras 2 as in a program that did not call `tf.keras.utils.set_random_seed`."""
    package = tf.keras.Sequential.__module__.partition(".engine")[0]
    seeds_of_keras = importlib.import_module(f"{package}.backend")._SEED_GENERATOR
    monkeypatch.delattr(seeds_of_keras, "generator", raising=False)


@pytest.fixture(params=KERAS, ids=["keras 2", "keras 3"])
def net(request):
    """A net without seeds, as people write them."""
    keras = tf.keras if request.param == 2 else importlib.import_module("keras")

    def build():
        layers = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)]
        return keras.Sequential([keras.layers.Input([3]), *layers])

    return build


def initial(model_fn):
    state = algorithms.build_fed_avg(model_fn, 0.1).initialize()
    return np.concatenate([np.ravel(w) for w in state.global_model_weights.trainable])


def own_task(net, seed):
    pd = pytest.importorskip("pandas")
    values = np.random.default_rng(1).normal(size=[8, 3])
    frame = pd.DataFrame(values, columns=list("abc"))
    frame["owner"], frame["label"] = list("aabbccdd"), [0, 1] * 4
    return tasks.from_frame(
        frame, client_id="owner", label="label", build_keras_model=net, seed=seed
    )


def test_ones_own_net_begins_as_the_seed_has_it(net):
    first, again, other = (initial(own_task(net, seed).model_fn) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.any(first[first != 0] == other[other != 0])


def test_a_plugins_net_begins_as_the_seed_of_loading_has_it(net, monkeypatch):
    def build(cache_dir, seed, options):
        task = own_task(net, 0)
        return tasks.Clients(task.train, task.test), task.model_fn

    monkeypatch.setattr(tasks.registry, "_REGISTERED", {})
    tasks.register(tasks.TaskDefinition("mine", "Mine.", (), build))
    first, again, other = (
        initial(tasks.load("mine", seed=seed).model_fn) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.any(first[first != 0] == other[other != 0])


@keras3_models.needed
def test_a_model_that_a_plugin_builds_once_begins_as_the_seed_has_it(monkeypatch):
    keras = importlib.import_module("keras")

    def build(cache_dir, seed, options):
        layers = [keras.layers.Input([3]), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        task = own_task(lambda: model, seed)
        return tasks.Clients(task.train, task.test), task.model_fn

    monkeypatch.setattr(tasks.registry, "_REGISTERED", {})
    tasks.register(tasks.TaskDefinition("mine", "Mine.", (), build))
    first, again = (initial(tasks.load("mine", seed=3).model_fn) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_building_a_model_draws_nothing_of_the_programs_numbers(net):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    own_task(net, 3).model_fn()
    assert random.random() == expected
