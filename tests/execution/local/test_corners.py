"""Corners of the language where the local context once went its own way."""

import collections

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call, training

CLIENTS = tff.CLIENTS
INTS = tff.SequenceType(np.int32)
WORDS = tff.SequenceType(np.str_)
ONE_TUPLES = tff.SequenceType([np.int32])

tf_computation = tff.tensorflow.computation

zero = tf_computation(lambda: 0)
plus = tf_computation(lambda a, b: a + b, np.int32, np.int32)
digits = tf_computation(lambda a, b: 10 * a + b, np.int32, np.int32)
same = tf_computation(lambda a: a, np.int32)
total = tf_computation(lambda d: d.reduce(0, lambda a, x: a + x), INTS)
add_total = tf_computation(
    lambda a, d: a + d.reduce(0, lambda b, x: b + x), np.int32, INTS
)
length = tf_computation(
    lambda d: d.reduce(0, lambda n, word: n + tf.strings.length(word)), WORDS
)
# Accumulators that are sequences.
five = tf_computation(lambda: tf.data.Dataset.from_tensors(5))
append = tf_computation(
    lambda d, x: d.concatenate(tf.data.Dataset.from_tensors(x)), INTS, np.int32
)
both = tf_computation(lambda d, e: d.concatenate(e), INTS, INTS)
as_digits = tf_computation(lambda d: d.reduce(0, lambda a, x: 10 * a + x), INTS)


def _at_clients(type_signature):
    return tff.FederatedType(type_signature, CLIENTS)


@tff.federated_computation(_at_clients(WORDS))
def lengths(words):
    return tff.federated_map(length, words)


@tff.federated_computation(_at_clients(INTS))
def sequences_aggregated(data):
    return tff.federated_aggregate(data, zero(), add_total, plus, same)


@tff.federated_computation(_at_clients(INTS))
def sequences_aggregated_beside_training(data):
    sums = tff.federated_map(total, data)
    together = tff.federated_aggregate(data, zero(), add_total, plus, same)
    return together, sums, tff.federated_sum(sums)


@tff.federated_computation(INTS, _at_clients(np.int32))
def sequence_as_zero(start, values):
    return tff.federated_aggregate(values, start, append, both, as_digits)


@tff.federated_computation(_at_clients(INTS))
def sequence_as_accumulator_of_stacked_clients(data):
    sums = tff.federated_map(total, data)
    return tff.federated_aggregate(sums, five(), append, both, as_digits)


VECTORS = tff.TensorType(np.float32, [None])
size = tf_computation(lambda x: tf.size(x), VECTORS)


@tff.federated_computation(_at_clients(VECTORS), _at_clients(INTS))
def vectors_beside_data(vectors, data):
    sizes = tff.federated_map(size, vectors)
    sums = tff.federated_map(plus, (sizes, tff.federated_map(total, data)))
    return tff.federated_sum(sums), sums


@tff.federated_computation(_at_clients(VECTORS), _at_clients(INTS))
def vectors_aggregated_beside_data(vectors, data):
    add = tf_computation(lambda a, x: a + tf.size(x), np.int32, VECTORS)
    sizes = tff.federated_aggregate(vectors, zero(), add, plus, same)
    return sizes, tff.federated_sum(tff.federated_map(total, data))


def _mapped(function, element_type):
    @tff.federated_computation(tff.SequenceType(element_type))
    def mapped(data):
        return tff.sequence_reduce(tff.sequence_map(function, data), zero(), digits)

    return mapped


@tff.federated_computation(ONE_TUPLES)
def one_tuples_to_pairs(data):
    pairs = tff.sequence_map(
        tf_computation(lambda t: (t[0] + 1, t[0]), [np.int32]), data
    )
    add = tf_computation(
        lambda a, t: 10 * a + t[0] * t[1], np.int32, [np.int32, np.int32]
    )
    return tff.sequence_reduce(pairs, zero(), add)


@tff.federated_computation(ONE_TUPLES)
def one_tuples_reduced(data):
    add = tf_computation(lambda a, t: 10 * a + t[0], np.int32, [np.int32])
    return tff.sequence_reduce(data, zero(), add)


one_tuples_mapped = _mapped(tf_computation(lambda t: t[0] + 1, [np.int32]), [np.int32])
nested_one_tuples_mapped = _mapped(
    tf_computation(lambda t: t[0][0] + 1, [[np.int32]]), [[np.int32]]
)
one_name_mapped = _mapped(
    tf_computation(lambda t: t["a"] + 1, collections.OrderedDict(a=np.int32)),
    collections.OrderedDict(a=np.int32),
)


@tff.federated_computation(_at_clients(ONE_TUPLES))
def one_tuples_of_clients(data):
    return tff.federated_map(one_tuples_mapped, data)


def _of_all_pairs(step):
    """A pass over a client's data in each step of another."""
    data_type = tff.SequenceType(np.int32)
    whole = tf_computation(
        lambda d: d.reduce(0, lambda total, x: total + step(d, x)), data_type
    )

    @tff.federated_computation(_at_clients(data_type))
    def of_clients(data):
        return tff.federated_map(whole, data)

    return of_clients


products = _of_all_pairs(lambda d, x: d.reduce(0, lambda total, y: total + x * y))
firsts = _of_all_pairs(lambda d, x: x + next(iter(d.take(1))))
larger = _of_all_pairs(
    lambda d, x: d.filter(lambda y: y > x).reduce(0, lambda total, y: total + y)
)

NUMBERS = [[1, 2], [3], [0, 4], [7]]
OF_ONE_SHAPE = [np.ones([3], np.float32)] * 4
OF_ANY_SHAPE = [np.ones([size], np.float32) for size in (1, 3, 0, 2)]
CASES = {
    "vectors": (vectors_beside_data, OF_ONE_SHAPE, NUMBERS),
    "vectors_of_any_size": (vectors_beside_data, OF_ANY_SHAPE, NUMBERS),
    "vectors_aggregated": (vectors_aggregated_beside_data, OF_ONE_SHAPE, NUMBERS),
    "vectors_aggregated_of_any_size": (
        vectors_aggregated_beside_data,
        OF_ANY_SHAPE,
        NUMBERS,
    ),
    "strings_in_lists": (lengths, [["a", "bb"], ["ccc"], ["é", ""]]),
    "strings_in_datasets": (
        lengths,
        [tf.data.Dataset.from_tensor_slices(["a", "bb"])] * 9,
    ),
    "sequences_aggregated": (sequences_aggregated, NUMBERS),
    "sequences_aggregated_stacked": (sequences_aggregated_beside_training, NUMBERS),
    "sequence_as_zero": (sequence_as_zero, [7, 8], [1, 2, 3]),
    "sequence_as_accumulator": (sequence_as_accumulator_of_stacked_clients, NUMBERS),
    "one_tuples": (one_tuples_mapped, [(1,), (2,)]),
    "one_tuples_to_pairs": (one_tuples_to_pairs, [(1,), (2,)]),
    "one_tuples_reduced": (one_tuples_reduced, [(1,), (2,)]),
    "one_tuples_of_clients": (one_tuples_of_clients, [[(1,), (2,)]] * 2),
    "nested_one_tuples": (nested_one_tuples_mapped, [((1,),), ((2,),)]),
    "products_of_all_pairs": (products, NUMBERS),
    "first_in_each_step": (firsts, NUMBERS),
    "filtered_in_each_step": (larger, NUMBERS),
    "one_name": (one_name_mapped, [{"a": 1}, {"a": 2}]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_as_under_the_native_context(name, local, native):
    computation, *args = CASES[name]
    assert_same(call(local, computation, *args), call(native, computation, *args))


@pytest.mark.parametrize(
    "computation", [vectors_beside_data, vectors_aggregated_beside_data]
)
def test_tensors_of_different_shapes_are_not_stacked(computation, local_contexts):
    context = local_contexts["batched"]
    assert training(context, computation, OF_ANY_SHAPE, NUMBERS) == [
        "one by one: the clients bring tensors of different shapes"
    ]
    assert (
        "vectorized in lockstep"
        in training(context, computation, OF_ONE_SHAPE, NUMBERS)[0]
    )


@pytest.mark.parametrize(
    ("computation", "expected"),
    [
        (same, "int32"),
        (plus, "<a=int32,b=int32>"),
        (sequences_aggregated, r"{int32\*}@CLIENTS"),
    ],
)
def test_no_argument_where_one_is_wanted(computation, expected, local, native):
    with pytest.raises(grpc.RpcError):
        call(native, computation, None)
    with pytest.raises(TypeError, match=f"argument of type {expected}, found None"):
        call(local, computation, None)


def test_no_argument_is_taken_for_an_empty_structure(fast):
    assert call(fast, tf_computation(lambda empty: 3, []), None) == 3


def test_failed_assertions_are_tensorflow_s_own_errors(local, native):
    @tf_computation(np.int32)
    def check(x):
        with tf.control_dependencies([tf.debugging.Assert(x < 3, ["too large", x])]):
            return tf.identity(x)

    with pytest.raises(grpc.RpcError, match="too large"):
        call(native, check, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        call(local, check, 5)


def test_a_loop_may_leave_out_the_shapes_of_its_values(local):
    def named(function):
        of = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
        return tf.function(function).get_concrete_function(*of)

    # As TensorFlow makes those of `ctc_loss`.
    def add(total, number):
        _, added = tf.raw_ops.StatelessWhile(
            input=[tf.constant(0), number],
            cond=named(lambda i, x: i < 3),
            body=named(lambda i, x: (i + 1, x / 2 + 1)),
        )
        return total + tf.reshape(added, [])

    add_all = tf_computation(
        lambda data: data.reduce(0.0, add), tff.SequenceType(np.float32)
    )
    computation = tff.federated_computation(
        lambda data: tff.federated_map(add_all, data),
        tff.FederatedType(tff.SequenceType(np.float32), CLIENTS),
    )
    # x / 8 + 1.75 for each of two numbers.
    expected = [(8 * k) / 8 * 2 + 3.5 for k in range(4)]
    data = [[np.float32(8 * k)] * 2 for k in range(4)]
    assert call(local, computation, data) == expected


def test_sequences_are_summed(fast):
    """Which TFF's worker does not do."""
    element = collections.OrderedDict(a=np.float32, b=tff.TensorType(np.int32, [2]))

    @tff.federated_computation(tff.SequenceType(element))
    def summed(data):
        return tff.sequence_sum(data)

    @tff.federated_computation(_at_clients(INTS))
    def doubled_of_clients(data):
        double = tf_computation(lambda x: 2 * x, np.int32)
        doubled = tff.federated_computation(
            lambda each: tff.sequence_sum(tff.sequence_map(double, each)), INTS
        )
        return tff.federated_sum(tff.federated_map(doubled, data))

    elements = [{"a": 1.5, "b": [1, 2]}, {"a": 2.0, "b": [3, 4]}]
    for data, a, b in ((elements, 3.5, [4, 6]), ([], 0, [0, 0])):
        found = call(fast, summed, data)
        assert (found["a"], found["b"].tolist()) == (a, b)
    assert call(fast, doubled_of_clients, [*NUMBERS, []]) == 2 * (1 + 2 + 3 + 4 + 7)
