import numpy as np
import pytest
import tensorflow as tf

from tff_drift.aggregators import structures


def test_global_norm_of_mixed_dtypes():
    value = {
        "a": tf.constant([[1.0, 2.0]], tf.float32),
        "b": [tf.constant(300.0, tf.float16), tf.constant([4.0], tf.float64)],
    }
    norm = structures.global_norm(value)
    assert norm.dtype == tf.float32
    assert norm.numpy() == pytest.approx(np.sqrt(1 + 4 + 300**2 + 16), rel=1e-6)


def test_global_norm_of_a_scalar():
    assert structures.global_norm(tf.constant(-2.5)).numpy() == 2.5


def test_global_norm_of_extremes():
    assert structures.global_norm([tf.constant([1.0, np.nan])]).numpy() is not None
    assert np.isnan(structures.global_norm([tf.constant([1.0, np.nan])]))
    assert np.isinf(structures.global_norm([tf.constant([1.0, -np.inf])]))
    assert np.isinf(structures.global_norm([tf.constant([1e20])]))
    assert structures.global_norm([tf.zeros([0]), tf.zeros([3])]).numpy() == 0


def test_scaled_multiplies_in_float32_at_least():
    value = (tf.constant(3e4, tf.float16), tf.constant(3.0, tf.float64))
    # As a float16 the factor would be 0.
    half, double = structures.scaled(value, tf.constant(1e-9))
    assert half.dtype == tf.float16
    assert half.numpy() == pytest.approx(3e-5, rel=1e-2)
    assert double.dtype == tf.float64
    assert double.numpy() == 3.0 * np.float64(np.float32(1e-9))


def test_selected_keeps_bits():
    denormal = np.array([1e-40, -0.0, np.nan], np.float32)
    other = np.array([1.0, np.inf, 2.0], np.float32)
    for condition, expected in [(True, denormal), (False, other)]:
        (chosen,) = structures.selected(
            tf.constant(condition), [tf.constant(denormal)], [tf.constant(other)]
        )
        assert chosen.numpy().tobytes() == expected.tobytes()
