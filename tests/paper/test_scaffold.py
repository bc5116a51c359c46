"""Karimireddy et al. (2020), SCAFFOLD: what the paper says must hold.

https://arxiv.org/abs/1910.06378
"""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, stateful
from tests.paper import reference, within
from tff_drift import algorithms

D = stateful.DIMENSION
RATE = 0.04
CLIENTS = stateful.quadratic_clients(10, steps=10, heterogeneity=2.0)
OPTIMUM = reference.optimum([client.batches() for client in CLIENTS.values()])
# K_i = 4, 4, 6, 2, 8, 2, 6, 4, 2 and 8 minibatches, in two epochs.
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9, 4, 2, 12])
COHORTS = [[f"client_{index}" for index in c] for c in ((4, 0, 5), (2, 4), (9, 0, 4))]
pytestmark = pytest.mark.usefixtures("local_context")
BOTH_OPTIONS = pytest.mark.parametrize("option", ["I", "II"])


def scaffold(option="II"):
    return stateful.scaffold(option, RATE, len(CLIENTS))


def set_variates(driver, c, c_i):
    aggregator = collections.OrderedDict(driver.state.aggregator)
    aggregator["control_variate"] = collections.OrderedDict(
        aggregator["control_variate"], control_variate=np.asarray(c, np.float32)
    )
    driver.state = driver.state._replace(aggregator=aggregator)
    driver.client_states = {
        client: collections.OrderedDict(control_variate=np.asarray(v, np.float32))
        for client, v in c_i.items()
    }


def along_first_axis(vector):
    np.testing.assert_allclose(vector[1:], 0.0, atol=1e-7)
    return vector[0]


def test_two_clients_worked_by_hand(each_context):
    driver = stateful.Driver(
        scaffold(),
        {
            # ∇f = w - 1 and ∇f = w + 3, with η = 1/2.
            "one": stateful.axis_client(1.0, optimum=1.0, steps=2),
            "other": stateful.axis_client(1.0, optimum=-3.0, steps=1),
        },
        learning_rate=0.5,
    )
    metrics = driver.round(["one", "other"])
    # y: 0, 0.5, 0.75 and 0, -1.5. c_i: -0.75 / (2 η) and 1.5 / (1 η).
    values = [driver.model, driver.remembered("one"), driver.remembered("other")]
    np.testing.assert_allclose(
        [along_first_axis(v) for v in values], [-0.375, -0.75, 3.0], rtol=1e-6
    )
    # (-0.75 + 3) / N with N = 10, of which only two have taken part.
    np.testing.assert_allclose(along_first_axis(driver.server_variate()), 0.225)
    np.testing.assert_allclose(metrics["client_work"]["drift"], (0.75 + 1.5) / 2)
    metrics = driver.round(["one"])
    # c - c_i = 0.975. y: -0.375, -0.175, -0.075. c_i: -0.75 - 0.225 - 0.3.
    values = [driver.model, driver.remembered("one"), driver.server_variate()]
    np.testing.assert_allclose(
        [along_first_axis(v) for v in values], [-0.075, -1.275, 0.1725], rtol=1e-5
    )
    variate = metrics["aggregator"]["control_variate"]
    np.testing.assert_allclose(variate["control_variate_norm"], 0.1725, rtol=1e-5)


@BOTH_OPTIONS
def test_rounds_equal_algorithm_1_where_the_K_i_differ(option, each_context):
    driver = stateful.Driver(scaffold(option), RAGGED, learning_rate=0.1)
    paper = reference.Scaffold(D, RAGGED, 0.1, option)
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=2e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=2e-6)
        np.testing.assert_allclose(driver.remembered_mean(), paper.c, atol=2e-6)
        for client in RAGGED:
            np.testing.assert_allclose(
                driver.remembered(client), paper.c_i[client], atol=1e-5
            )


@pytest.mark.parametrize("local", stateful.LOCAL_OPTIONS)
def test_variates_held_at_0_make_it_fed_avg(local):
    process = algorithms.build_scaffold(
        stateful.LinearRegression, RATE, len(RAGGED), **local
    )
    driver = stateful.Driver(process, RAGGED)
    fed_avg = within.fed_avg(RAGGED, RATE, **local)
    for cohort in COHORTS:
        set_variates(driver, np.zeros(D), {})
        driver.round(cohort)
        fed_avg.round(cohort)
        models.assert_bit_equal([driver.model], [fed_avg.model])


def test_at_full_participation_the_summed_correction_vanishes():
    # With K = 1 the corrections are all that could tell it from FedAvg.
    clients = {name: c._replace(epochs=1) for name, c in CLIENTS.items()}
    driver = stateful.Driver(scaffold(), clients, learning_rate=0.2)
    fed_avg = reference.FedAvg(D, 0.2)
    for _ in range(3):
        driver.round(list(clients))
        fed_avg.round(stateful.batches(clients, clients))
        c = driver.server_variate()
        corrections = [c - driver.remembered(client) for client in clients]
        assert min(np.linalg.norm(correction) for correction in corrections) > 0.1
        np.testing.assert_allclose(np.sum(corrections, axis=0), 0.0, atol=1e-5)
        np.testing.assert_allclose(driver.model, fed_avg.x, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 10])
def test_the_optimum_is_a_fixed_point_for_any_K_but_not_of_fed_avg(steps):
    clients = {name: c._replace(epochs=steps) for name, c in CLIENTS.items()}
    gradients = {
        name: reference.full_gradient(OPTIMUM, client.batches())
        for name, client in clients.items()
    }
    driver = stateful.Driver(scaffold("I"), clients)
    driver.set_model(OPTIMUM)
    set_variates(driver, np.zeros(D), gradients)
    fed_avg = within.fed_avg(clients, RATE)
    fed_avg.set_model(OPTIMUM)
    cohort = ["client_1", "client_4", "client_6"]
    driver.round(cohort)
    fed_avg.round(cohort)
    np.testing.assert_allclose(driver.model, OPTIMUM, atol=1e-6)
    np.testing.assert_allclose(driver.server_variate(), 0.0, atol=1e-6)
    for client, gradient in gradients.items():
        np.testing.assert_allclose(driver.remembered(client), gradient, atol=1e-5)
    assert np.linalg.norm(fed_avg.model - OPTIMUM) > 0.01


def test_with_K_1_M_1_and_option_I_it_is_saga():
    rate = 0.2
    clients = {name: c._replace(epochs=1) for name, c in CLIENTS.items()}
    driver = stateful.Driver(scaffold("I"), clients, learning_rate=rate)
    saga = reference.Saga(D, clients, rate)
    order = np.random.default_rng(0).integers(0, 10, 15)
    assert len(set(order)) < len(order)  # Some of the table is used again.
    for index in order:
        client = f"client_{index}"
        driver.round([client])
        saga.step(client, clients[client].batches())
        np.testing.assert_allclose(driver.model, saga.x, atol=1e-5)


def test_a_single_client_makes_it_plain_sgd():
    client = stateful.ragged_clients([8])
    driver = stateful.Driver(
        stateful.scaffold("II", RATE, 1), client, learning_rate=0.2
    )
    w = np.zeros(D)
    for _ in range(3):
        driver.round(["client_0"])
        w = reference.Sgd(0.2).run(w, client["client_0"].batches())
        np.testing.assert_allclose(driver.model, w, atol=1e-6)
    assert np.linalg.norm(driver.server_variate()) > 0.01


@pytest.fixture(scope="module")
def sampled_run(local_context):
    """60 rounds of 3 of 10 clients: models, c and mean c_i after each round."""
    driver = stateful.Driver(scaffold(), CLIENTS)
    rounds = []
    for cohort in stateful.dealt_cohorts(list(CLIENTS), 3, rounds=60):
        driver.round(cohort)
        rounds.append((driver.model, driver.server_variate(), driver.remembered_mean()))
    return rounds


@pytest.mark.conformance
def test_sampled_clients_reach_the_optimum_where_fed_avg_stalls(sampled_run):
    fed_avg = within.fed_avg(CLIENTS, RATE)
    fed_avg_errors = []
    for cohort in stateful.dealt_cohorts(list(CLIENTS), 3, rounds=60):
        fed_avg.round(cohort)
        fed_avg_errors.append(np.linalg.norm(fed_avg.model - OPTIMUM))
    assert np.linalg.norm(sampled_run[-1][0] - OPTIMUM) < 1e-5
    assert min(fed_avg_errors[20:]) > 0.1


@pytest.mark.conformance
def test_sampled_clients_reach_the_optimum_linearly(sampled_run):
    errors = [np.linalg.norm(model - OPTIMUM) for model, _, _ in sampled_run]
    for start in (0, 15, 30):
        assert errors[start + 15] < errors[start] / 5


@pytest.mark.conformance
def test_c_is_the_mean_of_all_N_c_i_after_every_round(sampled_run):
    for _, c, mean_c_i in sampled_run:
        np.testing.assert_allclose(c, mean_c_i, atol=5e-6)


def test_fed_avg_stalls_farther_with_more_steps_and_more_heterogeneity():
    rate, curvatures = 0.2, np.array([0.5, 2.0])

    def stalled(steps, optima):
        # y_i - b_i = (1 - η a_i)^K (x - b_i), hence the x that stays.
        pull = 1 - (1 - rate * curvatures) ** steps
        return np.sum(pull * optima) / np.sum(pull)

    distances = {}
    for steps, spread in [(1, 1.0), (4, 1.0), (16, 1.0), (16, 3.0)]:
        optima = spread * np.array([-1.0, 1.0])
        clients = {
            f"client_{i}": stateful.axis_client(a, optimum, steps=steps)
            for i, (a, optimum) in enumerate(zip(curvatures, optima, strict=True))
        }
        x = stalled(steps, optima)
        driver = within.fed_avg(clients, rate)
        driver.set_model([x, 0, 0, 0, 0])
        driver.round(list(clients))
        np.testing.assert_allclose(along_first_axis(driver.model), x, atol=1e-6)
        minimum = np.sum(curvatures * optima) / np.sum(curvatures)
        distances[steps, spread] = abs(driver.model[0] - minimum)
    assert distances[1, 1.0] < 1e-6
    assert 0.1 < distances[4, 1.0] < distances[16, 1.0] < distances[16, 3.0]


def weighted_scaffold(clients, server_rate):
    return algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(clients),
        tff.learning.optimizers.build_sgdm(server_rate),
        option="I",
        total_examples=sum(reference.num_examples(c.batches()) for c in clients),
        client_weighting=stateful.NUM_EXAMPLES,
    )


@pytest.mark.conformance
def test_unbalanced_clients_as_in_the_code_of_fed_dyn():
    # Models count alike, changes of control variates by examples.
    clients = stateful.ragged_clients([3, 9, 6, 2])
    total = sum(reference.num_examples(c.batches()) for c in clients.values())
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(clients),
        total_examples=total,
        variates_by_examples=True,
    )
    driver = stateful.Driver(process, clients)
    paper = reference.Scaffold(
        D, clients, RATE, "II", total_weight=total, weigh_models=False
    )
    for cohort in (["client_0", "client_1"], ["client_3", "client_1"]):
        driver.round(cohort)
        paper.round(stateful.batches(clients, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=2e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=2e-6)


def test_weighted_clients_and_a_global_step_size():
    clients = stateful.ragged_clients([3, 9, 6, 2])
    weights = [reference.num_examples(c.batches()) for c in clients.values()]
    process = weighted_scaffold(clients.values(), server_rate=0.5)
    driver = stateful.Driver(process, clients, learning_rate=0.1)
    paper = reference.Scaffold(
        D, clients, 0.1, "I", server_rate=0.5, total_weight=sum(weights)
    )
    for cohort in (["client_0", "client_1"], ["client_3", "client_1"]):
        driver.round(cohort)
        paper.round(stateful.batches(clients, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=2e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=2e-6)
        c_i = [driver.remembered(client) for client in clients]
        mean = np.average(c_i, axis=0, weights=weights)
        np.testing.assert_allclose(driver.server_variate(), mean, atol=2e-6)
    # The optimum of the weighted objective stays where it is.
    every = [client.batches() for client in clients.values()]
    optimum = reference.optimum(every, weights)
    assert np.linalg.norm(optimum - reference.optimum(every)) > 0.01
    exact = {
        name: client._replace(batch_size=len(client.targets))
        for name, client in clients.items()
    }
    driver.set_model(optimum)
    gradients = {
        name: reference.full_gradient(optimum, client.batches())
        for name, client in exact.items()
    }
    set_variates(driver, np.zeros(D), gradients)
    driver.round(["client_1", "client_2"], exact)
    np.testing.assert_allclose(driver.model, optimum, atol=1e-6)
    np.testing.assert_allclose(driver.server_variate(), 0.0, atol=1e-6)


@pytest.mark.conformance
def test_option_I_takes_any_client_optimizer_and_the_server_rate_a_schedule():
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        tff.learning.optimizers.build_sgdm(0.1, momentum=0.5),
        len(RAGGED),
        0.5,
        option="I",
        server_rate_schedule=lambda round_number: 1.0 / (1.0 + round_number),
    )
    driver = stateful.Driver(process, RAGGED)
    paper = reference.Scaffold(D, RAGGED, 0.1, "I")
    paper.sgd.momentum = 0.5
    for round_number, cohort in enumerate(COHORTS):
        paper.server_rate = 0.5 / (1 + round_number)
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=2e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=2e-6)
    hparams = process.get_hparams(driver.state)
    assert hparams["client_work"]["momentum"] == 0.5
    assert hparams["finalizer"]["learning_rate"] == 0.5
