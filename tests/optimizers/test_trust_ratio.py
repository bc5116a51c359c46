import numpy as np
import pytest
import tensorflow as tf

from tff_drift.optimizers.trust_ratio import trust_ratio


# By hand: ||(3, 4)|| = 5 and ||(0, 2)|| = 2.
@pytest.mark.parametrize(
    ("x", "update", "epsilon", "expected"),
    [
        ([3.0, 4.0], [0.0, 2.0], 0.0, 2.5),
        ([3.0, 4.0], [0.0, 2.0], 0.5, 2.0),
        ([0.0, 0.0], [0.0, 2.0], 0.5, 1.0),
        ([3.0, 4.0], [0.0, 0.0], 0.5, 1.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0, 1.0),
    ],
)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_values(x, update, epsilon, expected, dtype):
    x, update, epsilon = (tf.constant(a, dtype) for a in (x, update, epsilon))
    ratio = trust_ratio(x, update, epsilon)
    assert ratio.dtype == dtype
    np.testing.assert_allclose(ratio, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_in_half_precision_squares_neither_overflow_nor_vanish(dtype):
    # Norms of 1,000 and of 0.1: squares of 1e6 and, entry by entry, 1e-8.
    x = tf.ones([1_000_000], dtype)
    update = tf.fill([1_000_000], tf.constant(1e-4, dtype))
    ratio = trust_ratio(x, update, tf.constant(0.0, dtype))
    assert ratio.dtype == dtype
    np.testing.assert_allclose(float(ratio), 10_000, rtol=1e-2)
