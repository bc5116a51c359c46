import numpy as np
import pytest

from tff_drift import optimizers


def _reference(
    weights, gradients, lr, beta_1, beta_2, tau, weight_decay, epsilon, initial
):
    x = [w.copy() for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.full_like(w, initial) for w in weights]
    trajectory = []
    for step in gradients:
        for i, delta in enumerate(step):
            m[i] = beta_1 * m[i] + (1 - beta_1) * delta
            v[i] = beta_2 * v[i] + (1 - beta_2) * delta**2
            u = m[i] / (np.sqrt(v[i]) + tau) + weight_decay * x[i]
            x_norm = np.sqrt(np.sum(x[i] ** 2))
            u_norm = np.sqrt(np.sum(u**2))
            x[i] = x[i] - lr * x_norm / (u_norm + epsilon) * u
        trajectory.append(list(x))
    return trajectory


@pytest.mark.parametrize(
    ("beta_1", "beta_2", "initial"), [(0.9, 0.99, 0.0), (0.0, 0.5, 0.3)]
)
@pytest.mark.parametrize(("weight_decay", "epsilon"), [(0.0, 0.0), (0.1, 0.5)])
def test_three_steps(
    weights,
    gradients,
    take_steps,
    assert_close,
    beta_1,
    beta_2,
    initial,
    weight_decay,
    epsilon,
):
    arguments = (0.3, beta_1, beta_2, 0.02, weight_decay, epsilon, initial)
    assert_close(
        take_steps(optimizers.build_lamb(*arguments), weights, gradients),
        _reference(weights, gradients, *arguments),
    )


def test_no_bias_correction(take_steps):
    # By hand, from zero weights, where the ratio is 1: m = 0.5 * 2 = 1 and
    # v = 0.04 * 4 = 0.16, so the step is 1 / (0.4 + 0.1) = 2. Corrected as in the
    # paper's Algorithm 2 it is 2 / (2 + 0.1).
    optimizer = optimizers.build_lamb(1.0, 0.5, 0.96, 0.1)
    steps = take_steps(optimizer, [np.array(0.0)], [[2.0]])
    np.testing.assert_allclose(steps[0][0], -2.0, rtol=1e-5)


def test_a_layers_gradient_moves_that_layer_alone(weights, gradients, take_steps):
    optimizer = optimizers.build_lamb(0.3)
    plain = take_steps(optimizer, weights, gradients)
    scaled = take_steps(
        optimizer, weights, [[100 * step[0], *step[1:]] for step in gradients]
    )
    for before, after in zip(plain, scaled, strict=True):
        assert np.any(before[0] != after[0])
        np.testing.assert_array_equal(before[1], after[1])
        np.testing.assert_array_equal(before[2], after[2])


def test_every_layer_moves_by_its_share_of_its_norm(weights, gradients, take_steps):
    before = weights
    for after in take_steps(optimizers.build_lamb(0.25), weights, gradients):
        for old, new in zip(before, after, strict=True):
            np.testing.assert_allclose(
                np.linalg.norm(new - old), 0.25 * np.linalg.norm(old), rtol=1e-5
            )
        before = after


def test_zero_gradient_moves_nothing(weights, take_steps):
    zeros = [np.zeros_like(layer) for layer in weights]
    steps = take_steps(optimizers.build_lamb(1.0), weights, [zeros])
    for before, after in zip(weights, steps[0], strict=True):
        np.testing.assert_array_equal(before, after)


def test_bias_correction(take_steps):
    # By hand: the moments of a gradient (3, 4) without bias are (3, 4) and (9, 16), so
    # u = (3 / (3 + 1), 4 / (4 + 1)), and x moves by rate ‖x‖ / ‖u‖ u.
    optimizer = optimizers.build_lamb(0.1, 0.9, 0.99, 1.0, bias_correction=True)
    x, u = np.array([6.0, 8.0]), np.array([0.75, 0.8])
    (step,) = take_steps(optimizer, [x], [[np.array([3.0, 4.0])]])
    expected = x - 0.1 * 10 / np.linalg.norm(u) * u
    np.testing.assert_allclose(step[0], expected, rtol=1e-4)
