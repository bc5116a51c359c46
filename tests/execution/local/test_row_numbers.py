"""Rows of tables that batches name in any way, with NumPy as the oracle."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import call, training

ON_ROWS = "; of tables, on the rows that batches name"
SIZES = [3, 3, 3, 2, 3, 1]


def _training(casts, table_shape, *, scaled=False, summed=True):
    """Returns a computation of tables' changes: how often each row was named, halved.

    Args:
      casts: The dtypes of the numbers in batches and of what becomes of them.
      table_shape: The table's shape.
      scaled: Whether each client scales its change by a number of its own.
      summed: Whether the changes are summed.
    """
    data_type = tff.SequenceType(tff.TensorType(casts[0].as_numpy_dtype, [None, 3]))
    table_type = tff.TensorType(np.float32, table_shape)

    @tff.tensorflow.computation(data_type, table_type, np.float32)
    def train(data, table, scale):
        def step(table, numbers):
            for dtype in casts[1:]:
                numbers = tf.cast(numbers, dtype)
            with tf.GradientTape() as tape:
                tape.watch(table)
                loss = tf.reduce_sum(tf.gather(table, numbers))
            return table - 0.5 * tf.convert_to_tensor(tape.gradient(loss, table))

        change = table - data.reduce(table, step)
        return change * scale if scaled else change

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(table_type, tff.SERVER),
        tff.FederatedType(np.float32, tff.CLIENTS),
    )
    def run(data, table, scale):
        table = tff.federated_broadcast(table)
        changes = tff.federated_map(train, (data, table, scale))
        return tff.federated_sum(changes) if summed else changes

    return run


def _data(casts, choices):
    """Clients of unequal sizes, whose numbers are some of `choices`."""
    random = np.random.default_rng(2)
    dtype = casts[0].as_numpy_dtype
    return [
        [random.choice(choices, (4, 3)).astype(dtype) for _ in range(size)]
        for size in SIZES
    ]


def _expected(data, casts, table, scales):
    """Returns the change of each client."""
    changes = []
    for batches, scale in zip(data, scales, strict=True):
        count = np.zeros(len(table), np.float32)
        for numbers in batches:
            for dtype in casts[1:]:
                numbers = numbers.astype(dtype.as_numpy_dtype)
            np.add.at(count, numbers.astype(np.int64), 1)
        new = table - 0.5 * count.reshape([-1] + [1] * (table.ndim - 1))
        changes.append((table - new) * np.float32(scale))
    return changes


def _check(context, casts, choices, table, *, scales=None, summed=True):
    """Compares a run with NumPy; returns what `explain` says of it."""
    computation = _training(
        casts, table.shape, scaled=scales is not None, summed=summed
    )
    data = _data(casts, choices)
    scales = scales or [1.0] * len(data)
    told = training(context, computation, data, table, scales)[0]
    with np.errstate(invalid="ignore"):
        expected = _expected(data, casts, table, scales)
        expected = sum(expected) if summed else expected
    actual = call(context, computation, data, table, scales)
    np.testing.assert_array_equal(actual, expected)
    assert told.startswith("vectorized")
    return told


def _table(rows):
    """A table that is large enough for rows, of whole numbers."""
    columns = max(1, 2**14 // rows + 1)
    return (np.arange(rows * columns, dtype=np.float32) % 97).reshape(rows, columns)


@pytest.mark.parametrize(
    ("casts", "rows"),
    tiers.first(
        [3, 6],
        [
            ([tf.int8, tf.int32], 5_000),
            ([tf.uint8, tf.int32], 5_000),
            ([tf.int16, tf.int64], 5_000),
            # What is below 0 is above all rows then.
            ([tf.int8, tf.uint8, tf.int32], 128),
            ([tf.int32, tf.uint32, tf.int64], 5_000),
            ([tf.uint64, tf.int64], 5_000),
            ([tf.int32, tf.float32, tf.int32], 5_000),
            ([tf.int64, tf.float32, tf.int32], 5_000),
            ([tf.int32, tf.float16, tf.int32], 2_048),
            ([tf.int32, tf.bfloat16, tf.int64], 256),
        ],
    ),
    ids=str,
)
def test_casts_that_keep_numbers(context, casts, rows):
    choices = np.append(np.arange(0, min(rows, 128), 3), min(rows, 128) - 1)
    told = _check(context, casts, choices, _table(rows))
    assert told.endswith(ON_ROWS)


@pytest.mark.parametrize(
    ("casts", "rows", "choices"),
    tiers.first(
        [0, 3, 10],
        [
            ([tf.int8, tf.uint8, tf.int32], 5_000, [-1, -7, 3]),
            ([tf.int8, tf.uint8, tf.int32], 129, [-128, -128, 3]),
            ([tf.int8, tf.uint16, tf.int32], 65_536, [-1, 3]),
            ([tf.int32, tf.int16, tf.int32], 5_000, [2**16 + 5, 5, 8]),
            ([tf.int32, tf.uint8, tf.int32], 5_000, [4_096, 4_097, 300]),
            ([tf.uint16, tf.int8, tf.int32], 5_000, [256, 257, 9]),
            ([tf.int64, tf.int32], 5_000, [2**32 + 3, 3, 4]),
            ([tf.int32, tf.float16, tf.int32], 2_049, [2_047, 2_046, 5]),
            ([tf.int32, tf.float16, tf.int32], 5_000, [2_049, 4_001, 5]),
            ([tf.int32, tf.bfloat16, tf.int32], 5_000, [257, 4_999, 5]),
            ([tf.int32, tf.float32, tf.float16, tf.int32], 5_000, [2_049, 5]),
            ([tf.int32, tf.float32, tf.uint8, tf.int32], 5_000, [255, 5]),
            ([tf.int32, tf.bool, tf.int32], 5_000, [0, 7, 9]),
            ([tf.float32, tf.int32], 5_000, [2.75, 7.0, 0.5]),
        ],
    ),
    ids=str,
)
def test_casts_that_may_change_numbers(context, casts, rows, choices):
    told = _check(context, casts, np.array(choices), _table(rows))
    assert not told.endswith(ON_ROWS)


NUMBERS = [tf.int32]
FEW = np.arange(90)


@pytest.mark.parametrize("summed", tiers.first([0], [True, False]))
def test_a_table_that_is_not_finite_in_rows_that_are_named_or_not(context, summed):
    table = _table(5_000)
    assert _check(context, NUMBERS, FEW, table, summed=summed).endswith(ON_ROWS)
    for row, column, value in ((4_999, 1, np.nan), (3, 2, np.inf), (70, 0, -np.inf)):
        table[row, column] = value
        _check(context, NUMBERS, FEW, table, summed=summed)


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("scale", tiers.first([1], [np.nan, np.inf]))
def test_a_change_that_is_scaled_by_what_is_not_finite(context, summed, scale):
    scales = [1.0, 2.0, scale, 1.0, 0.5, 1.0]
    told = _check(context, NUMBERS, FEW, _table(5_000), scales=scales, summed=summed)
    assert told.endswith(ON_ROWS)
