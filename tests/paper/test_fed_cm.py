"""FedCM of Xu et al. (2021): what the paper says must hold.

https://arxiv.org/abs/2106.10874
"""

import functools

import numpy as np
import pytest

from tests import stateful, tiers
from tests.paper import reference_since, within
from tff_drift import algorithms

D = stateful.DIMENSION
RATE, STEPS = 0.05, 3
pytestmark = pytest.mark.usefixtures("local_context")
CLIENTS = stateful.quadratic_clients(6, steps=STEPS, seed=2)
COHORTS = stateful.dealt_cohorts(list(CLIENTS), 4, rounds=5)


@functools.cache
def build(alpha, server_rate=1.0, **options):
    return algorithms.build_fed_cm(
        stateful.LinearRegression, RATE, server_rate, alpha=alpha, **options
    )


def momentum(driver):
    return stateful.vector(driver.state.finalizer["momentum"])


def test_rounds_equal_algorithm_2(each_context):
    driver = stateful.Driver(build(0.25, 1.5), CLIENTS)
    paper = reference_since.ScaffoldMomentum(D, None, RATE, 0.25, 1.5 * RATE * STEPS)
    for cohort in COHORTS:
        metrics = driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(momentum(driver), paper.m, atol=1e-6)
        np.testing.assert_allclose(
            metrics["finalizer"]["momentum_norm"], np.linalg.norm(paper.m), rtol=1e-5
        )


@pytest.mark.parametrize(
    "options", tiers.first([1], [{}, {"gradient_clipping_norm": 0.5}])
)
def test_with_alpha_1_it_is_fed_avg_bit_for_bit(options):
    driver = stateful.Driver(build(1.0, **options), CLIENTS)
    fed_avg = within.fed_avg(CLIENTS, RATE, **options)
    for cohort in COHORTS:
        driver.round(cohort)
        fed_avg.round(cohort)
        np.testing.assert_array_equal(driver.model, fed_avg.model)


def test_under_a_constant_gradient_the_momentum_grows_to_it():
    # f(w) = w on the first axis, as near as a quadratic comes to it.
    client = {"line": stateful.axis_client(1e-8, optimum=-1e8, steps=STEPS)}
    driver = stateful.Driver(build(0.25, 1.5), client)
    for number in range(1, 6):
        driver.round(["line"])
        np.testing.assert_allclose(momentum(driver)[0], 1 - 0.75**number, rtol=1e-5)


def test_a_direction_of_the_last_round_is_no_local_gradient():
    # α = 1/4, η = 1/2, K = 1, f = (w - 1)² / 2: m = -1/4, y = 1/8, and x = 3/2 · 1/8.
    # Then m = -13/16 / 4 - 3/4 / 4 = -25/64, and x = 3/16 + 3/2 · 25/128.
    client = {"one": stateful.axis_client(1.0, optimum=1.0)}
    driver = stateful.Driver(build(0.25, 1.5), client, learning_rate=0.5)
    driver.round(["one"])
    np.testing.assert_allclose([driver.model[0], momentum(driver)[0]], [3 / 16, -0.25])
    driver.round(["one"])
    np.testing.assert_allclose(
        [driver.model[0], momentum(driver)[0]], [123 / 256, -25 / 64]
    )
