"""Cohorts that grow: by rounds, and by examples."""

import numpy as np
import pytest

from tff_drift import simulation


def test_doubling_after_given_rounds():
    # Charles et al. (2021), section 5.3: 50, doubled every 300 rounds, up to 800.
    size = simulation.doubling_cohorts(50, (300, 600, 900, 1200, 1500), 800)
    rounds = (0, 299, 300, 599, 600, 900, 1200, 1499, 1500)
    found = [size(round_number) for round_number in rounds]
    assert found == [50, 50, 100, 100, 200, 400, 800, 800, 800]


def test_a_cohort_grows_to_all_clients():
    ids = [f"c{k}" for k in range(7)]
    size = simulation.doubling_cohorts(2, (1, 2))
    sampling = simulation.build_uniform_sampling(ids, size, seed=3)
    assert [len(set(sampling(number))) for number in range(4)] == [2, 4, 7, 7]
    # A cohort of a size is that of a run whose cohorts all have it.
    assert sampling(1) == simulation.build_uniform_sampling(ids, 4, seed=3)(1)


def test_growing_by_examples():
    # Every client trains on 2 · 5 = 10 examples in a round.
    clients = {f"c{k}": np.zeros((5, 1), np.float32) for k in range(20)}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=5, epochs=2)
    sampling = simulation.build_growing_sampling(train, 2, (40, 100), maximum=6)
    # Processed before each round: 0, 20, 40, 80, 120: 2, 2, then 4, 4, then at most 6.
    assert [len(sampling(number)) for number in range(6)] == [2, 2, 4, 4, 6, 6]
    # A round that is asked for first, as after a kill, has the same cohort.
    again = simulation.build_growing_sampling(train, 2, (40, 100), maximum=6)
    assert again(5) == sampling(5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, (1,)), "cohort_size must be at least 1"),
        ((4, (3, 3)), "rounds must increase, found"),
        ((4, (3,), 2), "maximum must be at least 4"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulation.doubling_cohorts(*arguments)
