"""FedExP of Jhunjhunwala et al. (2023): what the paper says must hold.

https://arxiv.org/abs/2301.09604
"""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import stateful, tiers
from tests.paper import reference, reference_since, within
from tff_drift import aggregators, algorithms
from tff_drift.algorithms import fed_exp

D = stateful.DIMENSION
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9])
COHORTS = [
    [f"client_{index}" for index in indices]
    for indices in ((4, 0, 5), (2, 4, 1, 6), (6, 0, 4))
]
EPSILON = 1e-5


@functools.cache
def build(rate, **options):
    return algorithms.build_fed_exp(
        stateful.LinearRegression, rate, epsilon=EPSILON, **options
    )


def test_rounds_equal_algorithm_1(each_context):
    driver = stateful.Driver(build(0.1), RAGGED)
    paper = reference_since.FedExp(D, 0.1, EPSILON)
    rates = []
    for cohort in COHORTS:
        metrics = driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        rates.append(paper.server_rate)
        np.testing.assert_allclose(
            metrics["finalizer"]["extrapolation"], rates[-1], rtol=1e-5
        )
        np.testing.assert_allclose(
            driver.deployed_model(), (paper.x + paper.last) / 2, atol=1e-6
        )
    assert max(rates) > 1


def test_of_identical_clients_it_is_fed_avg_bit_for_bit():
    clients = dict.fromkeys(("a", "b", "c"), RAGGED["client_2"])
    driver = stateful.Driver(build(0.1), clients)
    fed_avg = within.fed_avg(clients, 0.1)
    for _ in range(3):
        assert driver.round(list(clients))["finalizer"]["extrapolation"] == 1.0
        fed_avg.round(list(clients))
        np.testing.assert_array_equal(driver.model, fed_avg.model)


@pytest.mark.parametrize("size", [3, 5])
def test_of_orthogonal_updates_of_one_norm_it_goes_half_their_number(size):
    clients = {
        f"axis_{axis}": stateful.axis_client(1.0, optimum=9.0, steps=3, axis=axis)
        for axis in range(size)
    }
    driver = stateful.Driver(build(0.1), clients)
    metrics = driver.round(list(clients))
    np.testing.assert_allclose(
        metrics["finalizer"]["extrapolation"], size / 2, rtol=1e-5
    )
    # y_i = 9 (1 - 0.9³) on its axis, of which the mean is y_i / M.
    expected = np.where(np.arange(D) < size, 9 * (1 - 0.9**3) / 2, 0)
    np.testing.assert_allclose(driver.model, expected, rtol=1e-5)


@pytest.mark.conformance
def test_it_is_faster_than_fed_avg_where_a_model_fits_all_clients():
    # Each client knows one direction of five: all fit w = 1 ... 5.
    clients = {
        f"axis_{axis}": stateful.axis_client(1.0, optimum=axis + 1, steps=3, axis=axis)
        for axis in range(D)
    }
    optimum, distances = np.arange(D) + 1, []
    for driver in (
        stateful.Driver(build(0.1), clients),
        within.fed_avg(clients, 0.1),
    ):
        for _ in range(10):
            driver.round(list(clients))
        distances.append(np.linalg.norm(driver.deployed_model() - optimum))
    assert distances[0] < 0.5 * distances[1]


@pytest.mark.conformance
def test_both_sums_may_be_secure():
    # Fixed-point numbers of 32 bits in [-8, 8].
    secure = tff.aggregators.SecureSumFactory(8.0, -8.0)
    mean = tff.aggregators.MeanFactory(secure, secure)
    driver = stateful.Driver(
        build(0.1, model_aggregator=mean, message_aggregator=mean), RAGGED
    )
    paper = reference_since.FedExp(D, 0.1, EPSILON)
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
    np.testing.assert_allclose(driver.model, paper.x, atol=1e-5)


@pytest.mark.conformance
def test_its_step_goes_with_the_clients_of_other_methods():
    step = fed_exp.FedExpStep(EPSILON)
    scaffold = algorithms.build_scaffold(stateful.LinearRegression, 0.1, 7, step)
    prox = algorithms.build_fed_exp(
        stateful.LinearRegression, 0.1, epsilon=EPSILON, mu=2.0
    )
    # Variates are 0 in the first round.
    for process, mu in ((scaffold, 0.0), (prox, 2.0)):
        driver = stateful.Driver(process, RAGGED)
        driver.round(COHORTS[1])
        moves = [
            -reference.Sgd(0.1).run(np.zeros(D), batches, lambda w, mu=mu: mu * w)
            for batches in stateful.batches(RAGGED, COHORTS[1]).values()
        ]
        mean = np.mean(moves, axis=0)
        ratio = np.mean(np.square(moves).sum(axis=1)) / (2 * (mean @ mean + EPSILON))
        np.testing.assert_allclose(driver.model, -max(1, ratio) * mean, atol=1e-6)


def _clipping(norm, rate=0.2):
    return aggregators.adaptive_clipping_factory(
        initial_clipping_norm=norm, learning_rate=rate
    )


@pytest.mark.conformance
def test_with_both_sums_clipped_alike_it_extrapolates_from_what_is_clipped():
    clients = {
        f"axis_{axis}": stateful.axis_client(1.0, optimum=9.0, steps=3, axis=axis)
        for axis in range(D)
    }
    # Its update is finite, and its square is not.
    clients["axis_0"] = clients["axis_0"]._replace(targets=np.array([1e21]))
    process = build(
        0.1, model_aggregator=_clipping(0.5), message_aggregator=_clipping(0.25, 0.4)
    )
    driver = stateful.Driver(process, clients)
    for norm in (0.5, 0.5 * np.exp(0.2 * 0.8)):
        before = driver.model
        metrics = driver.round(list(clients))
        clipped = metrics["aggregator"]
        assert clipped["model"]["clipped_count"] == D
        np.testing.assert_allclose(clipped["model"]["clipping_norm"], norm, rtol=1e-6)
        np.testing.assert_allclose(
            clipped["message"]["clipping_norm"], norm**2, rtol=1e-5
        )
        # Four orthogonal updates of norm ρ, and one that clipping makes zero: η_g is
        # (4 ρ² / 5) / (2 · 4 (ρ / 5)²) = 2.5.
        np.testing.assert_allclose(
            metrics["finalizer"]["extrapolation"], 2.5, rtol=1e-3
        )
        expected = before + norm / 2 * (np.arange(D) > 0)
        np.testing.assert_allclose(driver.model, expected, rtol=1e-3)


_MEAN = tff.aggregators.MeanFactory(no_nan_division=True)
_CLIPPING = {
    "adaptive": _clipping(0.5),
    "measured": aggregators.cohort_measurements_factory(_clipping(0.5)),
    "unweighted": aggregators.adaptive_clipping_factory(
        tff.aggregators.UnweightedMeanFactory()
    ),
    "fixed": tff.aggregators.clipping_factory(0.5, _MEAN),
    "robust": tff.learning.robust_aggregator(),
    "private": tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=0.1, clients_per_round=3.0, clip=0.5
    ),
}


@pytest.mark.parametrize("aggregator", tiers.first(["measured", "private"], _CLIPPING))
def test_updates_that_alone_are_clipped_are_refused(aggregator):
    message = "model_aggregator must not clip .* Give message_aggregator one that"
    with pytest.raises(ValueError, match=message):
        algorithms.build_fed_exp(
            stateful.LinearRegression, 0.1, model_aggregator=aggregator
        )
    message = "model_aggregator must not clip .* build_fed_exp has a message_aggregator"
    with pytest.raises(ValueError, match=message):
        algorithms.build_fed_avg(
            stateful.LinearRegression,
            0.1,
            fed_exp.FedExpStep(),
            model_aggregator=aggregator,
        )


@pytest.mark.parametrize("method", ["fed_nova", "fed_cm", "mime", "uga"])
def test_its_step_is_refused_where_the_mean_is_not_that_of_the_clients_updates(method):
    options = {"local_epochs": 2} if method == "uga" else {}
    builder = getattr(algorithms, f"build_{method}")
    with pytest.raises(TypeError, match=r"server_optimizer_fn must be .*FedExpStep"):
        builder(
            stateful.LinearRegression,
            0.1,
            server_optimizer_fn=fed_exp.FedExpStep(),
            **options,
        )


def test_its_step_from_a_diverged_client_changes_nothing():
    clients = {
        "one": stateful.axis_client(1.0, optimum=9.0),
        "diverged": stateful.axis_client(1.0, optimum=1e21, axis=1),
    }
    process = algorithms.build_fed_avg(
        stateful.LinearRegression,
        0.1,
        fed_exp.FedExpStep(EPSILON),
        # So that the mean is finite.
        model_aggregator=tff.aggregators.zeroing_factory(
            1e3, tff.aggregators.MeanFactory(no_nan_division=True)
        ),
    )
    driver = stateful.Driver(process, clients)
    driver.round(["one"])
    model = driver.model
    assert 0 < model[0] < 9
    metrics = driver.round(list(clients))
    # ‖Δ_i‖² is infinite, and so would be the model.
    assert metrics["finalizer"]["update_non_finite"] == 1
    assert metrics["client_work"]["rejected_clients"] == 0
    np.testing.assert_array_equal(driver.model, model)
    assert driver.round(["one"])["finalizer"]["update_non_finite"] == 0
    assert np.isfinite(driver.model).all()
    assert driver.model[0] > model[0]
