"""Arrays that tensors share the memory of, and those that are copied."""

import numpy as np
import pytest
import tensorflow as tf

from tff_drift import aligned_memory
from tff_drift.execution.local import phases, tensors

SIZE = 1 << 16


def _zeros():
    array = aligned_memory.aligned_bytes(4 * SIZE).view(np.float32)
    array[:] = 0
    return array


@pytest.mark.parametrize("kind", ["array", "view", "bytearray"])
def test_what_may_be_written_to_is_copied(kind):
    base = _zeros()
    if kind == "bytearray":
        base = np.frombuffer(bytearray(4 * SIZE), np.float32)
    given = base if kind == "array" else base.view()
    if kind != "array":
        given.flags.writeable = False
    tensor = tensors.from_array(given)
    base[:] = 7
    np.testing.assert_array_equal(tensor, np.zeros(SIZE))


def test_what_nobody_can_write_to_is_not_copied():
    array = aligned_memory.make_read_only(_zeros())
    assert not array.base.flags.writeable
    tensor = tensors.from_array(array)
    assert np.shares_memory(np.asarray(tensor), array)
    again = tensors.from_array(np.asarray(tensor))
    assert np.shares_memory(np.asarray(again), array)


# TensorFlow takes rows of 64 bytes apart without a copy, those of 60 it copies.
@pytest.mark.parametrize("length", [15, 16])
def test_a_row_that_is_kept_holds_no_memory_of_its_stack(length):
    array = np.arange(3 * length, dtype=np.float32).reshape(3, length)
    stack = tf.constant(array)
    rows = [np.asarray(row) for row in phases._rows(stack)]
    assert not any(np.may_share_memory(row, np.asarray(stack)) for row in rows)
    np.testing.assert_array_equal(rows, array)
