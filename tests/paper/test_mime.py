"""Mime and MimeLite of Karimireddy et al. (2020): what the paper says must hold.

https://arxiv.org/abs/2008.03606
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, stateful, tiers
from tests.paper import reference, reference_since, within
from tff_drift import algorithms

D = stateful.DIMENSION
pytestmark = pytest.mark.usefixtures("local_context")
RAGGED = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9])
COHORTS = [
    [f"client_{index}" for index in indices]
    for indices in ((4, 0, 5), (2, 4), (6, 0, 4), (2, 1))
]
BASES = {
    "momentum": (
        tff.learning.optimizers.build_sgdm(0.05, 0.75),
        reference_since.Momentum(0.05, 0.75),
    ),
    "adam": (tff.learning.optimizers.build_adam(0.05), reference_since.Adam(0.05)),
}
BUILDERS = {"mime": algorithms.build_mime, "mime_lite": algorithms.build_mime_lite}
both = pytest.mark.parametrize("method", BUILDERS)


@functools.cache
def build(method, base):
    return BUILDERS[method](stateful.LinearRegression, BASES[base][0])


@pytest.mark.parametrize(
    ("method", "base"),
    # Each method and each base once in the first tier.
    tiers.first([0, 3], list(itertools.product(BUILDERS, BASES))),
)
def test_rounds_equal_algorithm_1(method, base, each_context):
    driver = stateful.Driver(build(method, base), RAGGED)
    paper = reference_since.Mime(D, BASES[base][1], method == "mime_lite")
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)


@pytest.mark.parametrize("method", tiers.first(["mime"], list(BUILDERS)))
def test_weight_decay_is_part_of_every_gradient_that_of_the_server_too(method):
    process = BUILDERS[method](
        stateful.LinearRegression, BASES["momentum"][0], client_weight_decay=0.5
    )
    driver = stateful.Driver(process, RAGGED)
    paper = reference_since.Mime(
        D, BASES["momentum"][1], method == "mime_lite", weight_decay=0.5
    )
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(RAGGED, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("method", "base"),
    # MimeLite's clients step along their own gradients, of which Adam's steps are no
    # linear function: the mean of the steps is another than the step of the mean.
    [("mime", "momentum"), ("mime", "adam"), ("mime_lite", "momentum")],
)
def test_one_step_on_all_data_is_the_base_optimizer_in_one_place(method, base):
    clients = {
        name: client._replace(batch_size=100, epochs=1)
        for name, client in RAGGED.items()
    }
    driver = stateful.Driver(build(method, base), clients)
    optimizer = BASES[base][1]
    x, s = np.zeros(D), optimizer.start(D)
    everything = [batch for client in clients.values() for batch in client.batches()]
    for _ in range(5):
        driver.round(list(clients))
        s, x = optimizer.next(s, x, reference.full_gradient(x, everything))
        np.testing.assert_allclose(driver.model, x, atol=1e-6)


# Adam's statistics are those of MimeLite's rounds.
@pytest.mark.parametrize("base", tiers.first(["momentum"], list(BASES)))
def test_the_first_step_of_a_single_client_is_the_base_optimizers(base):
    client = RAGGED["client_4"]
    driver = stateful.Driver(build("mime", base), {"alone": client})
    first = client._replace(
        features=client.features[:3], targets=client.targets[:3], epochs=1
    )
    # One minibatch: its gradient at y = x is that at x.
    whole = reference.full_gradient(np.zeros(D), first.batches())
    driver.round(["alone"], {"alone": first})
    _, expected = BASES[base][1].next(BASES[base][1].start(D), np.zeros(D), whole)
    np.testing.assert_allclose(driver.model, expected, atol=1e-6)


@pytest.mark.parametrize("options", stateful.LOCAL_OPTIONS)
def test_mime_lite_over_sgd_is_fed_avg_bit_for_bit(options):
    lite = algorithms.build_mime_lite(
        stateful.LinearRegression,
        0.1,
        client_weighting=stateful.UNIFORM,
        **options,
    )
    driver = stateful.Driver(lite, RAGGED)
    fed_avg = within.fed_avg(RAGGED, 0.1, **options)
    for cohort in COHORTS:
        driver.round(cohort)
        fed_avg.round(cohort)
        np.testing.assert_array_equal(driver.model, fed_avg.model)


@pytest.mark.conformance
@pytest.mark.parametrize("base", tiers.first(["momentum"], list(BASES)))
def test_mime_lite_equals_that_of_tff(base, contexts):
    optimizer = BASES[base][0]
    theirs = tff.learning.algorithms.build_weighted_mime_lite(
        models.softmax_regression, optimizer
    )
    ours = algorithms.build_mime_lite(models.softmax_regression, optimizer)
    data = models.datasets(models.client_arrays([9, 6, 14]))
    with tff.framework.get_context_stack().install(contexts["native"]):
        found, expected = (
            models.trainable(process, models.train(process, data, rounds=4)[0])
            for process in (ours, theirs)
        )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.conformance
@pytest.mark.parametrize("method", tiers.first(["mime"], list(BUILDERS)))
def test_the_server_has_the_hyperparameters_that_are_set(method):
    """One client, whole data, one step: SGD with the momentum that was set."""
    process = BUILDERS[method](
        stateful.LinearRegression, tff.learning.optimizers.build_sgdm(0.1, 0.9)
    )
    clients = {"one": stateful.axis_client(1.0, optimum=3.0)}
    driver = stateful.Driver(process, clients)
    driver.set_hparam("client_work", "momentum", 0.5)
    x = velocity = 0.0
    for _ in range(6):
        driver.round(["one"])
        velocity = 0.5 * velocity + (x - 3.0)
        x -= 0.1 * velocity
        np.testing.assert_allclose(driver.model[0], x, rtol=1e-5)
