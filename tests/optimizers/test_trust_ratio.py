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
