"""Tables belong to one call, wherever a graph makes them."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat


def _table():
    return tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, np.int64(0))


@tff.tensorflow.computation(np.str_, np.int64)
@tf.function
def added(key, number):
    table = _table()
    table.insert(key, table.lookup(key) + number)
    return table.lookup(key), table.size()


@tff.tensorflow.computation(np.str_)
@tf.function
def looked_up(key):
    return _table().lookup(key)


@tff.tensorflow.computation(np.int64)
def dense_in_a_branch(number):
    @tf.function
    def counted():
        if number > 3:
            table = tf.lookup.experimental.DenseHashTable(
                tf.int64, tf.int64, default_value=0, empty_key=-1, deleted_key=-2
            )
            table.insert(number, table.lookup(number) + 1)
            return table.lookup(number)
        return number

    return counted()


@tff.tensorflow.computation(tff.SequenceType(np.str_))
@tf.function
def word_counts(words):
    table = _table()
    for word in words:
        table.insert(word, table.lookup(word) + 1)
    _, counts = table.export()
    return tf.sort(counts)


@tff.federated_computation(tff.FederatedType(tff.SequenceType(np.str_), tff.CLIENTS))
def counts_of_clients(words):
    return tff.federated_map(word_counts, words)


def _calls(context):
    with compat.get_context_stack().install(context):
        return [
            added("a", 1),
            added("a", 10),
            looked_up("a"),
            [dense_in_a_branch(7) for _ in range(3)],
            counts_of_clients([["a", "b", "a"], ["a"], [], ["b", "a"]]),
            counts_of_clients([["a"], ["a"]]),
        ]


def test_each_call_has_its_own_tables(local, native):
    found, expected = _calls(local), _calls(native)
    assert [list(map(int, pair)) for pair in found[:2]] == [[1, 1], [10, 1]]
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_a_table_of_a_loops_steps_is_refused(fast):
    @tff.tensorflow.computation(tff.SequenceType(np.str_))
    def in_a_loop(words):
        def step(total, word):
            table = _table()
            table.insert(word, table.lookup(word) + 1)
            return total + table.lookup(word)

        return words.reduce(np.int64(0), step)

    refused = pytest.raises(NotImplementedError, match="makes the lookup table")
    with compat.get_context_stack().install(fast), refused:
        in_a_loop(["a"])


@tff.tensorflow.computation(np.int64)
def doubled(number):
    return 2 * number


@tff.tensorflow.computation(tff.SequenceType(np.int64))
def summed(numbers):
    return numbers.reduce(np.int64(0), lambda total, number: total + number)


PAIRS = tff.SequenceType(tff.TensorType(np.float32, [2]))


@tff.tensorflow.computation(np.float32)
def first_values_of_others(number):
    first = tf.Variable([number, 2.0])
    total = tf.Variable(tf.reduce_sum(first))
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([3], tf.int64), [5.0]), 0.0
    )
    found = tf.Variable(table.lookup(tf.cast(total, tf.int64)))
    twice = tf.Variable(lambda: 2 * found)
    return total.read_value(), twice.read_value()


@tff.tensorflow.computation(tff.TensorType(np.float32, [2]), PAIRS)
def train_with_first_norm(weights, pairs):
    variable = tf.Variable(weights)
    first = tf.Variable(tf.reduce_sum(variable))

    @tf.function
    def train(pairs):
        total = 0.0
        for pair in iter(pairs):
            total += first * tf.reduce_sum(pair)
            variable.assign_sub(0.1 * (variable - pair))
        return total

    return train(pairs)


@tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.float32, [2]), tff.SERVER),
    tff.FederatedType(PAIRS, tff.CLIENTS),
)
def sums_with_first_norms(weights, pairs):
    sent = tff.federated_broadcast(weights)
    return tff.federated_sum(tff.federated_map(train_with_first_norm, (sent, pairs)))


def test_a_variable_may_begin_with_what_another_begins_with(fast):
    """In every call: the order among first values was left to threads."""
    pairs = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    with compat.get_context_stack().install(fast):
        for _ in range(30):
            assert first_values_of_others(1.0) == (3, 10)
            found = sums_with_first_norms(np.array([1, 2], np.float32), [pairs] * 8)
            assert found == 8 * 3 * (1 + 2 + 3 + 4)


def test_calls_while_a_graph_is_built(local):
    with compat.get_context_stack().install(local), tf.Graph().as_default():
        assert (doubled(4), summed([1, 2])) == (8, 3)


@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def sum_of_clients(numbers):
    return tff.federated_sum(numbers)


def test_containers_that_the_native_context_takes(local, native):
    for context in (local, native):
        with compat.get_context_stack().install(context):
            assert sum_of_clients({"x": 1, "y": 5}.values()) == 6
            pair = tff.tensorflow.computation(
                lambda x: x[0] - x[1], tff.to_type([np.int64, np.int64])
            )
            assert pair({"a": 5, "b": 2}) == 3


def test_ragged_tensors_are_refused(fast):
    ragged = tf.ragged.constant([[1], [2, 3]], tf.int64)
    refused = pytest.raises(TypeError, match="found a RaggedTensor")
    with compat.get_context_stack().install(fast), refused:
        doubled(ragged)
