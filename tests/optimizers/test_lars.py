import numpy as np
import pytest

from tff_drift import optimizers


def _reference(weights, gradients, lr, momentum, weight_decay, epsilon):
    x = [w.copy() for w in weights]
    m = [np.zeros_like(w) for w in weights]
    trajectory = []
    for step in gradients:
        for i, delta in enumerate(step):
            m[i] = momentum * m[i] + (1 - momentum) * (delta + weight_decay * x[i])
            x_norm = np.sqrt(np.sum(x[i] ** 2))
            m_norm = np.sqrt(np.sum(m[i] ** 2))
            x[i] = x[i] - lr * x_norm / (m_norm + epsilon) * m[i]
        trajectory.append(list(x))
    return trajectory


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_three_steps(
    weights, gradients, take_steps, assert_close, momentum, weight_decay, epsilon
):
    optimizer = optimizers.build_lars(0.3, momentum, weight_decay, epsilon)
    assert_close(
        take_steps(optimizer, weights, gradients),
        _reference(weights, gradients, 0.3, momentum, weight_decay, epsilon),
    )


def test_defaults_are_the_large_cohort_papers(take_steps):
    # By hand: m = (1 - 0.9) (3, 4), of norm 0.5; ||x|| = 2; no weight decay.
    steps = take_steps(
        optimizers.build_lars(1.0), [np.array([2.0, 0.0])], [[np.array([3.0, 4.0])]]
    )
    ratio = 2 / (0.5 + 0.001)
    np.testing.assert_allclose(steps[0][0], [2 - ratio * 0.3, -ratio * 0.4], rtol=1e-5)


def test_a_layers_gradient_moves_that_layer_alone(weights, gradients, take_steps):
    optimizer = optimizers.build_lars(0.3)
    plain = take_steps(optimizer, weights, gradients)
    scaled = take_steps(
        optimizer, weights, [[100 * step[0], *step[1:]] for step in gradients]
    )
    for before, after in zip(plain, scaled, strict=True):
        assert np.any(before[0] != after[0])
        np.testing.assert_array_equal(before[1], after[1])
        np.testing.assert_array_equal(before[2], after[2])


def test_every_layer_moves_by_its_share_of_its_norm(weights, gradients, take_steps):
    optimizer = optimizers.build_lars(0.25, epsilon=0.0)
    before = weights
    for after in take_steps(optimizer, weights, gradients):
        for old, new in zip(before, after, strict=True):
            np.testing.assert_allclose(
                np.linalg.norm(new - old), 0.25 * np.linalg.norm(old), rtol=1e-5
            )
        before = after


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_zero_weights_move_with_ratio_one(take_steps, epsilon):
    # By hand: m = 0.1 (3, 4), and the ratio is 1 whatever epsilon is.
    steps = take_steps(
        optimizers.build_lars(1.0, epsilon=epsilon),
        [np.zeros(2)],
        [[np.array([3.0, 4.0])]],
    )
    np.testing.assert_allclose(steps[0][0], [-0.3, -0.4], rtol=1e-5)


def test_zero_gradient_moves_nothing(weights, take_steps):
    zeros = [np.zeros_like(layer) for layer in weights]
    steps = take_steps(optimizers.build_lars(1.0, epsilon=0.0), weights, [zeros])
    for before, after in zip(weights, steps[0], strict=True):
        np.testing.assert_array_equal(before, after)
