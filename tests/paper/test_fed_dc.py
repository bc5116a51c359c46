"""FedDC of Gao et al. (2022): what the paper says must hold.

https://arxiv.org/abs/2203.11751
"""

import functools

import numpy as np
import pytest

from tests import stateful
from tests.paper import reference_since, within
from tff_drift import algorithms

D = stateful.DIMENSION
RATE, STEPS = 0.05, 3
pytestmark = pytest.mark.usefixtures("local_context")
CLIENTS = stateful.quadratic_clients(6, steps=STEPS, seed=2)
COHORTS = stateful.dealt_cohorts(list(CLIENTS), 4, rounds=5)


@functools.cache
def build(alpha, correct_gradients=True, **options):
    return algorithms.build_fed_dc(
        stateful.LinearRegression,
        RATE,
        alpha=alpha,
        correct_gradients=correct_gradients,
        **options,
    )


def test_rounds_equal_algorithm_1(each_context):
    driver = stateful.Driver(build(0.5), CLIENTS)
    paper = reference_since.FedDc(D, RATE, 0.5)
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(
            driver.state.finalizer["direction"],
            -paper.delta / (RATE * STEPS),
            atol=1e-5,
        )
        for client, h_i in paper.h_i.items():
            np.testing.assert_allclose(
                driver.remembered(client, "drift"), h_i, atol=1e-6
            )


@pytest.mark.parametrize("options", stateful.LOCAL_OPTIONS)
def test_without_penalty_and_correction_local_steps_are_fed_avgs_bit_for_bit(options):
    driver = stateful.Driver(build(0.0, False, **options), CLIENTS)
    for client in ("client_1", "client_3"):
        x = driver.model
        fed_avg = within.fed_avg(CLIENTS, RATE, **options)
        fed_avg.set_model(x)
        driver.round([client])
        fed_avg.round([client])
        # At its first participation a client's drift is y_i - x.
        moves = np.float32(0) - (np.float32(x) - np.float32(fed_avg.model))
        np.testing.assert_allclose(
            driver.remembered(client, "drift"), moves, rtol=1e-6, atol=1e-8
        )
        if not np.any(x):
            np.testing.assert_array_equal(driver.remembered(client, "drift"), moves)


@pytest.mark.conformance
def test_the_first_round_goes_twice_as_far_as_that_of_fed_avg():
    # h_i = 0 before, δ_i after: the mean of y_i + h_i is x + 2 mean δ_i.
    driver = stateful.Driver(build(0.0), CLIENTS)
    fed_avg = within.fed_avg(CLIENTS, RATE)
    driver.round(COHORTS[0])
    fed_avg.round(COHORTS[0])
    np.testing.assert_allclose(driver.model, 2 * fed_avg.model, rtol=1e-5)
