import numpy as np
import pytest
import tensorflow_federated as tff

from tests.optimizers import reference
from tff_drift import optimizers


@pytest.mark.parametrize(("beta_1", "beta_2"), [(0.9, 0.99), (0.0, 0.5)])
@pytest.mark.parametrize("initial", [0.0, 0.3])
def test_three_steps(
    weights, gradients, take_steps, assert_close, beta_1, beta_2, initial
):
    optimizer = optimizers.build_adam(0.3, beta_1, beta_2, 0.02, initial)
    assert_close(
        take_steps(optimizer, weights, gradients),
        reference.adaptive_steps(
            weights,
            gradients,
            lambda v, delta: beta_2 * v + (1 - beta_2) * delta**2,
            rate=0.3,
            beta_1=beta_1,
            tau=0.02,
            initial=initial,
        ),
    )


def test_no_bias_correction(take_steps):
    # By hand: m = 0.5 * 2 = 1 and v = 0.04 * 4 = 0.16, so the step is
    # 1 / (0.4 + 0.1) = 2. Corrected as in Kingma and Ba it is 2 / (2 + 0.1), and
    # as TFF does it, 2 * sqrt(0.04) / 0.5 = 0.8.
    ours = optimizers.build_adam(1.0, 0.5, 0.96, 0.1)
    tffs = tff.learning.optimizers.build_adam(1.0, 0.5, 0.96, 0.1)
    step, tff_step = (
        take_steps(optimizer, [np.array(0.0)], [[2.0]])[0][0]
        for optimizer in (ours, tffs)
    )
    np.testing.assert_allclose(step, -2.0, rtol=1e-5)
    np.testing.assert_allclose(tff_step, -0.8, rtol=1e-5)


def test_tau_is_outside_the_root(take_steps):
    # By hand, beta_1 = 0 and beta_2 = 0: 3 / (sqrt(9) + 1) = 0.75. Inside the
    # root it is 3 / sqrt(10) = 0.949.
    steps = take_steps(
        optimizers.build_adam(1.0, 0.0, 0.0, tau=1.0), [np.array(0.0)], [[3.0]]
    )
    np.testing.assert_allclose(steps[0][0], -0.75, rtol=1e-6)


def test_initial_accumulator(take_steps):
    # By hand: v = 0.99 * 4 + 0.01 * 4 = 4 and m = 0.1 * 2: 0.2 / (2 + 0.5) = 0.08.
    optimizer = optimizers.build_adam(1.0, tau=0.5, initial_accumulator=4.0)
    steps = take_steps(optimizer, [np.array(0.0)], [[2.0]])
    np.testing.assert_allclose(steps[0][0], -0.08, rtol=1e-5)


def test_bias_correction(take_steps):
    # By hand, as Kingma and Ba: step 1 has m = 1, v = 0.16, and 2 / (2 + 0.1). Step 2
    # has m = 0.5 + 2 = 2.5, divided by 1 - 0.25, and v = 0.1536 + 0.64 = 0.7936,
    # divided by 1 - 0.9216: 3.333 / (3.182 + 0.1) = 1.0158.
    optimizer = optimizers.build_adam(1.0, 0.5, 0.96, 0.1, bias_correction=True)
    first, second = take_steps(optimizer, [np.array(0.0)], [[2.0], [4.0]])
    np.testing.assert_allclose(first[0], -2 / 2.1, rtol=1e-5)
    np.testing.assert_allclose(second[0] - first[0], -1.01577, rtol=1e-4)


def test_bias_correction_is_for_moments_that_start_at_zero():
    with pytest.raises(ValueError, match="initial_accumulator must be 0 with bias_cor"):
        optimizers.build_adam(1.0, initial_accumulator=0.1, bias_correction=True)
