"""Secure sums of every kind of integers, with TFF's own bodies as the oracle."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call, call_native

Ordered = collections.OrderedDict
NUMBERS = tff.SequenceType(np.int64)
DATA = [[1, 2, 3], [4, 5], [6]]

# A type, three values, and the form of a limit.
KINDS = {
    "int": (np.int32, [1, 7, 3], np.int32(0)),
    "long": (np.int64, [1, 7, 3], np.int64(0)),
    "negative": (np.int32, [-1, 7, 3], np.int32(0)),
    "vector": (
        tff.TensorType(np.int64, [2]),
        [np.array(value) for value in ([1, 2], [3, 4], [5, 6])],
        np.int64(0),
    ),
    "no_rows": (
        tff.TensorType(np.int32, [0, 2]),
        [np.zeros([0, 2], np.int32)] * 3,
        np.int32(0),
    ),
    "one_tuple": ([np.int32], [[1], [7], [3]], [np.int32(0)]),
    "nested": (
        Ordered(b=np.int32, a=(np.int64, [np.int32])),
        [Ordered(b=k, a=(k + 1, [k + 2])) for k in (1, 2, 3)],
        Ordered(b=np.int32(0), a=(np.int64(0), [np.int32(0)])),
    ),
}
SUMS = {
    "sum": (tff.federated_secure_sum, 20),
    "bitwidth": (tff.federated_secure_sum_bitwidth, 5),
    "modular": (tff.backends.mapreduce.federated_secure_modular_sum, 11),
}


def _secure_sum(name, kind):
    """Returns a computation that sums what comes in, and what clients compute."""
    value_type, _, limits = kind
    intrinsic, limit = SUMS[name]
    limits = tf.nest.map_structure(lambda zero: type(zero)(limit), limits)

    @tff.tensorflow.computation(value_type, NUMBERS)
    def same(value, data):
        none = data.reduce(np.int64(0), lambda total, each: total + 0 * each)
        return tf.nest.map_structure(lambda x: x + tf.cast(none, x.dtype), value)

    @tff.federated_computation(
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(NUMBERS, tff.CLIENTS),
    )
    def sums(values, data):
        computed = tff.federated_map(same, (values, data))
        return intrinsic(values, limits), intrinsic(computed, limits)

    return sums


@pytest.mark.parametrize(
    ("name", "kind"),
    # In the first tier each sum, with numbers, limits and structures of their own.
    tiers.first(
        [0, 10, 16, 20],
        list(itertools.product(SUMS, KINDS)),
    ),
)
def test_secure_sums_are_those_of_tff(name, kind, native, local_contexts):
    computation = _secure_sum(name, KINDS[kind])
    for num_clients in (3, 1, 0):
        arguments = KINDS[kind][1][:num_clients], DATA[:num_clients]
        expected = call_native(native, computation, *arguments)
        result = call(local_contexts["batched"], computation, *arguments)
        assert_same(result, expected)


@pytest.mark.parametrize(("name", "expected"), [("sum", 16), ("modular", 5)])
def test_secure_sums_by_hand(name, expected, local):
    computation = _secure_sum(name, KINDS["int"])
    assert call(local, computation, [1, 7, 8], DATA) == (expected, expected)


@pytest.mark.parametrize("name", ["sum", "bitwidth"])
def test_too_large_values_fail_as_in_tff(name, local):
    computation = _secure_sum(name, KINDS["int"])
    message = "client value larger than maximum specified for secure sum"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(local, computation, [1, 70, 3], DATA)
