"""Li et al. (2020), FedProx. https://arxiv.org/abs/1812.06127"""

import numpy as np
import pytest
import tensorflow_federated as tff

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


def test_tff_s_own_has_the_sign_of_the_term_reversed():
    """What docs/migrating.md says of both.

    The loss is (w - 1)^2 / 2, from w = 0 with mu = 1: the paper's steps are
    w - 0.1 ((w - 1) + w), and those with the sign reversed w - 0.1 ((w - 1) - w).
    """
    steps, mu = 10, 1.0
    batch = (np.eye(1, stateful.DIMENSION, dtype=np.float32), np.ones(1, np.float32))

    def trained(process):
        state = process.next(process.initialize(), [[batch] * steps]).state
        return float(process.get_model_weights(state).trainable[0][0, 0])

    sgd = tff.learning.optimizers.build_sgdm
    of_tff = tff.learning.algorithms.build_weighted_fed_prox(
        stateful.LinearRegression, mu, sgd(RATE), sgd(1.0)
    )
    assert trained(fed_prox(mu)) == pytest.approx((1 - 0.8**steps) / 2)
    assert trained(of_tff) == pytest.approx(steps * RATE)
    assert trained(fed_prox(0.0)) == pytest.approx(1 - 0.9**steps)
    # Rounded in the document.
    assert [(1 - 0.8**steps) / 2, 1 - 0.9**steps] == pytest.approx(
        [0.446, 0.651], abs=5e-4
    )


@pytest.mark.parametrize("mu", [-0.1, float("inf"), "1"])
def test_mu_is_checked(mu):
    with pytest.raises((TypeError, ValueError), match="mu must be"):
        fed_prox(mu)
