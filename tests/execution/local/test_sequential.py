"""Clients one at a time: their loops over datasets, and what runs as TFF made it."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call, training


def _of_each(function):
    return tff.federated_computation(
        lambda data: tff.federated_map(function, data),
        tff.FederatedType(function.type_signature.parameter, tff.CLIENTS),
    )


def _loops():
    """Reductions inside functions, inside one another, with state and resources."""

    @tf.function
    def nested(ds, start):
        def outer(state, i):
            inner = tf.data.Dataset.range(i).reduce(start, lambda s, j: s * 2 + j)
            return state + inner, tf.concat([state[None], [inner]], 0)[0]

        first, second = ds.reduce((start, start), lambda state, i: outer(state[0], i))
        return first, second

    @tff.tensorflow.computation(tff.SequenceType(np.int64), np.int64)
    def computation(ds, start):
        counter = tf.Variable(tf.constant(0, tf.int64))

        @tf.function
        def count(ds):
            for i in ds:
                counter.assign_add(i)
            ds.reduce(tf.constant(0), lambda s, i: (counter.assign_add(1), s)[1])
            return counter.read_value()

        empty = ds.take(0).reduce(start, lambda s, i: s + i)
        return nested(ds, start), count(ds), empty

    return computation


def test_loops_in_functions_and_in_loops(local, native):
    computation = _loops()
    args = (tf.data.Dataset.range(5), 7)
    result = call(local, computation, *args)
    assert_same(result, call(native, computation, *args))
    assert result[1] == 0 + 1 + 2 + 3 + 4 + 5
    assert result[2] == 7


NUMBERS = tff.SequenceType(np.int64)
ZERO = np.int64(0)


def _add(total, number):
    return total + number


@tff.tensorflow.computation(NUMBERS)
def _filtered(data):
    data = data.filter(lambda number: number % 2 == 0).map(lambda number: number + 1)
    return data.repeat(2).batch(2).reduce(ZERO, lambda t, x: 3 * t + tf.reduce_sum(x))


@tff.tensorflow.computation(NUMBERS)
def _in_branches(data):
    def digest():
        return data.reduce(ZERO, _add) * 2

    return tf.cond(data.reduce(ZERO, _add) > 4, digest, lambda: ZERO)


@tff.tensorflow.computation(NUMBERS)
def _of_any_number(data):
    """Takes steps whose state grows."""
    empty = tf.zeros([0], tf.int64)
    return data.reduce(empty, lambda state, number: tf.concat([state, [number]], 0))


@tff.tensorflow.computation(NUMBERS)
def _checked(data):
    def step(total, number):
        with tf.control_dependencies([tf.debugging.assert_less(number, np.int64(9))]):
            return total + number

    return data.reduce(ZERO, step)


@tff.tensorflow.computation(NUMBERS)
def _in_a_loop(data):
    """Passes over the data in each step of another loop."""
    step = tf.function(lambda k, total: (k + 1, 2 * total + data.reduce(ZERO, _add)))
    return tf.while_loop(lambda k, _: k < 3, step, [tf.constant(0), ZERO])[1]


@pytest.mark.parametrize(
    "function", [_filtered, _in_branches, _of_any_number, _checked, _in_a_loop]
)
def test_clients_are_functionalized(function, local_contexts, native):
    computation = _of_each(function)
    data = [[1, 2, 4], [], [6], [3, 3]]
    expected = call(native, computation, data)
    for name in ("fast", "plain"):
        assert_same(call(local_contexts[name], computation, data), expected)
    told = training(local_contexts["fast"], computation, data)
    assert not any("TFF's graph" in line for line in told)
    told = training(local_contexts["plain"], computation, data)
    assert told[1:] == [
        "as TFF's graph, not as a program of tensors: functionalize_clients is False"
    ]


def test_a_check_of_a_step_is_made(local):
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(local, _of_each(_checked), [[1], [2, 9]])


@tff.tensorflow.computation(NUMBERS)
def _looked_up(data):
    keys = tf.constant([1, 2], tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, keys * 10)
    table = tf.lookup.StaticHashTable(initializer, -1)
    return data.reduce(ZERO, lambda total, key: 3 * total + table.lookup(key))


@tff.tensorflow.computation(NUMBERS)
def _iterated(data):
    @tf.function
    def digest(data):
        iterator = iter(data)
        total = next(iterator)
        return 2 * total + next(iterator) + data.reduce(ZERO, _add)

    return digest(data)


def _told(total, number):
    with tf.control_dependencies([tf.print("number", number)]):
        return 2 * total + number


_printed = tff.tensorflow.computation(lambda data: data.reduce(ZERO, _told), NUMBERS)


@tff.tensorflow.computation(NUMBERS)
def _drawn(data):
    return data.reduce(0.0, lambda total, _: total + tf.random.uniform([], seed=5))


def test_steps_that_draw_from_a_seed_start_over_for_each_client(local_contexts, native):
    computation, data = _of_each(_drawn), [[1, 2], [3, 4], [5, 6, 7], []]
    expected = call(native, computation, data)
    assert expected[0] == expected[1] > 0
    for context in local_contexts.values():
        for _ in range(2):
            assert_same(call(context, computation, data), expected)
    for name in ("fast", "batched"):
        told = training(local_contexts[name], computation, data)
        assert told[0].startswith("one by one: ")
        assert told[1].endswith("its steps draw seeded random numbers")


@pytest.mark.parametrize(
    ("function", "reason"),
    [(_looked_up, "HashTable"), (_iterated, "Iterator"), (_printed, "PrintV2")],
)
def test_graphs_with_effects_run_as_they_are(function, reason, local_contexts, native):
    computation = _of_each(function)
    data = [[1, 2], [2, 5, 7]]
    context = local_contexts["fast"]
    told = training(context, computation, data)
    assert told[1].startswith("as TFF's graph, not as a program of tensors: it has the")
    assert reason in told[1]
    assert_same(call(context, computation, data), call(native, computation, data))
