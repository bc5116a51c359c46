"""SCAFFOLD/m of Varno et al. (2022), AdaBest: what the paper says must hold.

https://arxiv.org/abs/2204.13170
"""

import numpy as np
import pytest

from tests import stateful
from tests.paper import reference

D = stateful.DIMENSION
RATE = 0.04
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9, 4, 2, 12])


def scaffold_m():
    return stateful.scaffold_m(RATE, num_clients=10)


def test_where_the_K_i_differ_the_server_takes_their_mean(each_context):
    driver = stateful.Driver(
        scaffold_m(),
        {
            # ∇L = w - 1 and ∇L = w + 3, with η = 1/2.
            "one": stateful.axis_client(1.0, optimum=1.0, steps=2),
            "other": stateful.axis_client(1.0, optimum=-3.0, steps=1),
        },
        learning_rate=0.5,
    )
    driver.round(["one", "other"])
    # θ_i: 0, 0.5, 0.75 and 0, -1.5. h_i: -0.75 / (2 η) and 1.5 / (1 η).
    # h: 2 / (1.5 η 10) 0.375; the mean of the h_i is 0.225.
    values = [
        driver.model,
        driver.remembered("one"),
        driver.remembered("other"),
        driver.server_variate(),
    ]
    np.testing.assert_allclose(
        np.stack(values)[:, 0], [-0.375, -0.75, 3.0, 0.1], rtol=1e-6
    )
    metrics = driver.round(["one"])
    # h - h_i = 0.85. θ_i: -0.375, -0.1125, 0.01875. h_i: -0.75 - 0.1 - 0.39375.
    # h: 0.9 0.1 + 1 / (2 η 10) (-0.39375).
    values = [driver.model, driver.remembered("one"), driver.server_variate()]
    np.testing.assert_allclose(
        np.stack(values)[:, 0], [0.01875, -1.24375, 0.050625], rtol=1e-5
    )
    np.testing.assert_allclose(
        metrics["finalizer"]["control_variate_norm"], 0.050625, rtol=1e-5
    )


@pytest.mark.conformance
def test_equals_scaffold_option_II_where_the_K_i_of_a_round_are_equal():
    clients = stateful.quadratic_clients(10, steps=1, seed=1)
    driver = stateful.Driver(scaffold_m(), clients)
    scaffold = stateful.Driver(stateful.scaffold("II", RATE, 10), clients)
    cohorts = stateful.dealt_cohorts(list(clients), 3, rounds=4)
    # Cohorts of other sizes, clients that come again, other K in every round.
    cohorts = [*cohorts, cohorts[0][:1], list(clients)]
    for steps, cohort in zip((10, 3, 5, 1, 7, 2), cohorts, strict=True):
        of_round = {name: c._replace(epochs=steps) for name, c in clients.items()}
        driver.round(cohort, of_round)
        scaffold.round(cohort, of_round)
        variate = scaffold.server_variate()
        h = driver.server_variate()
        np.testing.assert_allclose(driver.model, scaffold.model, atol=2e-6)
        np.testing.assert_allclose(h, variate, atol=3e-6)
        np.testing.assert_allclose(h, driver.remembered_mean(), atol=3e-6)
        for client in clients:
            np.testing.assert_allclose(
                driver.remembered(client), scaffold.remembered(client), atol=1e-5
            )


def test_rounds_equal_algorithm_1(each_context):
    driver = stateful.Driver(scaffold_m(), RAGGED, learning_rate=0.1)
    paper = reference.ScaffoldM(D, len(RAGGED), 0.1)
    for indices in ((4, 0, 5), (2, 4), (9, 0, 4)):
        cohort = [f"client_{index}" for index in indices]
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.theta, atol=2e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.h, atol=2e-6)
        for client, h_i in paper.h_i.items():
            np.testing.assert_allclose(driver.remembered(client), h_i, atol=1e-5)
