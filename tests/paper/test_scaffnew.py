"""Scaffnew of Mishchenko et al. (2022): what the paper says must hold.

https://arxiv.org/abs/2202.09357
"""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from tests import stateful, tiers
from tests.paper import reference, reference_since, within
from tff_drift import algorithms, simulation
from tff_drift.algorithms import scaffnew

D = stateful.DIMENSION
RATE, P = 0.05, 0.4
pytestmark = pytest.mark.usefixtures("local_context")
CLIENTS = stateful.ragged_clients([7, 4, 9], epochs=4, seed=5)


@functools.cache
def build(rate=RATE, num_clients=3, **options):
    return algorithms.build_scaffnew(
        stateful.LinearRegression, rate, num_clients, **options
    )


def variates(driver, rate, probability):
    """The clients' h_i once they have the model of the server, as rows."""
    return np.array(
        [
            driver.remembered(client)
            + probability
            / rate
            * (driver.model - driver.remembered(client, "local_model"))
            for client in driver.client_states
        ]
    )


def conditioned_clients(num_clients, condition_number, steps, seed):
    """Quadratics of one condition number, but of other curvatures and optima each."""
    random = np.random.default_rng(seed)
    clients = {}
    for index in range(num_clients):
        between = condition_number ** -random.uniform(size=D - 2)
        curvatures = np.array([1 / condition_number, 1.0, *between])
        features = np.diag(np.sqrt(D * curvatures)).astype(np.float32)
        optimum = 3 * random.normal(size=D)
        # The flat direction, in which gradient descent is slow, matters.
        optimum[0] += 10
        targets = (features @ optimum).astype(np.float32)
        clients[f"client_{index}"] = stateful.Client(
            features.astype(np.float64), targets.astype(np.float64), D, steps
        )
    return clients


def test_rounds_equal_algorithm_2(each_context):
    driver = stateful.Driver(build(probability=P), CLIENTS)
    paper = reference_since.Scaffnew(D, CLIENTS, RATE, P)
    numbers = []
    for _ in range(6):
        metrics = driver.round(list(CLIENTS))
        numbers.append(int(metrics["finalizer"]["local_steps"]))
        paper.round(stateful.batches(CLIENTS, CLIENTS), numbers[-1])
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(
            variates(driver, RATE, P), list(paper.h_i.values()), atol=1e-5
        )
    assert len(set(numbers)) > 2


def test_the_variates_sum_to_zero_after_every_round():
    driver = stateful.Driver(build(probability=P), CLIENTS)
    for _ in range(20):
        driver.round(list(CLIENTS))
        h = variates(driver, RATE, P)
        assert np.linalg.norm(h, axis=1).max() > 0.05
        np.testing.assert_allclose(h.sum(axis=0), np.zeros(D), atol=1e-5)


@pytest.mark.conformance
def test_numbers_of_steps_are_geometric_and_depend_on_the_seed_alone():
    clients = stateful.ragged_clients([3], epochs=1, seed=1)

    def numbers(seed, rounds):
        driver = stateful.Driver(
            build(num_clients=1, probability=0.25, seed=seed), clients
        )
        return [
            int(driver.round(list(clients))["finalizer"]["local_steps"])
            for _ in range(rounds)
        ]

    drawn = np.array(numbers(0, rounds := 150))
    # Of mean 4 and of variance 12: four standard errors.
    assert abs(drawn.mean() - 4) < 4 * np.sqrt(12 / rounds)
    for k in (1, 2, 5):
        share = 0.75 ** (k - 1)
        error = np.sqrt(share * (1 - share) / rounds)
        assert abs(np.mean(drawn >= k) - share) <= 4 * error
    assert numbers(0, 10) == list(drawn[:10])
    assert numbers(1, 10) != list(drawn[:10])


def test_the_second_round_has_a_number_of_its_own():
    p, seeds, equal = 0.25, 200, 0
    for seed in range(seeds):
        step = scaffnew.ScaffnewStep(p, seed)
        first = step.initial_state((tf.zeros([1]),))
        cohort = types.SimpleNamespace(round_number=tf.constant(0))
        second = step.next(first, (tf.zeros([1]),), (tf.zeros([1]),), cohort).state
        equal += int(first["local_steps"]) == int(second["local_steps"])
    # Two geometric numbers are equal with the probability p / (2 - p).
    share = p / (2 - p)
    assert abs(equal / seeds - share) < 4 * np.sqrt(share * (1 - share) / seeds)


def test_with_probability_1_it_is_gradient_descent():
    driver = stateful.Driver(build(probability=1.0), CLIENTS)
    x = np.zeros(D)
    for _ in range(10):
        driver.round(list(CLIENTS))
        firsts = [client.batches()[0] for client in CLIENTS.values()]
        x = x - RATE * np.mean([reference.batch_gradient(x, b) for b in firsts], axis=0)
        np.testing.assert_allclose(driver.model, x, atol=1e-6)


@pytest.mark.conformance
def test_rounds_grow_with_the_root_of_the_condition_number_where_fed_avg_stalls():
    kappa, rounds = 100, 120
    p = 1 / np.sqrt(kappa)
    clients = conditioned_clients(4, kappa, steps=60, seed=3)
    optimum = reference.optimum([client.batches()[:1] for client in clients.values()])
    ours = stateful.Driver(build(1.0, len(clients), probability=p), clients)
    fed_avg = within.fed_avg(
        {name: each._replace(epochs=10) for name, each in clients.items()}, 1.0
    )
    distances = {"ours": [], "fed_avg": []}
    descent, start = np.zeros(D), np.linalg.norm(optimum)
    for _ in range(rounds):
        for name, driver in (("ours", ours), ("fed_avg", fed_avg)):
            driver.round(list(clients))
            distances[name].append(np.linalg.norm(driver.model - optimum) / start)
        gradients = [
            reference.full_gradient(descent, c.batches()[:1]) for c in clients.values()
        ]
        descent = descent - np.mean(gradients, axis=0)
    # ε = 1e-4 in √κ log(1/ε) = 92 rounds; gradient descent has (1 - 1/κ)^120 = 0.3.
    assert distances["ours"][int(np.sqrt(kappa) * np.log(1e4))] < 1e-4
    assert np.linalg.norm(descent - optimum) / start > 0.05
    assert distances["fed_avg"][-1] > 0.05


def test_a_cohort_smaller_than_all_is_one_clear_error():
    process = build(probability=P)
    train = simulation.ClientDatasets.from_arrays(
        {
            name: (c.features.astype(np.float32), c.targets.astype(np.float32))
            for name, c in CLIENTS.items()
        },
        batch_size=3,
    )
    refused = r"cohort_size is 2, .* needs all 3 .* Give 3"
    with pytest.raises(ValueError, match=refused):
        simulation.run_training(process, train, rounds=1, cohort_size=2)
    by_hand = simulation.ProcessWithClientStates(process)
    cohort = {name: CLIENTS[name].dataset() for name in list(CLIENTS)[:2]}
    with pytest.raises(ValueError, match=refused):
        by_hand.next(by_hand.initialize(), cohort)
    result = simulation.run_training(process, train, rounds=1, cohort_size=3)
    assert len(result.rows) == 1


@pytest.mark.conformance
def test_variates_go_by_the_rate_of_the_round_whose_models_they_are_of():
    driver = stateful.Driver(
        build(
            probability=P,
            client_rate_schedule=lambda k: tf.where(tf.equal(k % 2, 0), 1.0, 0.05),
        ),
        CLIENTS,
    )
    x, h = np.zeros(D), dict.fromkeys(CLIENTS, np.zeros(D))
    for number in range(8):
        metrics = driver.round(list(CLIENTS))
        rate = RATE * (0.05 if number % 2 else 1.0)
        y = {}
        for name, client in CLIENTS.items():
            y[name] = x
            for batch in client.batches()[: int(metrics["finalizer"]["local_steps"])]:
                gradient = reference.batch_gradient(y[name], batch) - h[name]
                y[name] = y[name] - rate * gradient
        x = np.mean(list(y.values()), axis=0)
        h = {name: h[name] + P / rate * (x - y[name]) for name in y}
        np.testing.assert_allclose(driver.model, x, atol=2e-6)


@pytest.mark.parametrize(
    "idle", tiers.first(["rejected"], ["rejected", "without examples"])
)
def test_a_client_that_does_not_count_once_leaves_the_optimum_where_it_is(idle):
    # The mean of the clients' losses is least at 5.
    clients = {
        str(optimum): stateful.axis_client(1.0, optimum, steps=15)
        for optimum in (2.0, 5.0, 8.0)
    }
    one = clients["8.0"]
    other = one._replace(targets=one.targets * np.nan)
    if idle == "without examples":
        other = one._replace(features=one.features[:0], targets=one.targets[:0])
    driver = stateful.Driver(build(0.1, probability=0.2), clients)
    for number in range(40):
        driver.round(list(clients), {"8.0": other} if number == 3 else None)
    np.testing.assert_allclose(driver.model[0], 5.0, rtol=1e-3)
    np.testing.assert_allclose(driver.remembered_mean()[0], 0.0, atol=1e-4)


def test_a_step_that_moves_the_model_is_refused():
    data = CLIENTS["client_0"].dataset()
    with pytest.raises(ValueError, match=r"process must not .* Scaffnew.* Take SCAFF"):
        algorithms.add_meta_step(
            build(probability=P), stateful.LinearRegression, data, 0.1
        )
