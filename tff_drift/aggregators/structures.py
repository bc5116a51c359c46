"""Arithmetic on structures of float tensors whose dtypes may differ."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def global_norm(value: Any) -> tf.Tensor:
    """Returns the L2 norm over all tensors of `value` taken together.

    The squares are summed in float32, whatever the dtypes: those of float16
    would overflow at entries of 256. A norm above about 1.8e19 is infinite, and
    NaN anywhere gives NaN.

    Args:
      value: A structure of float tensors.

    Returns:
      A float32 scalar.
    """
    return tf.linalg.global_norm(
        [tf.cast(tensor, tf.float32) for tensor in tf.nest.flatten(value)]
    )


def scaled(value: Any, factor: tf.Tensor) -> Any:
    """Returns `value` times `factor`, in the dtypes of `value`.

    Args:
      value: A structure of float tensors.
      factor: A float32 scalar. It may be too small for float16: the products are
        computed in float32 at least.

    Returns:
      A structure like `value`.
    """

    def times_factor(tensor: tf.Tensor) -> tf.Tensor:
        dtype = tf.float64 if tensor.dtype == tf.float64 else tf.float32
        product = tf.cast(tensor, dtype) * tf.cast(factor, dtype)
        return tf.cast(product, tensor.dtype)

    return tf.nest.map_structure(times_factor, value)


def selected(condition: tf.Tensor, if_true: Any, if_false: Any) -> Any:
    """Returns one of two structures, its bits unchanged.

    Multiplying by 1 or by 0 instead would flush denormal numbers to zero, and
    turn infinity into NaN.

    Args:
      condition: A boolean scalar.
      if_true: A structure of tensors.
      if_false: A structure of tensors like `if_true`.

    Returns:
      `if_true` where `condition` holds, else `if_false`.
    """
    return tf.nest.map_structure(
        lambda x, y: tf.where(condition, x, y), if_true, if_false
    )
