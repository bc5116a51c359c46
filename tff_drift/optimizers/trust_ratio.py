"""The layer-wise trust ratio of LARS and LAMB."""

from __future__ import annotations

import tensorflow as tf

from tff_drift.tensors import wide


def trust_ratio(x: tf.Tensor, update: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
    """Returns ||x|| / (||update|| + epsilon) for one layer.

    Where `x` or `update` is zero the ratio is 1, as in the published
    implementations: a layer of zeros (a fresh bias) would otherwise never move,
    and 0 / 0 would appear where `epsilon` is 0.

    Args:
      x: The layer's weight tensor.
      update: What the optimizer would subtract from it, of the same shape.
      epsilon: A scalar of at least 0 of the same dtype.

    Returns:
      A scalar of the dtype of `x`.
    """
    x_norm, update_norm = _norm(x), _norm(update)
    defined = tf.logical_and(x_norm > 0, update_norm > 0)
    ratio = x_norm / (update_norm + tf.cast(epsilon, x_norm.dtype))
    return tf.cast(tf.where(defined, ratio, tf.ones_like(x_norm)), x.dtype)


def _norm(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the L2 norm: half precision has no place for sums of squares."""
    return tf.norm(tf.cast(tensor, wide(tensor.dtype)))
