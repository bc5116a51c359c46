import numpy as np
import pytest

from tests.optimizers import reference
from tff_drift import optimizers


@pytest.mark.parametrize(("beta_1", "beta_2"), [(0.9, 0.99), (0.0, 0.5)])
@pytest.mark.parametrize("initial", [0.0, 0.3])
def test_three_steps(
    weights, gradients, take_steps, assert_close, beta_1, beta_2, initial
):
    optimizer = optimizers.build_yogi(0.3, beta_1, beta_2, 0.02, initial)
    assert_close(
        take_steps(optimizer, weights, gradients),
        reference.adaptive_steps(
            weights,
            gradients,
            lambda v, delta: v - (1 - beta_2) * delta**2 * np.sign(v - delta**2),
            rate=0.3,
            beta_1=beta_1,
            tau=0.02,
            initial=initial,
        ),
    )


# All with delta = 0.5, beta_1 = 0, beta_2 = 0.75, tau = 1, so that v moves by
# 0.25 * 0.25 = 0.0625 towards 0.25. By hand:
@pytest.mark.parametrize(
    ("v_before", "v_after"),
    [
        # v > delta^2: v falls. A sign of delta - v rather than of delta^2 - v
        # (0.5 - 0.3125 > 0) raises it to 0.375, the opposite sign likewise.
        (0.3125, 0.25),
        # v < delta^2: v grows. The opposite sign lets it fall to 0.
        (0.0625, 0.125),
        # v = delta^2: nothing moves.
        (0.25, 0.25),
    ],
)
def test_v_moves_towards_the_squared_gradient(take_steps, v_before, v_after):
    optimizer = optimizers.build_yogi(1.0, 0.0, 0.75, 1.0, v_before)
    steps = take_steps(optimizer, [np.array(0.0)], [[0.5]])
    np.testing.assert_allclose(steps[0][0], -0.5 / (np.sqrt(v_after) + 1), rtol=1e-6)


def test_v_never_falls_below_zero(take_steps):
    # One large gradient, then small ones: v shrinks for ever and stays positive.
    optimizer = optimizers.build_yogi(0.1, beta_2=0.0, tau=1e-3)
    steps = take_steps(optimizer, [np.array(0.0)], [[1.0]] + [[0.3]] * 50)
    assert np.all(np.isfinite([step[0] for step in steps]))
