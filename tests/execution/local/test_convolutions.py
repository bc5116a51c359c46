"""Convolutions with filters of each client's own: when they are vectorized, and how."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call, training
from tff_drift import algorithms, execution

SIZES = [8] * 9 + [11, 3, 4]
LOCKSTEP = "vectorized in lockstep: "


def data_of(shape, sizes=SIZES, batch_size=4):
    """Clients of unequal sizes, some with a short last batch."""
    random = np.random.default_rng(7)
    return [
        tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(
                x=random.normal(size=(size, *shape)).astype(np.float32),
                y=random.integers(0, 3, (size, 1)).astype(np.int32),
            )
        ).batch(batch_size)
        for size in sizes
    ]


def keras_model_fn(shape, make_layers):
    """A model of some layers, whose weights are the same in every program."""

    def model_fn():
        keras_model = tf.keras.Sequential(
            [
                tf.keras.layers.Input(shape),
                *make_layers(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(3),
            ]
        )
        for number, weights in enumerate(keras_model.trainable_weights):
            initial = np.random.default_rng(number).normal(size=weights.shape)
            weights.assign(initial * 0.3)
        return tff.learning.models.from_keras_model(
            keras_model,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=collections.OrderedDict(
                x=tf.TensorSpec([None, *shape], tf.float32),
                y=tf.TensorSpec([None, 1], tf.int32),
            ),
        )

    return model_fn


def _round(context, process, data):
    """Runs a round; returns its output, and how clients train in it."""
    state = call(context, process.initialize)
    told = training(context, process.next, state, data)
    return call(context, process.next, state, data), told


@pytest.mark.conformance
def test_tffs_own_fed_avg_with_convolutions(context, native):
    model_fn = keras_model_fn((6, 6, 1), lambda: [tf.keras.layers.Conv2D(3, 3)])
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1)
    )
    data = data_of((6, 6, 1))
    together, told = _round(context, process, data)
    assert told[0].startswith(LOCKSTEP)
    state = call(native, process.initialize)
    expected = call(native, process.next, state, data)
    assert_same(together.state, expected.state, rtol=2e-5, atol=2e-6)


def _hand_written():
    """A model without Keras: a convolution, its bias, and the mean of every map."""

    def initialize():
        random = np.random.default_rng(2)
        return tuple(
            random.normal(size=shape).astype(np.float32) * 0.3
            for shape in ((3, 3, 2, 3), (3,))
        ), ()

    def predict(weights, x):
        (filters, bias), _ = weights
        maps = tf.nn.bias_add(tf.nn.conv2d(x, filters, [1, 2], "SAME"), bias)
        return tf.reduce_mean(tf.nn.relu(maps), axis=[1, 2])

    @tf.function
    def predict_on_batch(model_weights, x, training):
        del training
        return predict(model_weights, x)

    @tf.function
    def loss(output, label, sample_weight):
        del sample_weight
        labels = tf.reshape(label, [-1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output)
        return tf.reduce_mean(losses)

    return tff.learning.models.FunctionalModel(
        initial_weights=initialize(),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        input_spec=collections.OrderedDict(
            x=tf.TensorSpec([None, 7, 8, 2], tf.float32),
            y=tf.TensorSpec([None, 1], tf.int32),
        ),
    )


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    "build",
    tiers.first(
        ["FedAvg"],
        [
            lambda: algorithms.build_fed_avg(_hand_written(), 0.1),
            # Second derivatives.
            lambda: algorithms.build_uga(_hand_written(), 0.1, 0.5, local_epochs=2),
        ],
        ["FedAvg", "UGA"],
    ),
)
def test_hand_written_convolutions(one_by_one, build):
    process = build()
    context = execution.create_local_execution_context(batch_clients=True)
    data = [each.repeat(2) for each in data_of((7, 8, 2), [8, 5, 8, 4])]
    together, told = _round(context, process, data)
    assert told[0] == f"{LOCKSTEP}batch_clients is True"
    alone, _ = _round(one_by_one, process, data)
    assert_same(together, alone, rtol=2e-5, atol=2e-6)


def test_large_patches_of_padded_images(context, native):
    images = tff.TensorType(np.float32, [None, 28, 28, 3])
    data_type = tff.SequenceType(images)
    filters_type = tff.TensorType(np.float32, [3, 3, 3, 4])

    @tff.tensorflow.computation(data_type, filters_type)
    def train(data, filters):
        def step(filters, images):
            with tf.GradientTape() as tape:
                tape.watch(filters)
                paddings = [[0, 0], [2, 1], [1, 1], [0, 0]]
                maps = tf.nn.conv2d(images, filters, 1, paddings)
                loss = tf.reduce_mean(maps**2)
            return filters - 0.1 * tape.gradient(loss, filters)

        return data.reduce(filters, step)

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(filters_type, tff.SERVER),
    )
    def computation(data, filters):
        filters = tff.federated_broadcast(filters)
        return tff.federated_sum(tff.federated_map(train, (data, filters)))

    random = np.random.default_rng(0)
    data = list(random.normal(size=(6, 3, 2, 28, 28, 3)).astype(np.float32))
    filters = random.normal(size=(3, 3, 3, 4)).astype(np.float32)
    data = [list(each) for each in data]
    assert training(context, computation, data, filters)[0].startswith(LOCKSTEP)
    expected = call(native, computation, data, filters)
    assert_same(call(context, computation, data, filters), expected, rtol=1e-5)


@pytest.mark.conformance
def test_what_decides_is_the_size_of_patches(context):
    shape, filters = (12, 12, 4), 3
    model_fn = keras_model_fn(shape, lambda: [tf.keras.layers.Conv2D(filters, 5)])
    process = algorithms.build_fed_avg(model_fn, 0.1)
    state = call(context, process.initialize)

    def told(batch_size):
        data = data_of(shape, [2 * batch_size] * 8, batch_size)
        return training(context, process.next, state, data)[0]

    # 8 x 2 patches of 5 x 8 x 4 values an example, for results and filters' gradient.
    assert told(273).startswith(LOCKSTEP)
    assert told(274) == (
        "one by one: its convolutions take patches of 1,402,880 values in a step, and "
        "gain by vectorizing up to 1,400,000"
    )


@pytest.mark.conformance
def test_large_convolutions_are_not_even_tried(context):
    model_fn = keras_model_fn((64, 64, 10), lambda: [tf.keras.layers.Conv2D(2, 17)])
    process = algorithms.build_fed_avg(model_fn, 0.1)
    # 48 x 3 patches of 17 x 32 x 10 values, twice, of one example.
    assert training(context, process.next) == [
        "one by one: its convolutions take patches of 1,566,720 values in a step, and "
        "gain by vectorizing up to 1,400,000"
    ]


@pytest.mark.conformance
def test_convolutions_of_other_kinds_are_done_one_after_the_other(context):
    model_fn = keras_model_fn((4, 4, 4, 1), lambda: [tf.keras.layers.Conv3D(2, 2)])
    (told,) = training(context, algorithms.build_fed_avg(model_fn, 0.1).next)
    assert told.startswith("one by one: it cannot be vectorized: ")
