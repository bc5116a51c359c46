"""TensorList: a name for lists of them, and small ones that are asked for often."""

from __future__ import annotations

import functools

import tensorflow as tf

TensorList = list[tf.Tensor]


# Making a small tensor takes as long as a small operation, and the same numbers are
# asked for in every round.
@functools.lru_cache(maxsize=256)
def integer(value: int) -> tf.Tensor:
    """Returns an `int32` scalar."""
    with tf.device("/CPU:0"):
        return tf.constant(value, tf.int32)


@functools.lru_cache(maxsize=256)
def integers_below(end: int) -> tf.Tensor:
    """Returns 0, 1, ..., `end` - 1 as `int32`."""
    with tf.device("/CPU:0"):
        return tf.range(end)
