import numpy as np
import pytest
import tensorflow as tf

_WEIGHTS = [
    np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]]),
    np.array([0.5, -0.5, 2.0]),
    np.array(-1.25),
]
# Signs change, sizes differ by orders of magnitude, and one entry is always 0.
_GRADIENTS = [
    [
        np.array([[0.1, -0.2, 3.0], [0.0, 0.001, -1.0]]),
        np.array([0.5, 0.02, -0.3]),
        np.array(0.4),
    ],
    [
        np.array([[-0.1, 0.4, 2.0], [0.0, 0.002, 0.5]]),
        np.array([-0.25, 0.01, -0.6]),
        np.array(-0.8),
    ],
    [
        np.array([[0.3, 0.1, -1.0], [0.0, -0.01, 0.25]]),
        np.array([0.125, 0.04, 0.9]),
        np.array(0.2),
    ],
]


def _as_tensors(structure, dtype):
    return tf.nest.map_structure(lambda a: tf.constant(a, dtype), structure)


@pytest.fixture
def weights():
    """Weights of three layers, as NumPy arrays."""
    return [layer.copy() for layer in _WEIGHTS]


@pytest.fixture
def gradients():
    """The gradients of three steps for `weights`, as NumPy arrays."""
    return [[layer.copy() for layer in step] for step in _GRADIENTS]


@pytest.fixture
def take_steps():
    """Returns a function that gives the weights after each step, as arrays."""

    def run(optimizer, weights, gradients, dtype=tf.float32):
        x = _as_tensors(weights, dtype)
        state = optimizer.initialize(
            tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), x)
        )
        trajectory = []
        for gradient in gradients:
            state, x = optimizer.next(state, x, _as_tensors(gradient, dtype))
            trajectory.append(tf.nest.map_structure(lambda t: t.numpy(), x))
        return trajectory

    return run


@pytest.fixture
def assert_close():
    """Asserts that two structures of arrays agree to float32."""

    def check(actual, expected):
        tf.nest.assert_same_structure(actual, expected)
        for a, e in zip(
            tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True
        ):
            np.testing.assert_allclose(a, e, rtol=2e-6, atol=1e-6)

    return check
