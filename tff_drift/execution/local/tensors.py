"""Tensors: lists of them, of arrays, and small ones that are asked for often."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import aligned_memory

TensorList = list[tf.Tensor]

# From this size on, TensorFlow's usual two copies of an array take longer than going
# around them.
_LARGE_ARRAY_BYTES = 2**16
# Python 3.11 and 3.12 give every object of a class like an eager tensor's a block of
# memory for its attributes. TensorFlow 2.14 does not give it back when a tensor ends:
# 16 bytes of each, megabytes in thousands of rounds.
_BLOCKS_OF_ATTRIBUTES = (3, 11) <= sys.version_info < (3, 13)


def give_back_attributes(tensors: Iterable[tf.Tensor]) -> None:
    """Frees the memory that Python has for attributes of new tensors, if it has any.

    They have none yet, and may still be given some.
    """
    if _BLOCKS_OF_ATTRIBUTES:
        for tensor in tensors:
            del tensor.__dict__


def from_array(array: np.ndarray) -> tf.Tensor:
    """Returns an array of numbers as a tensor, with one copy at most."""
    if array.nbytes < _LARGE_ARRAY_BYTES:
        tensor = tf.constant(array)
    else:
        # `tf.constant` copies twice. An operation copies once, and not at all where the
        # memory starts at a boundary of TensorFlow's; then no one else may change it.
        if _may_be_written(array):
            memory = aligned_memory.aligned_bytes(array.nbytes)
            aligned = memory.view(array.dtype).reshape(array.shape)
            aligned[...] = array
            array = aligned
        tensor = tf.raw_ops.Identity(input=array)
    give_back_attributes([tensor])
    return tensor


def _may_be_written(array: np.ndarray) -> bool:
    """Whether an array, or one that it is a view of, can be written to."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return True
        owner = owner.base
    return isinstance(owner, bytearray) or (
        isinstance(owner, memoryview) and not owner.readonly
    )


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


def stacked_spec(spec: tf.TensorSpec, num_clients: int | None) -> tf.TensorSpec:
    """Returns the spec of many clients' tensors."""
    shape = tf.TensorShape([num_clients]).concatenate(spec.shape)
    return tf.TensorSpec(shape, spec.dtype)


def num_bytes(specs: Iterable[tf.TensorSpec | tf.Tensor]) -> int:
    """Returns the bytes of tensors, of sizes that are not known as if they were 1."""
    return sum((spec.shape.num_elements() or 1) * spec.dtype.size for spec in specs)
