"""Which layers of Keras are vectorized, as docs/engine.md has it in a table."""

import pathlib
import re

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call, training
from tests.execution.local.test_convolutions import LOCKSTEP, data_of, keras_model_fn
from tff_drift import algorithms, layers

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "engine.md"
K = tf.keras.layers


class OneHeadAttention(K.Layer):
    """Softmax of products of queries and keys, of a sequence with itself."""

    def build(self, shape):
        self._weights = [
            self.add_weight(name=name, shape=(shape[-1], shape[-1]))
            for name in ("queries", "keys", "values")
        ]

    def call(self, inputs):
        queries, keys, values = (inputs @ weights for weights in self._weights)
        return tf.nn.softmax(tf.matmul(queries, keys, transpose_b=True)) @ values


class OfItself(K.Layer):
    """A layer of queries and values, each of which is the same sequence."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs, inputs)


class OfAPair(OfItself):
    """The same, of a layer that takes both in a list."""

    def call(self, inputs):
        return self.layer([inputs, inputs])


def _images():
    return [
        K.ZeroPadding2D(1),
        K.Conv2D(4, 3, activation="relu"),
        K.MaxPool2D(2),
        # Filters that leave out pixels, by other operations than the rest.
        K.Conv2D(5, 2, dilation_rate=2, padding="same", activation="tanh"),
        K.DepthwiseConv2D(2, depth_multiplier=2),
        layers.Dropout(0.2),
        K.SeparableConv2D(4, 2, strides=2, padding="same"),
        K.Conv2DTranspose(3, 2),
        K.Cropping2D(((0, 0), (0, 1))),
        K.AveragePooling2D(2),
        K.PReLU(),
    ]


def _normalized():
    return [
        K.BatchNormalization(),
        K.GroupNormalization(2),
        K.LayerNormalization(),
        K.Flatten(),
        K.BatchNormalization(),
    ]


def _sequences():
    return [
        K.Conv1D(6, 3, padding="causal", activation="relu"),
        K.BatchNormalization(),
        K.MaxPool1D(2),
        K.Conv1D(4, 2, dilation_rate=2, activation="relu"),
        OneHeadAttention(),
        K.LayerNormalization(),
        K.SeparableConv1D(3, 2),
        K.TimeDistributed(K.Dense(4)),
        OfItself(K.MultiHeadAttention(1, 2)),
        OfAPair(K.Attention()),
        K.UnitNormalization(),
        K.AveragePooling1D(2),
        K.Reshape((4, 2)),
        K.GlobalMaxPooling1D(),
    ]


def _random():
    """Layers that draw numbers of their own, other ones in each run."""
    return [
        K.Dropout(0.5),
        K.SpatialDropout1D(0.5),
        K.GaussianNoise(0.5),
        K.GlobalAveragePooling1D(),
    ]


def _over_images():
    return [
        K.Dense(4),
        K.GlobalAveragePooling2D(),
        K.Reshape((2, 2, 1)),
        K.GlobalMaxPooling2D(),
    ]


# Each with the shape of its inputs.
VECTORIZED = {
    "images": ((13, 14, 2), _images),
    "normalized": ((3, 2, 4), _normalized),
    "sequences": ((16, 3), _sequences),
    "over images": ((3, 2, 4), _over_images),
}
RANDOM = (6, 4), _random
A_LOOP = "it cannot be vectorized: it has a loop, as recurrent layers do"
OTHER_MOMENTS = "TensorFlow cannot vectorize it: it normalizes by other moments than "
ONE_BY_ONE = {
    "LSTM": ((6, 4), lambda: K.LSTM(3), A_LOOP),
    "GRU": ((6, 4), lambda: K.GRU(3), A_LOOP),
    "SimpleRNN": ((6, 4), lambda: K.SimpleRNN(3), A_LOOP),
    "Bidirectional": ((6, 4), lambda: K.Bidirectional(K.SimpleRNN(3)), A_LOOP),
    "tff_drift.layers.LSTM": ((6, 4), lambda: layers.LSTM(3), A_LOOP),
    "tff_drift.layers.GRU": ((6, 4), lambda: layers.GRU(3), A_LOOP),
    "Conv3D": (
        (4, 4, 4, 1),
        lambda: K.Conv3D(2, 2),
        "its operations 'Conv3D', 'Conv3DBackpropFilterV2'",
    ),
    "UpSampling2D": (
        (4, 4, 2),
        lambda: K.UpSampling2D(2),
        "its operations 'ResizeNearestNeighbor'",
    ),
}


def _name(layer):
    ours = type(layer).__module__.startswith("tff_drift")
    return "tff_drift.layers." * ours + type(layer).__name__


def _layers_of(make_layers):
    inner = (getattr(each, "layer", each) for each in make_layers())
    return {*map(_name, make_layers()), *map(_name, inner)}


def test_the_table_says_what_is_vectorized_and_what_is_not():
    text = DOCUMENT.read_text().partition("## Which layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", text, re.MULTILINE)[1:]
    names = {
        told: {name for cells, each in rows if each == told for name in _names(cells)}
        for told in ("yes", "no")
    }
    models = [*VECTORIZED.values(), RANDOM]
    ours = {"OfItself", "OfAPair", "OneHeadAttention"}
    vectorized = set().union(*(_layers_of(make) for _, make in models)) - ours
    assert names["yes"] == vectorized
    assert names["no"] == set(ONE_BY_ONE)


def _names(cells):
    return re.findall(r"`([\w.]+)`", cells)


def _told(context, process, data):
    state = call(context, process.initialize)
    return training(context, process.next, state, data)[0]


@pytest.mark.parametrize("name", tiers.first(["over images"], list(VECTORIZED)))
def test_vectorized_layers_train_as_one_by_one(context, one_by_one, name):
    shape, make_layers = VECTORIZED[name]
    process = algorithms.build_fed_avg(keras_model_fn(shape, make_layers), 0.1)
    # Clients that are masked, and short last batches.
    data = data_of(shape)
    state = call(context, process.initialize)
    assert _told(context, process, data).startswith(LOCKSTEP)
    together = call(context, process.next, state, data)
    assert _told(one_by_one, process, data) == "one by one: batch_clients is False"
    alone = call(one_by_one, process.next, state, data)
    assert_same(together, alone, rtol=2e-5, atol=2e-6)


@pytest.mark.conformance
def test_normalizations_train_as_natively(context, native):
    model_fn = keras_model_fn(*VECTORIZED["normalized"])
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1)
    )
    data = data_of(VECTORIZED["normalized"][0])
    state = call(native, process.initialize)
    assert _told(context, process, data).startswith(LOCKSTEP)
    assert_same(
        call(context, process.next, state, data).state,
        call(native, process.next, state, data).state,
        rtol=2e-5,
        atol=2e-6,
    )


def test_layers_that_draw_numbers_are_vectorized(context):
    shape, make_layers = RANDOM
    process = algorithms.build_fed_avg(keras_model_fn(shape, make_layers), 0.1)
    assert _told(context, process, data_of(shape)).startswith(LOCKSTEP)


@pytest.mark.conformance
@pytest.mark.parametrize("name", tiers.first(["SimpleRNN"], list(ONE_BY_ONE)))
def test_layers_that_train_one_by_one(context, name):
    shape, make, reason = ONE_BY_ONE[name]
    process = algorithms.build_fed_avg(keras_model_fn(shape, lambda: [make()]), 0.1)
    told = training(context, process.next)[0]
    assert told.startswith("one by one: ")
    assert reason in told


@pytest.mark.conformance
def test_a_frozen_normalization_of_images_trains_one_by_one(context, one_by_one):
    def make_layers():
        return [K.Conv2D(3, 1), K.BatchNormalization(trainable=False)]

    shape = 3, 2, 4
    process = algorithms.build_fed_avg(keras_model_fn(shape, make_layers), 0.1)
    data = data_of(shape)
    told = _told(context, process, data)
    assert told.startswith(f"one by one: {OTHER_MOMENTS}")
    state = call(context, process.initialize)
    assert_same(
        call(context, process.next, state, data),
        call(one_by_one, process.next, state, data),
        rtol=1e-6,
    )
