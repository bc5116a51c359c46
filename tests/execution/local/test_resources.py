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
