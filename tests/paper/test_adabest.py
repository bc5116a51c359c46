"""Varno et al. (2022), AdaBest: what the paper says must hold.

https://arxiv.org/abs/2204.13170
"""

import copy
import functools
import inspect
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests import models, stateful
from tests.paper import reference, within
from tff_drift import aggregators, algorithms

D = stateful.DIMENSION
RATE = 0.1
MU = 0.2
BETA = 0.5
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9, 4, 2, 12])
# Gaps: client 4 waits one, one and three rounds, client 0 two and three.
COHORTS = [
    [f"client_{index}" for index in cohort]
    for cohort in ((4, 0, 5), (2, 4), (0, 4, 6), (3,), (1, 5), (4, 0, 2))
]


@functools.cache
def adabest(**options):
    return algorithms.build_adabest(stateful.LinearRegression, RATE, **options)


def test_two_clients_worked_by_hand(each_context):
    driver = stateful.Driver(
        stateful.adabest(RATE, MU, BETA),
        {
            # ∇L = w - 1 and ∇L = w + 3, with η = 1/2.
            "one": stateful.axis_client(1.0, optimum=1.0, steps=2),
            "other": stateful.axis_client(1.0, optimum=-3.0, steps=1),
        },
        learning_rate=0.5,
    )

    def first_entries(*clients):
        values = [driver.remembered(client, stateful.ESTIMATE) for client in clients]
        values += [driver.aggregate_model(), driver.model]
        return np.stack(values)[:, 0]

    driver.round(["one", "other"])
    # θ_i: 0, 0.5, 0.75 and 0, -1.5. h_i = μ g_i, μ once. θ̄ = -0.375.
    # h = β (0 - θ̄), θ = θ̄ - h.
    np.testing.assert_allclose(
        first_entries("one", "other"), [-0.15, 0.3, -0.375, -0.5625], rtol=1e-6
    )
    driver.round(["other"])
    # θ_i: -0.5625 - η (2.4375 - 0.3). h_i: 0.3 / 1 + μ 1.06875.
    # h = β (-0.375 + 1.63125).
    np.testing.assert_allclose(
        first_entries("one", "other"), [-0.15, 0.51375, -1.63125, -2.259375], rtol=1e-6
    )
    metrics = driver.round(["one"])
    # θ_i: -2.259375 + η (3.259375 - 0.15), then η θ_i + 0.425.
    # h_i: -0.15 / 2 - μ 2.33203125, two rounds after the first.
    # h = β (-1.63125 - 0.07265625).
    np.testing.assert_allclose(
        first_entries("one", "other"),
        [-0.54140625, 0.51375, 0.07265625, 0.924609375],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        metrics["finalizer"]["gradient_estimate_norm"], 0.851953125, rtol=1e-5
    )


class Round(NamedTuple):
    """What there was, and what there should be after the paper's algorithm."""

    theta_before: np.ndarray
    theta_bar_before: np.ndarray
    theta: np.ndarray
    theta_bar: np.ndarray
    client_states: Any
    paper: reference.AdaBest


@pytest.fixture(scope="module")
def run(local_context):
    """Six rounds with gaps in participation."""
    driver = stateful.Driver(stateful.adabest(RATE, MU, BETA), RAGGED)
    paper = reference.AdaBest(D, RATE, MU, BETA)
    rounds = []
    for cohort in COHORTS:
        theta_before, theta_bar_before = driver.model, driver.aggregate_model()
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        rounds.append(
            Round(
                theta_before,
                theta_bar_before,
                driver.model,
                driver.aggregate_model(),
                copy.deepcopy(driver.client_states),
                copy.deepcopy(paper),
            )
        )
    return rounds


def test_rounds_equal_algorithm_1_with_gaps_in_participation(run):
    for one in run:
        np.testing.assert_allclose(one.theta, one.paper.theta, atol=5e-6)
        np.testing.assert_allclose(one.theta_bar, one.paper.theta_bar, atol=5e-6)
        assert set(one.client_states) == set(one.paper.h_i)
        for client, state in one.client_states.items():
            np.testing.assert_allclose(
                state[stateful.ESTIMATE], one.paper.h_i[client], atol=5e-6
            )
            # Ours counts rounds from 0, the paper from 1.
            assert state["last_round"] == one.paper.last_round[client] - 1


def test_remark_2_the_step_of_the_aggregate_is_h_and_the_pseudo_gradient(run):
    for one in run:
        h_before = one.theta_bar_before - one.theta_before
        np.testing.assert_allclose(
            one.theta_bar_before - one.theta_bar,
            h_before + one.paper.g_bar,
            atol=1e-5,
        )


def test_remark_3_h_is_a_power_series_of_the_pseudo_gradients(run):
    # As in the appendix: the exponent is t - τ + 1.
    for t, one in enumerate(run, start=1):
        series = sum(
            BETA ** (t - tau + 1) * past.paper.g_bar
            for tau, past in enumerate(run[:t], start=1)
        )
        np.testing.assert_allclose(one.theta_bar - one.theta, series, atol=1e-5)


@pytest.mark.parametrize("local", stateful.LOCAL_OPTIONS)
def test_remark_4_without_beta_and_mu_it_is_fed_avg_bit_for_bit(local, each_context):
    empty = stateful.Client(np.zeros([0, D]), np.zeros([0]), 3)
    clients = {**RAGGED, "empty": empty}
    driver = stateful.Driver(adabest(mu=0.0, beta=0.0, **local), clients)
    fed_avg = within.fed_avg(clients, RATE, **local)
    for cohort in (*COHORTS, ["client_4", "empty"]):
        driver.round(cohort)
        fed_avg.round(cohort)
        models.assert_bit_equal([driver.model], [fed_avg.model])
        models.assert_bit_equal([driver.aggregate_model()], [fed_avg.model])


@pytest.mark.parametrize("present_round", [2, 1, 0])
def test_a_state_from_no_earlier_round_is_not_discounted(present_round):
    """A round is repeated, or an older or a fresh server state meets the clients."""
    driver = stateful.Driver(stateful.adabest(RATE, MU, BETA), RAGGED)
    states = []
    for _ in range(3):
        states.append(driver.state)
        driver.round(["client_4", "client_0"])
    assert driver.client_states["client_4"]["last_round"] == 2
    driver.state = states[present_round]
    for _ in range(2):
        theta = driver.model
        h_i = driver.remembered("client_4", stateful.ESTIMATE)
        driver.round(["client_4"])
        theta_i = reference.Sgd(RATE).run(
            theta, RAGGED["client_4"].batches(), lambda w, h_i=h_i: -h_i
        )
        np.testing.assert_allclose(
            driver.remembered("client_4", stateful.ESTIMATE),
            h_i + MU * (theta - theta_i),
            atol=5e-6,
        )
    # From here on its rounds count as ever.
    assert driver.client_states["client_4"]["last_round"] == present_round + 1


@pytest.mark.parametrize("local", stateful.LOCAL_OPTIONS)
def test_remark_5_fed_dyns_server_at_full_participation_is_that_of_beta_1(local):
    clients = {f"client_{index}": RAGGED[f"client_{index}"] for index in range(4)}
    driver = stateful.Driver(adabest(mu=0.0, beta=0.0, **local), clients)
    driver.set_hparam("finalizer", "beta", 1.0)
    fed_dyn = stateful.Driver(
        algorithms.build_fed_dyn(stateful.LinearRegression, RATE, 4, mu=0.0, **local),
        clients,
    )
    for _ in range(4):
        driver.round(list(clients))
        fed_dyn.round(list(clients))
        np.testing.assert_allclose(driver.model, fed_dyn.model, atol=2e-6)
        np.testing.assert_allclose(
            driver.aggregate_model(), fed_dyn.deployed_model(), atol=2e-6
        )
    # At partial participation the extra M/N tells them apart.
    driver.round(["client_0"])
    fed_dyn.round(["client_0"])
    assert np.linalg.norm(driver.model - fed_dyn.model) > 0.01


@pytest.mark.conformance
def test_beta_falls_every_round():
    process = adabest(mu=0.0, beta=0.8, beta_schedule="every_round", beta_decay=0.5)
    driver = stateful.Driver(process, RAGGED)
    found = []
    for _ in range(3):
        driver.round(["client_0", "client_1"])
        found.append(float(driver.metrics["finalizer"]["beta"]))
    np.testing.assert_allclose(found, [0.8, 0.4, 0.2], rtol=1e-6)


def test_it_knows_neither_N_nor_the_set_of_clients():
    shared = set(algorithms.StatefulOptions.__annotations__)
    parameters = set(inspect.signature(algorithms.build_adabest).parameters)
    assert "num_clients" not in shared
    assert parameters - shared == {
        "model_fn",
        "client_optimizer_fn",
        "mu",
        "beta",
        "beta_schedule",
        "beta_decay",
        "plateau_patience",
        "mu_by_examples",
    }
    driver = stateful.Driver(stateful.adabest(RATE, MU, BETA), RAGGED)
    before = tf.nest.map_structure(np.shape, driver.state)
    newcomers = {f"newcomer_{index}": RAGGED["client_3"] for index in range(12)}
    driver.round(list(newcomers), newcomers)
    assert tf.nest.map_structure(np.shape, driver.state) == before


def test_mu_by_examples_follows_a_running_mean_of_examples():
    driver = stateful.Driver(adabest(mu=MU, beta=BETA, mu_by_examples=True), RAGGED)
    paper = reference.AdaBest(D, RATE, MU, BETA, mu_by_examples=True)
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.theta, atol=5e-6)
        np.testing.assert_allclose(driver.aggregate_model(), paper.theta_bar, atol=5e-6)
        seen = driver.state.finalizer
        assert seen["examples_seen"] == sum(paper.sizes)
        assert seen["clients_seen"] == len(paper.sizes)
    balanced = reference.AdaBest(D, RATE, MU, BETA)
    for cohort in COHORTS:
        balanced.round(stateful.batches(RAGGED, cohort))
    assert np.linalg.norm(paper.theta - balanced.theta) > 0.01


@pytest.mark.parametrize(
    "options", [{"client_weighting": stateful.NUM_EXAMPLES}, {"mu_by_examples": True}]
)
def test_unbalanced_clients_count_by_their_examples_once(options):
    # At full participation with β = 1, the mean of the clients' corrections h_i,
    # weighted as the clients are in the objective, is μ h: both come to rest only
    # where that mean of the gradients is 0.
    clients = stateful.ragged_clients([3, 9, 6, 24])
    sizes = [reference.num_examples(client.batches()) for client in clients.values()]
    driver = stateful.Driver(adabest(mu=MU, beta=BETA, **options), clients)
    driver.set_hparam("finalizer", "beta", 1.0)
    for _ in range(3):
        driver.round(list(clients))
    corrections = [driver.remembered(client, stateful.ESTIMATE) for client in clients]
    if "mu_by_examples" in options:
        corrections = np.mean(sizes) * np.stack(corrections)
    np.testing.assert_allclose(
        np.average(corrections, axis=0, weights=sizes),
        MU * driver.server_estimate(),
        atol=1e-5,
    )
    assert np.linalg.norm(driver.server_estimate()) > 0.01


def test_an_automatic_beta_of_clipped_updates_is_refused():
    clipping = aggregators.adaptive_clipping_factory()
    build = functools.partial(algorithms.build_adabest, stateful.LinearRegression, 0.1)
    message = "model_aggregator must not clip .* Give beta a number"
    for more in ({}, {"evaluated_model": "average"}):
        with pytest.raises(ValueError, match=message):
            build(beta="auto", model_aggregator=clipping, **more)
    build(beta=0.9, model_aggregator=clipping)


def test_automatic_beta_by_hand():
    clients = {
        # η = 1/2 and one step: g_i is half the way back from the optimum.
        "three": stateful.axis_client(1.0, optimum=3.0),
        "four": stateful.axis_client(1.0, optimum=4.0),
        "minus_three": stateful.axis_client(1.0, optimum=-3.0),
    }
    process = adabest(mu=0.0, beta="auto")
    driver = stateful.Driver(process, clients, learning_rate=0.5)
    metrics = driver.round(["three", "four"])
    # g_i = -1.5, -2. ‖ḡ‖² = 3.0625, mean ‖g_i‖² = 3.125: V/M = 0.0625 is a fiftieth.
    # β = 49 / 51. θ̄ = 1.75, h = β (0 - 1.75).
    np.testing.assert_allclose(metrics["finalizer"]["beta"], 49 / 51, rtol=1e-6)
    np.testing.assert_allclose(driver.model[0], 1.75 + 49 / 51 * 1.75, rtol=1e-6)
    metrics = driver.round(["four"])
    # A single client's variance is unknown: all is noise.
    update = (1.75 + 49 / 51 * 1.75 - 4) / 2
    noise = 0.9 * 0.00625 + 0.1 * update**2
    total = 0.9 * 0.3125 + 0.1 * update**2
    np.testing.assert_allclose(
        metrics["finalizer"]["beta"], (total - noise) / (total + noise), rtol=1e-5
    )
    # Clients that disagree: g_i = -2, 1.5. ‖ḡ‖² = 0.0625, V/M = 3.125 - 0.0625.
    driver = stateful.Driver(process, clients, learning_rate=0.5)
    metrics = driver.round(["four", "minus_three"])
    np.testing.assert_allclose(metrics["finalizer"]["beta"], 1 / 99, rtol=1e-4)
    np.testing.assert_allclose(driver.model[0], 0.25 * 100 / 99, rtol=1e-5)


def test_beta_follows_its_schedule_and_decays_when_the_norm_of_h_plateaus():
    process = adabest(
        mu=0.0,
        beta=0.8,
        beta_schedule=_slower_and_slower,
        beta_decay=0.5,
        plateau_patience=2,
    )
    driver = stateful.Driver(process, {}, learning_rate=0.5)
    theta, theta_bar = 0.0, 0.0
    # 3.99 is no new minimum after 4, not being one per cent less: a plateau after
    # round 3. Later 3 and 2.9 are new minima, and a plateau is reached after round 8.
    norms = [8.0, 4.0, 3.99, 4.0, 3.0, 3.5, 2.9, 5.0, 5.0, 5.0]
    factors = [1.0] * 4 + [0.5] * 5 + [0.25]
    for t, (h_norm, factor) in enumerate(zip(norms, factors, strict=True)):
        beta = 0.8 / (1 + 0.25 * t) * factor
        theta_bar += h_norm / beta
        # One step of one client takes θ half the way to its optimum.
        optimum = 2 * theta_bar - theta
        theta = theta_bar + h_norm
        client = {"client": stateful.axis_client(1.0, optimum=optimum)}
        metrics = driver.round(["client"], client)["finalizer"]
        np.testing.assert_allclose(metrics["beta"], beta, rtol=1e-6)
        np.testing.assert_allclose(driver.model[0], theta, rtol=1e-4)
        np.testing.assert_allclose(metrics["gradient_estimate_norm"], h_norm, rtol=2e-3)


def _slower_and_slower(round_number):
    return 1.0 / (1.0 + 0.25 * tf.cast(round_number, tf.float32))
