"""Methods that divide by the clients' rate, where it changes from round to round.

A round's η is that of the schedule, for clients and server alike.
"""

import numpy as np
import pytest

from tests import stateful
from tests.paper import reference, reference_since
from tff_drift import algorithms

D, N, RATE = stateful.DIMENSION, 6, 0.08
pytestmark = [pytest.mark.no_smoke, pytest.mark.usefixtures("local_context")]
CLIENTS = stateful.quadratic_clients(N, steps=4, seed=7)
COHORTS = stateful.dealt_cohorts(list(CLIENTS), 4, rounds=4)
PAPERS = {
    "scaffold": lambda: reference.Scaffold(D, CLIENTS, RATE, "II"),
    "scaffold_m": lambda: reference.ScaffoldM(D, N, RATE),
    "fed_cm": lambda: reference_since.ScaffoldMomentum(D, None, RATE, 0.1),
    "scaffold_momentum": lambda: reference_since.ScaffoldMomentum(D, N, RATE, 0.1),
}


@pytest.mark.parametrize("method", PAPERS)
def test_rounds_at_scheduled_rates_equal_the_paper(method):
    needs = {} if method == "fed_cm" else {"num_clients": N}
    process = algorithms.methods()[method].build(
        stateful.LinearRegression,
        client_learning_rate=RATE,
        client_rate_schedule=lambda k: 1 / (1 + k),
        **needs,
    )
    driver, paper = stateful.Driver(process, CLIENTS), PAPERS[method]()
    for number, cohort in enumerate(COHORTS):
        steps = paper.sgd if hasattr(paper, "sgd") else paper
        steps.rate = RATE / (1 + number)
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        expected = paper.theta if method == "scaffold_m" else paper.x
        np.testing.assert_allclose(driver.model, expected, atol=2e-6)


def test_a_round_of_nobody_is_one_of_the_servers_schedule():
    """The second round's step is half of a step at the full rate."""

    def driver(**schedule):
        process = algorithms.methods()["fed_avg"].build(
            stateful.LinearRegression, client_learning_rate=RATE, **schedule
        )
        return stateful.Driver(process, CLIENTS)

    constant = driver()
    start = constant.model
    constant.round(COHORTS[0])
    scheduled = driver(server_rate_schedule=lambda k: 1 / (1 + k))
    scheduled.round([])
    scheduled.round(COHORTS[0])
    half = start + (constant.model - start) / 2
    np.testing.assert_allclose(scheduled.model, half, atol=2e-6)
    assert np.abs(half - start).max() > 0.01
