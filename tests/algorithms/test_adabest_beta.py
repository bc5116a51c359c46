"""The rules for AdaBest's β, on numbers chosen by hand or at random."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tff_drift.algorithms import adabest_beta
from tff_drift.algorithms.server_steps import Cohort

SQUARES = st.floats(0, 1e6, width=32)


def rule(beta="auto", decay=1.0, patience=1):
    return adabest_beta.build_beta_rule(beta, adabest_beta.PLATEAU, decay, patience)


def cohort(num_clients, mean_squared_drift):
    values = [*[num_clients] * 3, 1, 1, mean_squared_drift, 0.1]
    return Cohort(*map(tf.constant, map(float, values)), tf.constant(0))


def choose(beta_rule, rounds):
    """β after some rounds of (M, mean ‖g_i‖², ‖ḡ‖²)."""
    state = adabest_beta.initial_beta_state(beta_rule)
    for num_clients, mean_square, square in rounds:
        beta, state = adabest_beta.choose_beta(
            beta_rule,
            state,
            cohort(num_clients, mean_square),
            tf.constant(square, tf.float32),
        )
    return float(beta)


@hypothesis.given(
    st.lists(st.tuples(st.integers(1, 100), SQUARES, SQUARES), min_size=1, max_size=4)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_an_automatic_beta_is_never_out_of_range(rounds):
    assert 0 <= choose(rule(), rounds) <= np.float32(0.98)


def test_an_automatic_beta_trusts_agreement_and_large_cohorts():
    # Mean ‖g_i‖² = ‖ḡ‖²: the clients are alike.
    assert choose(rule(), [(10, 2.0, 2.0)]) == pytest.approx(0.98)
    # The same clients' variance, of which a larger cohort's mean has less.
    betas = [choose(rule(), [(m, 5.0, 2.0)]) for m in (3, 10, 100)]
    # V/M = 3/(M - 1) of a mean square of 5: R = 10/3, 15 and 165.
    np.testing.assert_allclose(betas, [7 / 13, 14 / 16, 0.98], rtol=1e-5)
    # Nothing in common: ‖ḡ‖² is what is left of the mean square by chance.
    betas = [choose(rule(), [(m, 4.0, 4.0 / m)]) for m in (1, 2, 5, 10)]
    expected = [(m - 1) / (m + 1) for m in (1, 2, 5, 10)]
    np.testing.assert_allclose(betas, expected, atol=1e-6)


def test_an_automatic_beta_bounds_what_chance_adds_up_to():
    rng = np.random.default_rng(3)
    clients = rng.standard_normal((4000, 5, 20))
    means = clients.mean(1)
    squares = (clients**2).sum(-1).mean(1)
    rounds = [
        (5, s, (m**2).sum()) for s, m in zip(squares[:60], means[:60], strict=True)
    ]
    beta = choose(rule(), rounds)
    # The exponential average is as random as that of R rounds, whose sum is as long as
    # one client's update.
    average, lengths = np.zeros(20), []
    for mean in means:
        average = beta * average + (1 - beta) * mean
        lengths.append((average**2).sum())
    span = (1 + beta) / (1 - beta)
    random_part = span**2 * np.mean(lengths[100:])
    assert random_part == pytest.approx(squares.mean(), rel=0.1)


@pytest.mark.parametrize(
    ("patience", "norms", "factors"),
    [
        # At once: any round that is not a new minimum by one per cent.
        (1, [4.0, 3.0, 2.99, 2.0, 2.5], [1, 1, 0.5, 0.5, 0.25]),
        # After a plateau the minimum is counted from its end.
        (2, [4.0, 5.0, 6.0, 5.5, 5.5, 5.0, 5.0, 5.0], [1, 1, *[0.5] * 5, 0.25]),
        (9, [1.0] * 8, [1] * 8),
    ],
)
def test_plateaus(patience, norms, factors):
    beta_rule = rule(0.9, decay=0.5, patience=patience)
    state = adabest_beta.initial_beta_state(beta_rule)
    found = []
    for norm in norms:
        state = adabest_beta.judge_plateau(beta_rule, state, tf.constant(norm))
        found.append(float(state["factor"]))
    assert found == factors


def test_without_decay_nothing_plateaus():
    beta_rule = rule(0.9)
    state = adabest_beta.initial_beta_state(beta_rule)
    for _ in range(3):
        state = adabest_beta.judge_plateau(beta_rule, state, tf.constant(1.0))
    assert float(state["factor"]) == 1.0
