import collections
import json

import numpy as np
import pytest
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation import fakes
from tff_drift.simulation import (
    ClientDataSource,
    StragglerClock,
    build_growing_sampling,
    build_uniform_sampling,
    doubling_cohorts,
)

IDS = tuple(f"client_{index}" for index in range(20))


@settings(max_examples=50, deadline=None)
@given(
    cohort_size=st.integers(1, len(IDS)),
    seed=st.integers(0, 2**32 - 1),
    round_number=st.integers(0, 10_000),
)
def test_cohort_has_distinct_known_clients(cohort_size, seed, round_number):
    cohort = build_uniform_sampling(IDS, cohort_size, seed)(round_number)
    assert len(cohort) == cohort_size
    assert len(set(cohort)) == cohort_size
    assert set(cohort) <= set(IDS)


def test_numpy_s_integers_are_those_of_python():
    three = np.int64(3)
    data = fakes.client_datasets(local_steps=three, max_examples=three)
    growing = build_growing_sampling(data, three, [three], maximum=three)
    doubling = doubling_cohorts(three, [three], three)
    source, same = (
        ClientDataSource(fakes.client_datasets(local_steps=n, max_examples=n), seed=n)
        for n in (three, 3)
    )
    assert source.fingerprint == same.fingerprint
    settings = [
        build_uniform_sampling(IDS, three, three).settings,
        build_uniform_sampling(IDS, doubling).settings,
        growing.settings,
        StragglerClock(data, growing, seed=three).settings,
    ]
    assert json.loads(json.dumps(settings)) == settings


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_a_round_number_of_numpy_is_that_of_python(kind):
    data = fakes.client_datasets()
    uniform = build_uniform_sampling(IDS, 2)
    samplings = [
        uniform,
        build_uniform_sampling(IDS, doubling_cohorts(1, [2])),
        build_growing_sampling(data, 1, [3]),
        StragglerClock(data, build_uniform_sampling(data.client_ids, 2)).cohort,
    ]
    for sampling in samplings:
        assert sampling(kind(4)) == sampling(4)
    # What TFF draws from is seeded by the seed and the round.
    theirs = tff.simulation.build_uniform_sampling_fn(
        list(IDS), replace=False, random_seed=0
    )
    assert uniform(kind(4)) == list(theirs(4, 2))


def test_cohort_depends_on_seed_and_round_alone():
    forwards = build_uniform_sampling(IDS, 5, seed=3)
    backwards = build_uniform_sampling(list(IDS), 5, seed=3)
    rounds = range(50)
    expected = [forwards(round_number) for round_number in rounds]
    found = [backwards(round_number) for round_number in reversed(rounds)]
    assert found[::-1] == expected


def test_rounds_and_seeds_differ():
    cohorts = {
        tuple(build_uniform_sampling(IDS, 10, seed)(round_number))
        for seed in range(5)
        for round_number in range(20)
    }
    # Of 20!/10! orders, a hundred draws hardly ever give one twice.
    assert len(cohorts) == 100


def test_full_participation_has_every_client():
    assert set(build_uniform_sampling(IDS, len(IDS))(7)) == set(IDS)


def test_every_client_is_as_likely():
    sampling = build_uniform_sampling(IDS, 5, seed=1)
    counts = collections.Counter(
        client_id
        for round_number in range(4000)
        for client_id in sampling(round_number)
    )
    # Each count is binomial with mean 1000 and deviation 27.4: five deviations.
    assert all(abs(counts[client_id] - 1000) < 137 for client_id in IDS)


def test_ids_come_back_as_they_are():
    ids = ("a\x00", "long name", "7")
    assert set(build_uniform_sampling(ids, 3)(0)) == set(ids)


def test_cohort_larger_than_population_is_an_error():
    with pytest.raises(ValueError, match=r"cohort_size is 21, but there are only 20"):
        build_uniform_sampling(IDS, 21)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cohort_size": 0}, ValueError, "cohort_size must be at least 1, found 0"),
        ({"cohort_size": 2.0}, TypeError, "cohort_size must be an integer"),
        ({"cohort_size": 2, "seed": -1}, ValueError, "seed must be at least 0"),
        ({"cohort_size": 2, "seed": 2**32}, ValueError, "seed must be at most"),
        ({"cohort_size": 2, "seed": None}, TypeError, "seed must be an integer"),
    ],
)
def test_bad_arguments_are_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        build_uniform_sampling(IDS, **arguments)


@pytest.mark.parametrize(
    ("size", "error", "found"),
    [
        (2.5, TypeError, "an integer, found 2.5"),
        (None, TypeError, "an integer, found None"),
        (True, TypeError, "an integer, found True"),
        (-1, ValueError, "at least 0, found -1"),
    ],
)
def test_a_function_that_returns_no_size_is_named(size, error, found):
    sampling = build_uniform_sampling(IDS, lambda round_number: size)
    message = rf"^what cohort_size returns for round 3 must be {found}\.$"
    with pytest.raises(error, match=message):
        sampling(3)


@pytest.mark.parametrize(
    ("size", "clients"), [(0, 0), (np.int64(2), 2), (100, 20), (2**70, 20)]
)
def test_a_function_s_sizes_are_those_of_the_cohorts(size, clients):
    assert len(build_uniform_sampling(IDS, lambda round_number: size)(3)) == clients
