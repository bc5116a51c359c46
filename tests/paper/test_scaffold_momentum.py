"""SCAFFOLD-M of Cheng et al. (2023): what the paper says must hold.

https://arxiv.org/abs/2306.16504
"""

import functools

import numpy as np
import pytest

from tests import stateful, tiers
from tests.paper import reference, reference_since, within
from tff_drift import algorithms

D = stateful.DIMENSION
RATE, STEPS = 0.05, 3
pytestmark = pytest.mark.usefixtures("local_context")
CLIENTS = stateful.quadratic_clients(6, steps=STEPS, seed=2)
COHORTS = stateful.dealt_cohorts(list(CLIENTS), 4, rounds=5)


@functools.cache
def build(beta, num_clients=6, server_rate=1.0, **options):
    return algorithms.build_scaffold_momentum(
        stateful.LinearRegression, RATE, num_clients, server_rate, beta=beta, **options
    )


def test_rounds_equal_the_paper(each_context):
    driver = stateful.Driver(build(0.25, server_rate=1.5), CLIENTS)
    paper = reference_since.ScaffoldMomentum(
        D, len(CLIENTS), RATE, 0.25, 1.5 * RATE * STEPS
    )
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=1e-5)
        for client, c_i in paper.c_i.items():
            np.testing.assert_allclose(driver.remembered(client), c_i, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "options", tiers.first([1], [{}, {"gradient_clipping_norm": 0.5}])
)
def test_with_beta_1_it_is_scaffold_bit_for_bit(options):
    driver = stateful.Driver(build(1.0, **options), CLIENTS)
    scaffold = stateful.Driver(
        algorithms.build_scaffold(
            stateful.LinearRegression, RATE, len(CLIENTS), **options
        ),
        CLIENTS,
    )
    for cohort in COHORTS:
        driver.round(cohort)
        scaffold.round(cohort)
        np.testing.assert_array_equal(driver.model, scaffold.model)
        np.testing.assert_array_equal(
            driver.server_variate(), scaffold.server_variate()
        )


def test_without_variates_it_is_fed_cm_bit_for_bit():
    # So many clients that c is nothing beside m; and none keeps its c_i.
    driver = stateful.Driver(build(0.25, num_clients=2**62), CLIENTS)
    fed_cm = stateful.Driver(
        algorithms.build_fed_cm(stateful.LinearRegression, RATE, alpha=0.25), CLIENTS
    )
    for cohort in COHORTS:
        driver.client_states.clear()
        driver.round(cohort)
        fed_cm.round(cohort)
        assert np.linalg.norm(driver.server_variate()) < 1e-15
        np.testing.assert_array_equal(driver.model, fed_cm.model)


@pytest.mark.conformance
@pytest.mark.parametrize("cohort_size", [6, 2])
def test_converges_on_quadratics_of_any_heterogeneity(cohort_size):
    clients = stateful.quadratic_clients(6, steps=10, heterogeneity=10.0, seed=3)
    optimum = reference.optimum([client.batches()[:1] for client in clients.values()])
    distances = {}
    for name, driver in (
        ("ours", stateful.Driver(build(0.5), clients)),
        ("fed_avg", within.fed_avg(clients, RATE)),
    ):
        for cohort in stateful.dealt_cohorts(list(clients), cohort_size, rounds=200):
            driver.round(cohort)
        distances[name] = np.linalg.norm(driver.model - optimum)
    assert distances["ours"] < 1e-2
    assert distances["fed_avg"] > 0.3
