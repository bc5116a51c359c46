"""The straggler clock, against the expectation of its model."""

import json

import numpy as np
import pytest

from tff_drift import simulation

_SIZES = (10, 20, 40)


def _clock(sampling=lambda number: ["c0", "c1", "c2"], **options):
    clients = {f"c{k}": np.zeros((n, 1), np.float32) for k, n in enumerate(_SIZES)}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=10)
    return simulation.StragglerClock(train, sampling, **options)


def test_without_delay_a_round_lasts_as_long_as_its_largest_client():
    clock = _clock(delay=0.0, seconds_per_example=2.0)
    assert clock.after_round(1, None, {}) == {"simulated_seconds": 80.0}
    # The slowest third is left out: the client of 40.
    faster = _clock(delay=0.0, seconds_per_example=2.0, left_out=0.34)
    assert faster.cohort(0) == ["c0", "c1"]
    assert faster.after_round(1, None, {}) == {"simulated_seconds": 40.0}


def test_a_clients_time_is_a_shifted_exponential():
    # X = α N + Exp(mean λ N) with N = 20: mean 20 · (1 + 3), least 20.
    clock = _clock(delay=3.0, seconds_per_example=1.0)
    times = np.array([clock.client_seconds("c1", number) for number in range(4000)])
    assert times.min() >= 20
    # Four standard errors: 60 / √4000.
    assert times.mean() == pytest.approx(80, abs=4 * 60 / 4000**0.5)
    assert times.std() == pytest.approx(60, rel=0.1)


def test_the_slowest_of_equal_clients():
    # The largest of three Exp(mean λ N) has the mean λ N (1 + 1/2 + 1/3).
    clients = {f"c{k}": np.zeros((6, 1), np.float32) for k in range(3)}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=2)
    clock = simulation.StragglerClock(
        train, lambda number: list(clients), delay=2.0, seconds_per_example=0.0
    )
    rounds = [
        clock.after_round(number, None, {})["simulated_seconds"]
        for number in range(1, 3001)
    ]
    deviation = 12 * (1 + 1 / 4 + 1 / 9) ** 0.5
    expected = 12 * (1 + 1 / 2 + 1 / 3)
    assert np.mean(rounds) == pytest.approx(expected, abs=4 * deviation / 3000**0.5)


def test_times_are_a_pure_function_of_seed_round_and_client():
    clock, same, other = _clock(seed=1), _clock(seed=1), _clock(seed=2)
    assert clock.client_seconds("c0", 3) == same.client_seconds("c0", 3)
    assert clock.client_seconds("c0", 3) != other.client_seconds("c0", 3)
    assert clock.client_seconds("c0", 3) != clock.client_seconds("c0", 4)


def test_nobody_takes_no_time():
    assert _clock(lambda number: []).after_round(1, None, {}) == {
        "simulated_seconds": 0.0
    }


@pytest.mark.parametrize("left_out", [0.29, np.float32(0.29), 0.299])
def test_the_share_left_out_is_that_which_is_written(left_out):
    ids = [f"c{k}" for k in range(100)]
    clients = {name: np.zeros((1, 1), np.float32) for name in ids}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=1)
    clock = simulation.StragglerClock(train, lambda number: ids, left_out=left_out)
    assert len(clock.cohort(0)) == 71


def test_numbers_of_numpy_are_those_of_python():
    of_numpy = _clock(delay=np.float32(0.5), seconds_per_example=np.int64(2))
    of_python = _clock(delay=0.5, seconds_per_example=2)
    assert json.dumps(of_numpy.settings) == json.dumps(of_python.settings)


def test_bad_arguments():
    with pytest.raises(ValueError, match="delay must be"):
        _clock(delay=-1.0)
    with pytest.raises(TypeError, match="train must be a tff_drift"):
        simulation.StragglerClock({"c0": np.zeros(3)}, lambda number: ["c0"])
    with pytest.raises(
        ValueError, match="left_out must be a number of at least 0, below 1"
    ):
        _clock(left_out=1.0)
