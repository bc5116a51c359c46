"""TFF's optimizers as builders take them."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import optimizers

_TFF = tff.learning.optimizers
_SGDM = _TFF.build_sgdm(0.3, momentum=0.9)


def _state(optimizer):
    return optimizer.initialize([tf.TensorSpec([2, 3])])


def test_momentum_has_the_state_of_tffs():
    found, of_tff = _state(optimizers.as_optimizer("x", _SGDM)), _state(_SGDM)
    assert list(found) == list(of_tff)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(of_tff), strict=True):
        one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_momentum_in_float32_is_tffs_bit_for_bit(weights, gradients, take_steps):
    ours = take_steps(optimizers.as_optimizer("x", _SGDM), weights, gradients)
    of_tff = take_steps(_SGDM, weights, gradients)
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(of_tff), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("optimizer", [_TFF.build_sgdm(0.3), optimizers.build_adam(1)])
def test_others_stay_as_they_are(optimizer):
    assert optimizers.as_optimizer("x", optimizer) is optimizer


@pytest.mark.parametrize(
    "optimizer",
    [
        _TFF.build_rmsprop(0.1),
        _TFF.build_adamw(0.1),
        _TFF.build_adafactor(0.1),
        _TFF.schedule_learning_rate(_SGDM, lambda number: 0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_steps_that_are_of_float32_alone_are_refused_elsewhere(optimizer):
    specs = (tf.TensorSpec([2]), tf.TensorSpec([2], tf.float64))
    message = "^x must .*are float64, found.*whose step fails.*Give an optimizer of"
    with pytest.raises(TypeError, match=message) as error:
        optimizers.check_dtypes("x", optimizer, specs)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    optimizers.check_dtypes("x", optimizer, specs[:1])


@pytest.mark.parametrize("dtype", [tf.float16, tf.float64])
@pytest.mark.parametrize(
    "optimizer",
    [
        _TFF.build_adagrad(0.1),
        _TFF.build_adam(0.1),
        _TFF.build_yogi(0.1),
        optimizers.as_optimizer("x", _SGDM),
        optimizers.build_scheduled(_SGDM, optimizers.inverse_sqrt(3)),
        optimizers.build_lamb(0.1),
        optimizers.build_normalized_sgd(0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_steps_in_any_dtype_are_not(optimizer, dtype):
    optimizers.check_dtypes("x", optimizer, [tf.TensorSpec([2], dtype)])
