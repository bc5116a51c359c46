"""Norms, scaling and flattening."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import tensors


def test_global_norm_of_mixed_dtypes():
    value = {
        "a": tf.constant([[1.0, 2.0]], tf.float32),
        "b": [tf.constant(300.0, tf.float16), tf.constant([4.0], tf.float64)],
    }
    norm = tensors.global_norm(value)
    assert norm.dtype == tf.float32
    assert norm.numpy() == pytest.approx(np.sqrt(1 + 4 + 300**2 + 16), rel=1e-6)


def test_global_norm_of_a_scalar():
    assert tensors.global_norm(tf.constant(-2.5)).numpy() == 2.5


def test_global_norm_of_extremes():
    assert tensors.global_norm([tf.constant([1.0, np.nan])]).numpy() is not None
    assert np.isnan(tensors.global_norm([tf.constant([1.0, np.nan])]))
    assert np.isinf(tensors.global_norm([tf.constant([1.0, -np.inf])]))
    assert np.isinf(tensors.global_norm([tf.constant([1e20])]))
    assert tensors.global_norm([tf.zeros([0]), tf.zeros([3])]).numpy() == 0


def test_scaled_multiplies_in_float32_at_least():
    value = (tf.constant(3e4, tf.float16), tf.constant(3.0, tf.float64))
    # As a float16 the factor would be 0.
    half, double = tensors.scaled(value, tf.constant(1e-9))
    assert half.dtype == tf.float16
    assert half.numpy() == pytest.approx(3e-5, rel=1e-2)
    assert double.dtype == tf.float64
    assert double.numpy() == 3.0 * np.float64(np.float32(1e-9))


def test_selected_keeps_bits():
    denormal = np.array([1e-40, -0.0, np.nan], np.float32)
    other = np.array([1.0, np.inf, 2.0], np.float32)
    for condition, expected in [(True, denormal), (False, other)]:
        (chosen,) = tensors.selected(
            tf.constant(condition), [tf.constant(denormal)], [tf.constant(other)]
        )
        assert chosen.numpy().tobytes() == expected.tobytes()


def test_clipped_scales_what_is_longer_than_the_norm():
    gradients = (tf.constant([3.0], tf.float64), tf.constant([[4.0]], tf.float32))
    first, second = tensors.clipped(gradients, 1.0)
    assert (first.dtype, second.dtype) == (tf.float64, tf.float32)
    np.testing.assert_allclose([first[0], second[0, 0]], [0.6, 0.8], rtol=1e-6)
    for found, given in zip(tensors.clipped(gradients, 8.0), gradients, strict=True):
        np.testing.assert_array_equal(found, given)
    # The squares of float16 would overflow.
    (half,) = tensors.clipped((tf.constant([3e4, 4e4], tf.float16),), 5.0)
    np.testing.assert_allclose(half, [3.0, 4.0], rtol=1e-3)


@pytest.mark.parametrize("norm", [1.0, 8.0])
def test_the_derivative_of_clipping_is_that_of_tensorflow(norm):
    gradients = (tf.constant([3.0, 0.5]), tf.constant([[-4.0]]))
    vector = (tf.constant([0.2, -1.0]), tf.constant([[0.7]]))
    with tf.GradientTape() as tape:
        tape.watch(gradients)
        clipped = tensors.clipped(gradients, norm)
    expected = tape.gradient(clipped, gradients, output_gradients=vector)
    product = tensors.clipped_product(gradients, norm, vector)
    for found, wanted in zip(product, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    zeros = tuple(tf.zeros_like(gradient) for gradient in gradients)
    for found, wanted in zip(
        tensors.clipped_product(zeros, norm, vector), vector, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_entries_come_in_order_and_go_back():
    arrays = [
        np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        np.float32(5.0),
        np.zeros([0, 3], np.float32),
        np.array([[[6.0]]], np.float32),
    ]
    parts = tuple(tf.constant(array) for array in arrays)
    vector = tensors.to_vector(parts)
    np.testing.assert_array_equal(vector, [1, 2, 3, 4, 5, 6])
    for tensor, array in zip(tensors.from_vector(vector, parts), arrays, strict=True):
        assert tensor.shape == array.shape
        np.testing.assert_array_equal(tensor, array)


def test_the_type_has_the_entries_of_all_weights():
    weights = tff.to_type([(np.float64, [2, 3]), (np.float64, [4]), np.float64])
    assert str(tensors.vector_type(weights)) == "float64[11]"
