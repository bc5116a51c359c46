import numpy as np
import pytest
import tensorflow as tf

from tff_drift import optimizers


def _distance(before, after):
    return np.sqrt(
        sum(
            np.sum((np.float64(b) - a) ** 2) for b, a in zip(before, after, strict=True)
        )
    )


def test_three_steps(weights, gradients, take_steps, assert_close):
    x, expected = weights, []
    for step in gradients:
        norm = np.sqrt(sum(np.sum(layer**2) for layer in step))
        x = [w - 0.3 * layer / norm for w, layer in zip(x, step, strict=True)]
        expected.append(x)
    assert_close(
        take_steps(optimizers.build_normalized_sgd(0.3), weights, gradients), expected
    )


# 1e-30 and 1e30 have squares outside float32's range.
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_every_step_has_the_length_of_the_rate(gradients, take_steps, scale):
    optimizer = optimizers.build_normalized_sgd(0.125)
    zeros = [np.zeros_like(layer) for layer in gradients[0]]
    for step in gradients:
        (after,) = take_steps(optimizer, zeros, [[scale * layer for layer in step]])
        np.testing.assert_allclose(_distance(zeros, after), 0.125, rtol=1e-6)


def test_the_norm_is_over_all_layers(take_steps):
    # By hand: ||(3, 0, 4)|| = 5 over the three tensors.
    steps = take_steps(
        optimizers.build_normalized_sgd(1.0),
        [np.zeros(1)] * 3,
        [list(np.array([[3.0], [0.0], [4.0]]))],
    )
    np.testing.assert_allclose(np.ravel(steps[0]), [-0.6, 0.0, -0.8], rtol=1e-6)


def test_layers_of_different_dtypes():
    # By hand as above, with a float64 and a float32 layer.
    optimizer = optimizers.build_normalized_sgd(1.0)
    weights = (tf.zeros([1], tf.float64), tf.zeros([1], tf.float32))
    gradients = (tf.constant([3.0], tf.float64), tf.constant([4.0]))
    state = optimizer.initialize(
        tf.nest.map_structure(tf.type_spec_from_value, weights)
    )
    _, (first, second) = optimizer.next(state, weights, gradients)
    assert (first.dtype, second.dtype) == (tf.float64, tf.float32)
    np.testing.assert_allclose([first[0], second[0]], [-0.6, -0.8], rtol=1e-6)


def test_zero_gradient_moves_nothing(weights, take_steps):
    zeros = [np.zeros_like(layer) for layer in weights]
    steps = take_steps(optimizers.build_normalized_sgd(1.0), weights, [zeros])
    for before, after in zip(weights, steps[0], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_shows_in_the_weights(weights, take_steps, bad):
    # A finalizer refuses such a step; it must not pass for an ordinary one.
    gradient = [np.zeros_like(layer) for layer in weights]
    gradient[1][0] = bad
    steps = take_steps(optimizers.build_normalized_sgd(1.0), weights, [gradient])
    assert not np.all(np.isfinite(steps[0][1]))


def test_an_integer_rate_can_be_set_to_a_fraction():
    optimizer = optimizers.build_normalized_sgd(1)
    state = optimizer.initialize(tf.TensorSpec([], tf.float32))
    assert isinstance(optimizer.get_hparams(state)["learning_rate"], float)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_step_of_many_entries_in_half_precision_has_its_length(dtype):
    # Squares of ones add up to more than float16 has.
    weights = (tf.zeros([70_000], dtype),)
    optimizer = optimizers.build_normalized_sgd(1.0)
    state = optimizer.initialize(
        tf.nest.map_structure(tf.type_spec_from_value, weights)
    )
    _, (moved,) = optimizer.next(state, weights, (tf.ones([70_000], dtype),))
    assert np.linalg.norm(tf.cast(moved, tf.float64)) == pytest.approx(1, rel=5e-3)
