import numpy as np
import pytest

from tests.optimizers import reference
from tff_drift import optimizers


@pytest.mark.parametrize("beta_1", [0.0, 0.5])
@pytest.mark.parametrize("initial", [0.0, 0.3])
def test_three_steps(weights, gradients, take_steps, assert_close, beta_1, initial):
    optimizer = optimizers.build_adagrad(0.3, beta_1, 0.02, initial)
    assert_close(
        take_steps(optimizer, weights, gradients),
        reference.adaptive_steps(
            weights,
            gradients,
            lambda v, delta: v + delta**2,
            rate=0.3,
            beta_1=beta_1,
            tau=0.02,
            initial=initial,
        ),
    )


def test_defaults_are_the_large_cohort_papers(take_steps, assert_close):
    # By hand: v = 0.25, then 0.3125; no momentum, tau = 0.001.
    steps = take_steps(
        optimizers.build_adagrad(1.0), [np.array(0.0)], [[0.5], [np.array(-0.25)]]
    )
    first = -0.5 / (0.5 + 0.001)
    second = first + 0.25 / (np.sqrt(0.3125) + 0.001)
    assert_close(steps, [[np.array(first)], [np.array(second)]])


def test_steps_shrink_under_a_constant_gradient(take_steps):
    # With v = t g^2 the t-th step is 1 / sqrt(t) of the first.
    steps = take_steps(
        optimizers.build_adagrad(0.1, tau=1e-8), [np.array(0.0)], [[2.0]] * 9
    )
    moves = -np.diff([0.0, *(step[0] for step in steps)])
    np.testing.assert_allclose(moves, 0.1 / np.sqrt(np.arange(1, 10)), rtol=1e-5)
