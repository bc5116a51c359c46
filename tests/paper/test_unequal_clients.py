"""Clients of unequal weights and unequal work, for the methods that average more.

The papers have equal weights. With weights by examples, whatever is set against the
mean update has to have its weights.
"""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import stateful, tiers
from tests.paper import reference, reference_since
from tff_drift import algorithms
from tff_drift.algorithms import fed_exp

D = stateful.DIMENSION
RATE = 0.01
UNIFORM = stateful.UNIFORM
pytestmark = [pytest.mark.no_smoke, pytest.mark.usefixtures("local_context")]


@functools.cache
def build(method, total=None, num_clients=2, rate=RATE, **options):
    """With weights by examples if their total is given."""
    if total is not None:
        options["client_weighting"] = stateful.NUM_EXAMPLES
        if "total_examples" in algorithms.methods()[method].needs:
            options["total_examples"] = total
    if "num_clients" in algorithms.methods()[method].needs:
        options["num_clients"] = num_clients
    return algorithms.methods()[method].build(
        stateful.LinearRegression, client_learning_rate=rate, **options
    )


# Gradients of 1 along the first axis, as near as a quadratic comes to them, in as many
# steps as a client has examples.
LINES = {
    "short": stateful.axis_client(1e-8, optimum=-1e8, steps=1),
    "long": stateful.axis_client(1e-8, optimum=-1e8, steps=19),
}


@pytest.mark.parametrize(
    ("method", "share", "total", "mean_steps"),
    tiers.first(
        [1, 5],
        [
            (*method, *weights)
            for method in (
                ("fed_cm", 0.1),
                ("scaffold_momentum", 0.1),
                ("scaffold_m", 1),
            )
            for weights in ((None, 10.0), (20, 18.1))
        ],
    ),
)
def test_under_a_constant_gradient_directions_are_no_longer_than_it(
    method, share, total, mean_steps, each_context
):
    options = {"fed_cm": {"alpha": share}, "scaffold_momentum": {"beta": share}}
    driver = stateful.Driver(build(method, total, **options.get(method, {})), LINES)
    x = 0.0
    for number in range(1, 13):
        driver.round(list(LINES))
        # Every local step goes along share · 1 + (1 - share) m: the next m.
        direction = 1 - (1 - share) ** number
        if method == "scaffold_m":
            np.testing.assert_allclose(driver.server_variate()[0], 1, rtol=1e-4)
        else:
            m = stateful.vector(driver.state.finalizer["momentum"])
            np.testing.assert_allclose(m[0], direction, rtol=1e-4)
        x -= RATE * mean_steps * direction
        np.testing.assert_allclose(driver.model[0], x, rtol=1e-4)


RAGGED = stateful.ragged_clients([5, 1, 8, 20], batch_size=3)
TOTAL = sum(reference.num_examples(c.batches()) for c in RAGGED.values())
COHORTS = [["client_0", "client_3"], ["client_1", "client_3", "client_2"], ["client_2"]]


@pytest.mark.parametrize(
    ("method", "options", "paper"),
    tiers.first(
        [0, 3],
        [
            (
                "fed_cm",
                {"alpha": 0.25},
                lambda: reference_since.ScaffoldMomentum(
                    D, None, 0.05, 0.25, total_weight=TOTAL
                ),
            ),
            (
                "scaffold_momentum",
                {"beta": 0.25},
                lambda: reference_since.ScaffoldMomentum(
                    D, 4, 0.05, 0.25, total_weight=TOTAL
                ),
            ),
            (
                "scaffold_m",
                {},
                lambda: reference.ScaffoldM(D, 4, 0.05, total_weight=TOTAL),
            ),
            (
                "fed_dyn",
                {"mu": 0.5},
                lambda: reference.FedDyn(D, 4, 0.05, 0.5, total_weight=TOTAL),
            ),
        ],
    ),
)
def test_weighted_rounds_equal_the_reference(method, options, paper):
    process = build(method, TOTAL, num_clients=4, rate=0.05, **options)
    driver, paper = stateful.Driver(process, RAGGED), paper()
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        expected = paper.x if hasattr(paper, "x") else paper.theta
        np.testing.assert_allclose(driver.model, expected, atol=2e-6)
    if method == "fed_dyn":
        np.testing.assert_allclose(driver.server_estimate(), paper.h, atol=2e-6)
    elif method != "fed_cm":
        c = paper.c if hasattr(paper, "c") else paper.h
        np.testing.assert_allclose(driver.server_variate(), c, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("method", "options", "cohort_size"),
    [
        ("scaffold_momentum", {"beta": 0.5}, 2),
        ("scaffold_m", {}, 2),
        ("fed_dyn", {"mu": 0.5}, 2),
        ("scaffnew", {"probability": 0.3}, 4),
    ],
)
def test_with_weights_by_examples_the_minimum_is_that_of_the_weighted_loss(
    method, options, cohort_size
):
    # Each step on all examples: equal K_i, unequal n_i.
    clients = stateful.ragged_clients([8, 40, 10, 90], batch_size=90, epochs=8)
    batches = [client.batches() for client in clients.values()]
    sizes = [reference.num_examples(of_client) for of_client in batches]
    optimum = reference.optimum(batches, sizes)
    assert np.linalg.norm(optimum - reference.optimum(batches)) > 0.05
    process = build(method, sum(sizes), num_clients=4, rate=0.1, **options)
    driver = stateful.Driver(process, clients)
    for cohort in stateful.dealt_cohorts(list(clients), cohort_size, rounds=120):
        driver.round(cohort)
    np.testing.assert_allclose(driver.deployed_model(), optimum, atol=1e-3)


def test_the_step_of_fed_exp_weighs_squares_as_it_weighs_updates():
    # One step on 190 examples and 19 steps on one: n_i of 190 and 19.
    line = LINES["long"]
    wide = line._replace(
        features=np.repeat(line.features, 190, axis=0),
        targets=np.repeat(line.targets, 190),
        batch_size=190,
        epochs=1,
    )
    clients = {"wide": wide, "long": line}
    process = build("fed_avg", server_learning_rate=fed_exp.FedExpStep(1e-9))
    driver = stateful.Driver(process, clients)
    driver.round(list(clients))
    # Δ_i = -η and -19 η with p_i = 10/11 and 1/11.
    mean, square = RATE * 29 / 11, RATE**2 * (10 + 361) / 11
    rate = square / (2 * (mean**2 + 1e-9))
    np.testing.assert_allclose(driver.model[0], -rate * mean, rtol=1e-4)


# Gradients of 1 in 10 steps, and who is in a mean without weights as 0.
_LINE = stateful.axis_client(1e-8, optimum=-1e8, steps=10)
ONE_OF_FOUR = {
    "line": _LINE,
    "empty": stateful.Client(np.zeros([0, D]), np.zeros([0]), 1),
    "empty_too": stateful.Client(np.zeros([0, D]), np.zeros([0]), 1),
    "rejected": _LINE._replace(targets=np.array([np.nan])),
}
WITHOUT_WEIGHTS = {
    "mean": tff.aggregators.UnweightedMeanFactory(),
    "private": tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 4, 1e6),
}


def one_of_four(aggregator, method, **options):
    process = build(
        method, num_clients=4, model_aggregator=WITHOUT_WEIGHTS[aggregator], **options
    )
    driver = stateful.Driver(process, ONE_OF_FOUR)
    return driver, driver.round(list(ONE_OF_FOUR))["finalizer"]


_AGGREGATORS = pytest.mark.parametrize(
    "aggregator", tiers.first(["mean"], list(WITHOUT_WEIGHTS))
)


@_AGGREGATORS
@pytest.mark.parametrize(
    ("method", "share"),
    # One step of the server for both.
    tiers.first([0], [("fed_cm", "alpha"), ("scaffold_momentum", "beta")]),
)
def test_a_momentum_allows_for_zeros_in_a_mean_without_weights(
    aggregator, method, share
):
    # The mean of all four Δ_i is η 10 / 4.
    driver, _ = one_of_four(aggregator, method, **{share: 1.0})
    np.testing.assert_allclose(driver.model[0], -RATE * 10 / 4, rtol=1e-4)
    momentum = stateful.vector(driver.state.finalizer["momentum"])
    np.testing.assert_allclose(momentum[0], 1.0, rtol=1e-4)


@_AGGREGATORS
def test_what_servers_estimate_allows_for_zeros_in_a_mean_without_weights(aggregator):
    # h is the mean of all four h_i, 1 and three zeros, in every round.
    driver, _ = one_of_four(aggregator, "scaffold_m")
    np.testing.assert_allclose(driver.server_variate()[0], 1 / 4, rtol=1e-4)
    driver.round(list(ONE_OF_FOUR))
    np.testing.assert_allclose(driver.server_variate()[0], 1 / 4, rtol=1e-4)
    # h is the sum of all g_i over N.
    driver, _ = one_of_four(aggregator, "fed_dyn", mu=0.0)
    np.testing.assert_allclose(driver.server_estimate()[0], RATE * 10 / 4, rtol=1e-4)


def test_an_automatic_beta_of_one_client_that_counts_is_zero():
    # The variance is unknown.
    _, measured = one_of_four("mean", "adabest", beta="auto", mu=0.0)
    np.testing.assert_allclose(measured["beta"], 0.0, atol=1e-4)


_STEP = fed_exp.FedExpStep(1e-9)


@pytest.mark.parametrize(
    ("aggregator", "method", "options"),
    tiers.first(
        [0],
        [
            ("mean", "fed_exp", {"epsilon": 1e-9}),
            (
                "private",
                "fed_exp",
                {"epsilon": 1e-9, "message_aggregator": WITHOUT_WEIGHTS["private"]},
            ),
            (
                "mean",
                "fed_avg",
                {"server_learning_rate": _STEP, "client_weighting": UNIFORM},
            ),
        ],
    ),
)
def test_the_step_of_fed_exp_allows_for_them_too(aggregator, method, options):
    # Of Δ and three zeros: (Δ² / 4) / (2 (Δ / 4)²).
    _, measured = one_of_four(aggregator, method, **options)
    np.testing.assert_allclose(measured["extrapolation"], 2.0, rtol=1e-4)


def test_an_automatic_beta_takes_the_weights_of_the_updates():
    process = build("adabest", 1, beta="auto", mu=0.0)
    driver = stateful.Driver(process, LINES)
    metrics = driver.round(list(LINES))
    # ‖g_i‖ = η K_i, p_i = K_i / 20: with M = 1 / Σ p_i² = 400 / 362 below 1.5, a round
    # as of one client, 1/R = ‖ḡ‖² / mean ‖g_i‖².
    share = 18.1**2 / ((1 + 19 * 361) / 20)
    expected = (1 - share) / (1 + share)
    np.testing.assert_allclose(metrics["finalizer"]["beta"], expected, rtol=1e-4)
    # Three clients of K = 1, 2, 3: M = 36 / 14, ḡ = 14/6, mean square 36 / 6.
    clients = {
        f"of_{k}": stateful.axis_client(1e-8, optimum=-1e8, steps=k) for k in (1, 2, 3)
    }
    driver = stateful.Driver(process, clients)
    metrics = driver.round(list(clients))
    share = (6 - (14 / 6) ** 2) / (36 / 14 - 1) / 6
    expected = (1 - share) / (1 + share)
    np.testing.assert_allclose(metrics["finalizer"]["beta"], expected, rtol=1e-3)
