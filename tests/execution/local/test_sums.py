"""Sums over clients that are stacked, alone and beside other uses of what is summed."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call, training

NUMBERS = tff.SequenceType(np.int32)
VECTOR = tff.TensorType(np.int32, [None])
DATA = [[1, 2, 4], [3], [0, 5], [7], [2, 2, 2], [4]]
TOTALS = [7, 3, 5, 7, 6, 4]

tf_computation = tff.tensorflow.computation

sum_and_count = tf_computation(
    lambda d: d.reduce((0, 0), lambda a, x: (a[0] + x, a[1] + 1)), NUMBERS
)
zero = tf_computation(lambda: 0)
plus = tf_computation(lambda a, b: a + b, np.int32, np.int32)
digits = tf_computation(lambda a, b: 10 * a + b, np.int32, np.int32)
same = tf_computation(lambda a: a, np.int32)
no_rows = tf_computation(lambda: tf.zeros([0], tf.int32))
append = tf_computation(
    lambda a, x: tf.concat([a, tf.expand_dims(x, 0)], 0), VECTOR, np.int32
)
joined = tf_computation(lambda a, b: tf.concat([a, b], 0), VECTOR, VECTOR)
all_rows = tf_computation(lambda a: a, VECTOR)
# A sum and a stack in one accumulator.
BOTH = tff.to_type((np.int32, VECTOR))
no_both = tf_computation(lambda: (0, tf.zeros([0], tf.int32)))
add_both = tf_computation(
    lambda a, x: (a[0] + x[0], tf.concat([a[1], tf.expand_dims(x[1], 0)], 0)),
    BOTH,
    tff.to_type((np.int32, np.int32)),
)
merge_both = tf_computation(
    lambda a, b: (a[0] + b[0], tf.concat([a[1], b[1]], 0)), BOTH, BOTH
)
all_of_both = tf_computation(lambda a: (a[1], a[0]), BOTH)


def _alone(total, count):
    return tff.federated_sum(total), tff.federated_sum(count)


def _twice(total, count):
    both = tff.federated_zip((total, count))
    return tff.federated_sum(total), tff.federated_sum(both)


def _returned_too(total, count):
    return tff.federated_sum(total), total, tff.federated_sum(count)


def _collected_too(total, count):
    collected = tff.federated_aggregate(total, no_rows(), append, joined, all_rows)
    return tff.federated_sum(total), tff.federated_sum(count), collected


def _in_one(total, count):
    both = tff.federated_zip((total, count))
    return tff.federated_aggregate(both, no_both(), add_both, merge_both, all_of_both)


def _stacked_and_summed_in_one(total, count):
    both = tff.federated_zip((total, total))
    in_one = tff.federated_aggregate(both, no_both(), add_both, merge_both, all_of_both)
    return in_one, tff.federated_sum(count)


def _in_order_too(total, count):
    in_order = tff.federated_aggregate(total, zero(), digits, plus, same)
    return tff.federated_sum(total), in_order, tff.federated_sum(count)


def _used_later(total, count):
    everywhere = tff.federated_broadcast(tff.federated_sum(total))
    more = tff.federated_map(plus, (total, everywhere))
    return tff.federated_sum(more), tff.federated_sum(count)


@pytest.mark.parametrize(
    ("of_clients", "expected"),
    [
        (_alone, (32, 11)),
        (_twice, (32, (32, 11))),
        (_returned_too, (32, TOTALS, 11)),
        (_collected_too, (32, 11, np.array(TOTALS))),
        (_in_one, (np.array([3, 1, 2, 1, 3, 1]), 32)),
        (_stacked_and_summed_in_one, ((np.array(TOTALS), 32), 11)),
        (_in_order_too, (32, 735764, 11)),
        (_used_later, (32 + 6 * 32, 11)),
    ],
)
def test_what_is_summed_is_there_for_others_too(of_clients, expected, local):
    @tff.federated_computation(tff.FederatedType(NUMBERS, tff.CLIENTS))
    def computation(data):
        results = tff.federated_map(sum_and_count, data)
        return of_clients(results[0], results[1])

    assert_same(
        call(local, computation, DATA), tf.nest.map_structure(np.int32, expected)
    )


def test_places_that_nobody_takes_are_not_summed(local_contexts):
    @tff.federated_computation(tff.FederatedType(NUMBERS, tff.CLIENTS))
    def computation(data):
        results = tff.federated_map(sum_and_count, data)
        return tff.federated_sum(results[0]), results[1]

    batched = local_contexts["batched"]
    # A function for eighteen clients takes them.
    data = (3 * DATA)[:17]
    assert training(batched, computation, data)[0].startswith("vectorized in lockstep")
    total, counts = call(batched, computation, data)
    assert (total, counts) == (3 * 32 - 4, (3 * [3, 1, 2, 1, 3, 1])[:17])
