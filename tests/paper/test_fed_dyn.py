"""FedDyn as in Varno et al. (2022), AdaBest: what the paper says must hold.

https://arxiv.org/abs/2204.13170, after Acar et al. (2021),
https://arxiv.org/abs/2111.04263
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import stateful
from tests.paper import reference
from tff_drift import algorithms

D = stateful.DIMENSION
RATE = 0.1
MU = 0.2
CLIENTS = stateful.quadratic_clients(10, steps=5, heterogeneity=2.0, seed=2)
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9, 4, 2, 12])


def fed_dyn():
    return stateful.fed_dyn(RATE, num_clients=10, mu=MU)


def test_two_clients_worked_by_hand(each_context):
    driver = stateful.Driver(
        fed_dyn(),
        {
            # ∇L = w - 1 and ∇L = w + 3, with η = 1/2.
            "one": stateful.axis_client(1.0, optimum=1.0, steps=2),
            "other": stateful.axis_client(1.0, optimum=-3.0, steps=1),
        },
        learning_rate=0.5,
    )
    driver.round(["one", "other"])
    # θ_i: 0, 0.5, then -η (-0.5 - μ (0 - 0.5)) more; and 0, -1.5.
    # h_i = μ g_i. θ̄ is the mean of 0.7 and -1.5, h = 2/10 (0 - θ̄), θ = θ̄ - h.
    values = [
        driver.remembered("one", stateful.ESTIMATE),
        driver.remembered("other", stateful.ESTIMATE),
        driver.aggregate_model(),
        driver.server_estimate(),
        driver.model,
    ]
    np.testing.assert_allclose(
        np.stack(values)[:, 0], [-0.14, 0.3, -0.4, 0.08, -0.48], rtol=1e-6
    )
    driver.round(["one"])
    # θ_i: -0.48 + η (1.48 - 0.14), then + η (0.81 - 0.14 - μ 0.67).
    # h_i: -0.14 - μ 0.938. h: 0.08 - 1/10 0.938.
    values = [
        driver.remembered("one", stateful.ESTIMATE),
        driver.aggregate_model(),
        driver.server_estimate(),
        driver.model,
    ]
    np.testing.assert_allclose(
        np.stack(values)[:, 0], [-0.3276, 0.458, -0.0138, 0.4718], rtol=1e-5
    )


def test_rounds_equal_algorithm_1(each_context):
    driver = stateful.Driver(fed_dyn(), RAGGED)
    paper = reference.FedDyn(D, len(RAGGED), RATE, MU)
    for indices in ((4, 0, 5), (2, 4), (9, 0, 4)):
        cohort = [f"client_{index}" for index in indices]
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.theta, atol=2e-6)
        np.testing.assert_allclose(driver.aggregate_model(), paper.theta_bar, atol=2e-6)
        np.testing.assert_allclose(driver.server_estimate(), paper.h, atol=2e-6)
        for client, h_i in paper.h_i.items():
            np.testing.assert_allclose(
                driver.remembered(client, stateful.ESTIMATE), h_i, atol=2e-6
            )


class Round(NamedTuple):
    h_before: np.ndarray
    g_bar: np.ndarray
    h: np.ndarray
    mean_h_i: np.ndarray
    metrics: Any


@pytest.fixture(scope="module")
def sampled_run(local_context):
    """12 rounds of 3 of 10 clients."""
    driver = stateful.Driver(fed_dyn(), CLIENTS)
    rounds = []
    for cohort in stateful.dealt_cohorts(list(CLIENTS), 3, rounds=12):
        h_before, theta = driver.server_estimate(), driver.model
        metrics = driver.round(cohort)["finalizer"]
        rounds.append(
            Round(
                h_before,
                theta - driver.aggregate_model(),
                driver.server_estimate(),
                driver.remembered_mean(stateful.ESTIMATE),
                metrics,
            )
        )
    return rounds


def test_theorem_3_1_h_shrinks_exactly_where_the_cosine_is_within_the_bound(
    sampled_run,
):
    shrinks = []
    for one in sampled_run[1:]:
        before, g_norm = np.linalg.norm(one.h_before), np.linalg.norm(one.g_bar)
        cosine = one.h_before @ one.g_bar / (before * g_norm)
        bound = -3 / (2 * 10) * g_norm / before
        logged = one.metrics
        np.testing.assert_allclose(logged["growth_cosine"], cosine, atol=1e-5)
        np.testing.assert_allclose(logged["growth_bound"], bound, rtol=1e-4)
        after = np.linalg.norm(one.h)
        np.testing.assert_allclose(logged["gradient_estimate_norm"], after, rtol=1e-5)
        shrinks.append(after <= before)
        assert (logged["growth_cosine"] <= logged["growth_bound"]) == shrinks[-1]
    assert set(shrinks) == {True, False}


def test_h_is_the_sum_of_all_pseudo_gradients_over_N(sampled_run):
    # So that, the h_i being such sums times μ, their mean over all N is μ h.
    for one in sampled_run:
        np.testing.assert_allclose(one.mean_h_i, MU * one.h, atol=2e-6)


def test_unbalanced_clients_as_in_the_code_of_fed_dyn(each_context):
    clients = stateful.ragged_clients([5, 11, 2])
    sizes = [reference.num_examples(c.batches()) for c in clients.values()]
    mean = sum(sizes) / 3
    process = algorithms.build_fed_dyn(
        stateful.LinearRegression, RATE, 3, mu=MU, mean_examples=mean
    )
    driver = stateful.Driver(process, clients)
    paper = reference.FedDyn(D, 3, RATE, MU, mean_examples=mean)
    for cohort in (["client_0", "client_1"], ["client_2", "client_1"]):
        driver.round(cohort)
        paper.round(stateful.batches(clients, cohort))
        np.testing.assert_allclose(driver.model, paper.theta, atol=5e-6)


def test_any_client_optimizer_serves():
    process = algorithms.build_fed_dyn(
        stateful.LinearRegression,
        tff.learning.optimizers.build_sgdm(RATE, momentum=0.5),
        len(RAGGED),
        mu=MU,
    )
    driver = stateful.Driver(process, RAGGED)
    paper = reference.FedDyn(D, len(RAGGED), RATE, MU)
    paper.sgd.momentum = 0.5
    for cohort in (["client_4", "client_0"], ["client_4", "client_2"]):
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.theta, atol=2e-6)
        np.testing.assert_allclose(driver.server_estimate(), paper.h, atol=2e-6)


def test_the_optimum_is_a_fixed_point_for_any_K():
    optimum = reference.optimum([client.batches() for client in CLIENTS.values()])
    driver = stateful.Driver(fed_dyn(), CLIENTS)
    driver.set_model(optimum)
    for name, client in CLIENTS.items():
        gradient = reference.full_gradient(optimum, client.batches())
        driver.client_states[name] = {stateful.ESTIMATE: gradient.astype(np.float32)}
    driver.round(["client_1", "client_5"])
    np.testing.assert_allclose(driver.model, optimum, atol=1e-6)
    np.testing.assert_allclose(driver.deployed_model(), optimum, atol=1e-6)
