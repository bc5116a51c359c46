"""FedNova of Wang et al. (2020): what the paper says must hold.

https://arxiv.org/abs/2007.07481
"""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import stateful, tiers
from tests.paper import reference_since, within
from tff_drift import aggregators, algorithms, optimizers
from tff_drift.algorithms import fed_nova

D = stateful.DIMENSION
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9])
COHORTS = [
    [f"client_{index}" for index in indices]
    for indices in ((4, 0, 5), (2, 4), (6, 0, 4))
]


def build(client_optimizer_fn, **options):
    return algorithms.build_fed_nova(
        stateful.LinearRegression, client_optimizer_fn, **options
    )


@pytest.mark.parametrize(
    ("momentum", "mu"), tiers.first([1], [(0.0, 0.0), (0.75, 0.0), (0.0, 2.0)])
)
def test_rounds_equal_the_paper(momentum, mu, each_context):
    sgd = tff.learning.optimizers.build_sgdm(0.1, momentum or None)
    driver = stateful.Driver(build(sgd, mu=mu), RAGGED)
    paper = reference_since.FedNova(D, 0.1, momentum, mu)
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)


def test_with_mu_the_norms_are_those_of_the_rate_of_the_round():
    # (1 - (1 - ημ)^K) / μ: that of one rate is no multiple of that of another.
    process = build(0.2, mu=2.0, client_rate_schedule=lambda k: 1 / (1 + k))
    driver = stateful.Driver(process, RAGGED)
    paper = reference_since.FedNova(D, 0.2, mu=2.0)
    for number, cohort in enumerate(COHORTS):
        paper.rate = paper.sgd.rate = 0.2 / (1 + number)
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)


@pytest.mark.parametrize("options", stateful.LOCAL_OPTIONS)
def test_with_equal_K_and_plain_sgd_it_is_fed_avg_bit_for_bit(options):
    clients = stateful.quadratic_clients(4, steps=1)
    nova = build(0.1, client_weighting=stateful.UNIFORM, **options)
    drivers = [
        stateful.Driver(nova, clients),
        within.fed_avg(clients, 0.1, **options),
    ]
    for steps, size in ((7, 4), (3, 3)):
        of_round = {name: c._replace(epochs=steps) for name, c in clients.items()}
        for driver in drivers:
            driver.round(list(clients)[:size], of_round)
        np.testing.assert_array_equal(drivers[0].model, drivers[1].model)
    assert np.linalg.norm(drivers[0].model) > 0.1


@pytest.mark.conformance
def test_theorem_1_whose_minimum_is_the_fixed_point():
    # F_1 = (w - 1)² / 2 with K = 1, F_2 = (w + 3)² / 2 with K = 4; p_i = 1/2.
    rate = 1e-3
    clients = {
        "one": stateful.axis_client(1.0, optimum=1.0, steps=1),
        "other": stateful.axis_client(1.0, optimum=-3.0, steps=4),
    }
    fixed_points = {"fed_avg": (1 - 4 * 3) / 5, "fed_nova": -1.0}
    fed_nova = build(rate, client_weighting=stateful.UNIFORM)
    drivers = {
        "fed_avg": lambda: within.fed_avg(clients, rate),
        "fed_nova": lambda: stateful.Driver(fed_nova, clients),
    }
    for name, make in drivers.items():
        moves = {}
        for of, point in fixed_points.items():
            driver = make()
            driver.set_model(np.array([point, 0, 0, 0, 0]))
            before = driver.model
            driver.round(list(clients))
            moves[of] = np.linalg.norm(driver.model - before)
        other = next(of for of in moves if of != name)
        # O(η²) at its own fixed point, O(η) at the other's.
        assert moves[name] < 0.02 * moves[other]


@pytest.mark.conformance
def test_with_an_unweighted_aggregator_the_steps_are_averaged_without_weights_too():
    unweighted = tff.aggregators.UnweightedMeanFactory()
    drivers = [
        stateful.Driver(build(0.1, model_aggregator=unweighted), RAGGED),
        stateful.Driver(build(0.1, client_weighting=stateful.UNIFORM), RAGGED),
    ]
    for cohort in COHORTS:
        for driver in drivers:
            driver.round(cohort)
        np.testing.assert_allclose(drivers[0].model, drivers[1].model, atol=1e-6)


@pytest.mark.conformance
def test_combines_with_server_momentum_adaptive_clipping_and_secure_sums():
    secure = tff.aggregators.SecureSumFactory(64.0, -64.0)
    options = {
        "server_optimizer_fn": tff.learning.optimizers.build_sgdm(0.5, 0.5),
        "model_aggregator": aggregators.adaptive_clipping_factory(
            initial_clipping_norm=100.0
        ),
    }
    plain = stateful.Driver(build(0.1, **options), RAGGED)
    other = stateful.Driver(
        build(
            0.1,
            message_aggregator=tff.aggregators.MeanFactory(secure, secure),
            **options,
        ),
        RAGGED,
    )
    paper = reference_since.FedNova(D, 0.1)
    x, m = np.zeros(D), np.zeros(D)
    for cohort in COHORTS[:2]:
        plain.round(cohort)
        other.round(cohort)
        paper.x = x
        paper.round(stateful.batches(RAGGED, cohort))
        m = 0.5 * m + x - paper.x
        x = x - 0.5 * m
        np.testing.assert_allclose(plain.model, x, atol=1e-6)
        np.testing.assert_allclose(other.model, x, atol=1e-3)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 10.0])
def test_an_optimizer_that_is_not_linear_is_refused_at_any_rate(rate):
    for build_optimizer in (
        optimizers.build_adam,
        optimizers.build_adagrad,
        optimizers.build_lamb,
        optimizers.build_lars,
        optimizers.build_normalized_sgd,
        optimizers.build_yogi,
        tff.learning.optimizers.build_adam,
        tff.learning.optimizers.build_rmsprop,
    ):
        with pytest.raises(ValueError, match="client_optimizer_fn must be SGD"):
            build(build_optimizer(rate))
    # Those that are linear are not.
    for momentum in (None, 0.9):
        sgd = tff.learning.optimizers.build_sgdm(rate, momentum)
        fed_nova.FedNovaWork(sgd, 0.0)
