"""Li et al. (2020), FedProx. https://arxiv.org/abs/1812.06127"""

import numpy as np
import pytest

from tests import models, stateful
from tests.paper import reference, within
from tff_drift import algorithms

RATE = 0.1
CLIENTS = stateful.ragged_clients([5, 6, 8])
COHORT = list(CLIENTS)


def fed_prox(mu, **local):
    return algorithms.build_fed_prox(stateful.LinearRegression, RATE, mu=mu, **local)


def test_two_rounds_equal_numpy(each_context):
    mu = 0.7
    process = fed_prox(mu)
    sgd = reference.Sgd(RATE)
    driver, x = stateful.Driver(process, CLIENTS), np.zeros(stateful.DIMENSION)
    for _ in range(2):
        driver.round(COHORT)
        local = [
            sgd.run(x, client.batches(), lambda w, x=x: mu * (w - x))
            for client in CLIENTS.values()
        ]
        x = np.average(local, axis=0, weights=[5, 6, 8])
    np.testing.assert_allclose(driver.model, x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("local", stateful.LOCAL_OPTIONS)
def test_without_the_term_it_is_fed_avg(local, each_context):
    process = fed_prox(0.0, client_weighting=stateful.UNIFORM, **local)
    drivers = [
        stateful.Driver(process, CLIENTS),
        within.fed_avg(CLIENTS, RATE, **local),
    ]
    for driver in drivers:
        driver.round(COHORT)
        driver.round(COHORT[:2])
    models.assert_bit_equal([drivers[0].model], [drivers[1].model])


@pytest.mark.parametrize("mu", [-0.1, float("inf"), "1"])
def test_mu_is_checked(mu):
    with pytest.raises((TypeError, ValueError), match="mu must be"):
        fed_prox(mu)
