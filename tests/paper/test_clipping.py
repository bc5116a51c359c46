"""Local clipping as published: clip(g + correction) + λ y, for every method alike.

In the code of Acar et al. (2021), FedDyn, which Varno et al. (2022), AdaBest, follow,
the norm of gradient and correction together is clipped, before weight decay:
`utils_general.py` of https://github.com/alpemreacar/FedDyn at 48a19fa, lines 98-101
(FedAvg), 159-165 (SCAFFOLD), 219-225 (FedDyn), 279-286 (FedProx).
"""

import numpy as np
import pytest

from tests import stateful, tiers
from tests.paper import reference
from tff_drift import algorithms

pytestmark = pytest.mark.no_smoke

D = stateful.DIMENSION
RATE, DECAY, NORM = 0.1, 0.3, 0.5
CLIENTS = stateful.ragged_clients([5, 6, 8, 3, 11, 1, 9, 4, 2, 12])
N = len(CLIENTS)
COHORTS = [
    [f"client_{index}" for index in indices]
    for indices in ((4, 0, 5), (2, 4), (9, 0, 4), (4, 9, 5))
]
LOCAL = {"client_weight_decay": DECAY, "gradient_clipping_norm": NORM}


def _build(builder, *args, **options):
    return builder(stateful.LinearRegression, RATE, *args, **options, **LOCAL)


METHODS = {
    "fed_avg": (
        lambda: _build(algorithms.build_fed_avg, client_weighting=stateful.UNIFORM),
        lambda: reference.FedAvg(D, RATE),
    ),
    "fed_prox": (
        lambda: _build(
            algorithms.build_fed_prox, mu=2.0, client_weighting=stateful.UNIFORM
        ),
        lambda: reference.FedProx(D, RATE, 2.0),
    ),
    "scaffold_I": (
        lambda: _build(algorithms.build_scaffold, N, option="I"),
        lambda: reference.Scaffold(D, CLIENTS, RATE, "I"),
    ),
    "scaffold_II": (
        lambda: _build(algorithms.build_scaffold, N, option="II"),
        lambda: reference.Scaffold(D, CLIENTS, RATE, "II"),
    ),
    "scaffold_m": (
        lambda: _build(algorithms.build_scaffold_m, N),
        lambda: reference.ScaffoldM(D, N, RATE),
    ),
    "fed_dyn": (
        lambda: _build(algorithms.build_fed_dyn, N, mu=0.2),
        lambda: reference.FedDyn(D, N, RATE, 0.2),
    ),
    "adabest": (
        lambda: _build(algorithms.build_adabest, mu=0.2, beta=0.8),
        lambda: reference.AdaBest(D, RATE, 0.2, 0.8),
    ),
}


def _rounds(paper):
    for cohort in COHORTS:
        paper.round(stateful.batches(CLIENTS, cohort))
    return paper.x if hasattr(paper, "x") else paper.theta


@pytest.mark.parametrize("name", tiers.first(["fed_prox", "scaffold_I"], list(METHODS)))
def test_gradient_and_correction_are_clipped_together(name, each_context):
    build, build_paper = METHODS[name]
    driver, paper = stateful.Driver(build(), CLIENTS), build_paper()
    paper.sgd.clipping_norm, paper.sgd.weight_decay = NORM, DECAY
    for cohort in COHORTS:
        driver.round(cohort)
    expected = _rounds(paper)
    np.testing.assert_allclose(driver.model, expected, atol=2e-6)
    # The norm was exceeded, and what is clipped is not what is decayed.
    assert paper.sgd.largest_norm > NORM
    unclipped = build_paper()
    unclipped.sgd.weight_decay = DECAY
    assert np.linalg.norm(_rounds(unclipped) - expected) > 1e-3


def test_a_step_worked_by_hand(each_context):
    # f(w) = (w - 4)²/2 of one client: g(0) = -4. In the second round SCAFFOLD's
    # correction c - c_i is 0 for one client, so two clients: -4 and +2.
    process = algorithms.build_scaffold(
        stateful.LinearRegression, 0.5, 2, gradient_clipping_norm=1.0
    )
    driver = stateful.Driver(
        process,
        {
            "one": stateful.axis_client(1.0, optimum=4.0),
            "other": stateful.axis_client(1.0, optimum=-2.0),
        },
    )
    driver.round(["one", "other"])
    # Steps of length 1: y = 0.5 and -0.5, c_i = -1 and 1, x = 0, c = 0.
    assert driver.model[0] == 0.0
    driver.round(["one"])
    # g - c_i + c = -4 + 1, clipped to -1: x = 0.5. Were g alone clipped, the
    # direction would be -1 + 1 = 0 and x would stay.
    np.testing.assert_allclose(driver.model[0], 0.5, rtol=1e-6)
