"""Shapes that are not those of the first values, the first batch or one example."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call

BATCHES = tff.SequenceType(tff.TensorType(np.float32, [None]))


def _of_each(function):
    return tff.federated_computation(
        lambda data: tff.federated_map(function, data),
        tff.FederatedType(BATCHES, tff.CLIENTS),
    )


def _data(num_batches):
    return [
        [np.arange(2, dtype=np.float32) + 2 * k + client for k in range(number)]
        for client, number in enumerate(num_batches)
    ]


@tff.tensorflow.computation(BATCHES)
def _growing_state(data):
    """Appends each batch to a state that is empty at first."""
    state = data.reduce(
        tf.zeros([0]), lambda state, batch: tf.concat([state, batch], 0)
    )
    return tf.size(state), tf.reduce_mean(state), state


@tff.tensorflow.computation(BATCHES)
def _growing_variable(data):
    """Appends each batch to a variable, after it has looked how long that is."""
    variable = tf.Variable(tf.zeros([0]), shape=[None])

    def step(total, batch):
        total = 2 * total + tf.size(variable.read_value())
        variable.assign(tf.concat([variable.read_value(), batch], 0))
        return total

    run = tf.function(lambda: (data.reduce(0, step), variable.read_value()))
    return run()


@pytest.mark.parametrize("num_batches", [[3, 3, 3, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize("function", [_growing_state, _growing_variable])
def test_a_shape_that_changes(function, num_batches, local, native):
    computation, data = _of_each(function), _data(num_batches)
    expected = call(native, computation, data)
    assert_same(call(local, computation, data), expected, rtol=1e-6)


@tff.tensorflow.computation(BATCHES)
def _assigned(data):
    """Assigns each batch to a variable of three numbers."""
    variable = tf.Variable(tf.zeros([3]))

    def step(total, batch):
        variable.assign(batch)
        return total + tf.reduce_sum(variable.read_value())

    run = tf.function(lambda: data.reduce(tf.constant(0.0), step))
    return run()


def test_a_value_of_another_shape_than_its_variable(local, native):
    computation, data = _of_each(_assigned), _data([2, 2, 2, 2])
    with pytest.raises(Exception, match="shape"):
        call(native, computation, data)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        call(local, computation, data)


@tf.function(input_signature=[tf.TensorSpec([None])])
def _last(values):
    return tf.cond(tf.size(values) > 0, lambda: values[-1], lambda: tf.constant(-1.0))


@tff.tensorflow.computation(BATCHES)
def _branch_on_a_shape(data):
    """Begins with a branch that the shape of what it is given excludes."""
    start = _last(tf.zeros([0]))
    return data.reduce(start, lambda total, batch: total + tf.reduce_sum(batch))


@tff.tensorflow.computation(BATCHES)
def _pairs(data):
    """Takes convolutions of batches that have an even number of examples."""
    filters = tf.ones([2, 1, 1, 1])

    def step(total, batch):
        images = tf.reshape(batch, [-1, 1, 1, 1])
        results = tf.nn.conv2d(images, filters, 1, "SAME")
        return total / 2 + tf.reduce_prod(tf.reshape(results, [-1, 2]))

    return data.reduce(tf.constant(0.0), step)


@pytest.mark.parametrize("function", [_branch_on_a_shape, _pairs])
def test_graphs_that_do_not_take_every_shape(function, local, native):
    computation, data = _of_each(function), _data([2, 2, 2, 2])
    expected = call(native, computation, data)
    assert_same(call(local, computation, data), expected, rtol=1e-6)
