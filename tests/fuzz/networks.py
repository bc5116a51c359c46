"""Random Keras models for TFF, with examples that suit them."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.fuzz.operations import CHANGE_ROWS, ONE_BY_ONE, OPERATIONS
from tff_drift import layers

CLASSES, VOCABULARY = 4, 7
_LAYERS = tf.keras.layers
# Of each kind of input: its spec without the batch, and the blocks that take it.
_SHAPES = {
    "vector": ((5,), tf.float32),
    "image": ((6, 5, 2), tf.float32),
    "series": ((4, 3), tf.float32),
    "tokens": ((5,), tf.int32),
}


@dataclasses.dataclass(frozen=True)
class Network:
    """A model.

    Attributes:
      inputs: The kinds of its inputs, one or two.
      blocks: The layers of the first input, by name.
      joint: The blocks after all inputs have become one vector.
      head: What is predicted, with its loss.
      form: "variables" or "functional", as TFF has models.
      decay: Whether its dense layers have an L2 penalty.
    """

    inputs: tuple[str, ...]
    blocks: tuple[str, ...]
    joint: tuple[str, ...]
    head: str
    form: str = "variables"
    decay: bool = False


class Operation(_LAYERS.Layer):
    """One of `OPERATIONS` as a layer with weights of its own."""

    def __init__(self, operation):
        super().__init__()
        self._operation = operation

    def build(self, shape):
        del shape
        self._w = self.add_weight("w", [4, 3], initializer="glorot_uniform")
        self._s = self.add_weight("s", [4], initializer="ones")

    def call(self, inputs):
        labels = tf.argmax(inputs, axis=1, output_type=tf.int32) - 1
        model = {"w": self._w.read_value(), "s": self._s.read_value()}
        apply = OPERATIONS[self._operation]
        result = apply(inputs, labels, model, tf.shape(inputs)[0])
        return tf.ensure_shape(result, [None, 4])


def _residual(x):
    return _LAYERS.Add()([x, _LAYERS.Dense(x.shape[-1], "tanh")(x)])


def _shared(x):
    dense = _LAYERS.Dense(x.shape[-1], "tanh")
    return dense(dense(x))


def _gated(x):
    gate = _LAYERS.Dense(x.shape[-1], "sigmoid")(x)
    return _LAYERS.Multiply()([x, gate])


def _norm(x):
    return _LAYERS.UnitNormalization()(_LAYERS.Dense(3)(x))


def _attention(x):
    return _LAYERS.MultiHeadAttention(2, 2)(x, x)


def _inception(x):
    one = _LAYERS.Conv2D(2, 1, activation="relu")(x)
    other = _LAYERS.Conv2D(2, 3, padding="same")(x)
    return _LAYERS.Concatenate()([one, other])


def _new(make):
    return lambda x: make()(x)


_VECTOR = {
    "dense": _new(lambda: _LAYERS.Dense(6, "relu")),
    "wide": _new(lambda: _LAYERS.Dense(33, "elu", use_bias=False)),
    "batch_norm": _new(lambda: _LAYERS.BatchNormalization()),
    "batch_norm_unscaled": _new(
        lambda: _LAYERS.BatchNormalization(scale=False, momentum=0.8)
    ),
    "layer_norm": _new(lambda: _LAYERS.LayerNormalization()),
    "dropout": _new(lambda: layers.Dropout(0.3)),
    "residual": _residual,
    "shared": _shared,
    "gated": _gated,
    "prelu": _new(lambda: _LAYERS.PReLU()),
    "unit_norm": _norm,
}
_IMAGE = {
    "conv": _new(lambda: _LAYERS.Conv2D(3, 3, activation="relu", padding="same")),
    "conv_valid": _new(lambda: _LAYERS.Conv2D(4, 2)),
    "conv_strided": _new(lambda: _LAYERS.Conv2D(4, 2, strides=2, padding="same")),
    "conv_dilated": _new(lambda: _LAYERS.Conv2D(2, 2, dilation_rate=2, padding="same")),
    "conv_groups": _new(lambda: _LAYERS.Conv2D(4, 1, groups=2)),
    "depthwise": _new(lambda: _LAYERS.DepthwiseConv2D(2, depth_multiplier=2)),
    "separable": _new(lambda: _LAYERS.SeparableConv2D(4, 2, padding="same")),
    "transposed": _new(lambda: _LAYERS.Conv2DTranspose(2, 2, strides=2)),
    "max_pool": _new(lambda: _LAYERS.MaxPool2D(2, padding="same")),
    "avg_pool": _new(lambda: _LAYERS.AvgPool2D(2, 1, padding="same")),
    "image_batch_norm": _new(lambda: _LAYERS.BatchNormalization()),
    "group_norm": _new(lambda: _LAYERS.GroupNormalization(2)),
    "padding": _new(lambda: _LAYERS.ZeroPadding2D(1)),
    "up_sampling": _new(lambda: _LAYERS.UpSampling2D(2, interpolation="bilinear")),
    "inception": _inception,
}
_SERIES = {
    "lstm": _new(lambda: _LAYERS.LSTM(3, return_sequences=True)),
    "gru": _new(lambda: _LAYERS.GRU(3, return_sequences=True)),
    "simple_rnn": _new(lambda: _LAYERS.SimpleRNN(3, return_sequences=True)),
    "own_lstm": _new(lambda: layers.LSTM(3, return_sequences=True)),
    "own_gru": _new(lambda: layers.GRU(3, return_sequences=True)),
    "bidirectional": _new(
        lambda: _LAYERS.Bidirectional(layers.LSTM(2, return_sequences=True))
    ),
    "conv1d": _new(lambda: _LAYERS.Conv1D(4, 2, padding="causal")),
    "per_step": _new(lambda: _LAYERS.TimeDistributed(_LAYERS.Dense(4, "tanh"))),
    "attention": _attention,
    "series_norm": _new(lambda: _LAYERS.LayerNormalization()),
}
_BLOCKS = {"vector": _VECTOR, "image": _IMAGE, "series": _SERIES, "tokens": _SERIES}
_OPERATIONS = sorted(set(OPERATIONS) - CHANGE_ROWS)
_VECTORIZED = sorted(set(_OPERATIONS) - ONE_BY_ONE)


def _cross_entropy(**options):
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


class _Masked(tf.keras.losses.Loss):
    """The cross entropy of labels that are not 0, a mean over these."""

    def call(self, y_true, y_pred):
        labels = tf.reshape(y_true, [-1])
        counts = tf.cast(tf.not_equal(labels, 0), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)
        return tf.math.divide_no_nan(
            tf.reduce_sum(losses * counts), tf.reduce_sum(counts)
        )


_CLASS_HEADS = {
    "classes": _cross_entropy,
    "ignored_class": lambda: _cross_entropy(ignore_class=0),
    "masked": lambda: _Masked(),
    "hinge": lambda: tf.keras.losses.CategoricalHinge(),
}
_VALUE_HEADS = {
    "values": tf.keras.losses.MeanSquaredError,
    "huber": tf.keras.losses.Huber,
    "log_cosh": tf.keras.losses.LogCosh,
    "binary": lambda: tf.keras.losses.BinaryCrossentropy(from_logits=True),
}
HEADS = (*_CLASS_HEADS, *_VALUE_HEADS, "two_outputs")


@st.composite
def networks(draw):
    first = draw(st.sampled_from(tuple(_SHAPES)))
    more = draw(st.lists(st.sampled_from(("vector", "tokens")), max_size=1))
    names = st.one_of(
        st.sampled_from(tuple(_VECTOR)),
        st.sampled_from(_OPERATIONS).map("op:{}".format),
    )
    head = draw(st.sampled_from(HEADS))
    # TFF's functional models have one loss.
    forms = ("variables",) if head == "two_outputs" else ("variables", "functional")
    return Network(
        inputs=(first, *more),
        blocks=tuple(
            draw(st.lists(st.sampled_from(tuple(_BLOCKS[first])), max_size=3))
        ),
        joint=tuple(draw(st.lists(names, max_size=2))),
        head=head,
        form=draw(st.sampled_from(forms)),
        decay=draw(st.booleans()),
    )


def _one_vector(kind, blocks, decay):
    """Returns an input, and what the blocks make of it, as one vector."""
    shape, dtype = _SHAPES[kind]
    given = _LAYERS.Input(shape, dtype=dtype)
    x = given
    if kind == "tokens":
        x = _LAYERS.Embedding(VOCABULARY, 3, mask_zero="attention" not in blocks)(x)
    for name in blocks:
        x = _BLOCKS[kind][name](x)
    if kind in ("series", "tokens"):
        x = _LAYERS.GlobalAveragePooling1D()(x)
    elif kind == "image":
        x = _LAYERS.Flatten()(x)
    penalty = tf.keras.regularizers.L2(0.01) if decay else None
    return given, _LAYERS.Dense(4, kernel_regularizer=penalty)(x)


def keras_model(network):
    """Returns the Keras model, with any weights."""
    branches = [
        _one_vector(kind, network.blocks if not number else (), network.decay)
        for number, kind in enumerate(network.inputs)
    ]
    inputs, vectors = zip(*branches)
    x = vectors[0] if len(vectors) == 1 else _LAYERS.Add()(list(vectors))
    for name in network.joint:
        if name.startswith("op:"):
            x = Operation(name[3:])(_LAYERS.Dense(4, "tanh")(x))
        else:
            x = _VECTOR[name](x)
    if network.head == "two_outputs":
        outputs = [_LAYERS.Dense(CLASSES)(x), _LAYERS.Dense(1)(x)]
    else:
        outputs = _LAYERS.Dense(CLASSES if network.head in _CLASS_HEADS else 1)(x)
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    return tf.keras.Model(given, outputs)


def _input_spec(network):
    features = [
        tf.TensorSpec([None, *_SHAPES[kind][0]], _SHAPES[kind][1])
        for kind in network.inputs
    ]
    of_classes = tf.TensorSpec([None, 1], tf.int32)
    of_values = tf.TensorSpec([None, 1], tf.float32)
    labels = of_classes if network.head in _CLASS_HEADS else of_values
    if network.head == "hinge":
        labels = tf.TensorSpec([None, CLASSES], tf.float32)
    if network.head == "two_outputs":
        labels = [of_classes, of_values]
    x = features[0] if len(features) == 1 else features
    return collections.OrderedDict(x=x, y=labels)


def examples(network, size, random):
    """Returns examples of a network."""

    def of(spec):
        shape = [size, *spec.shape[1:]]
        if spec.dtype == tf.float32:
            return random.normal(size=shape).astype(np.float32)
        return random.integers(0, CLASSES, shape).astype(np.int32)

    spec = _input_spec(network)
    made = tf.nest.map_structure(of, spec)
    if network.head == "binary":
        made["y"] = (made["y"] > 0).astype(np.float32)
    # Structures of a dataset are tuples: lists would become tensors.
    return collections.OrderedDict(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in made.items()
    )


def model_fn(network):
    """Returns what builders take: a function that makes the model, or the model."""
    spec = _input_spec(network)
    if network.head == "two_outputs":
        loss = [_cross_entropy(), tf.keras.losses.MeanSquaredError()]
    else:
        loss = {**_CLASS_HEADS, **_VALUE_HEADS}[network.head]()
    if network.form == "functional":
        return tff.learning.models.functional_model_from_keras(
            lambda: keras_model(network),
            loss_fn=loss,
            input_spec=(spec["x"], spec["y"]),
            metrics_constructor=collections.OrderedDict(
                loss=lambda: tf.keras.metrics.MeanSquaredError()
            ),
        )

    def make():
        metrics = None if network.head == "two_outputs" else [_metric(network)]
        tuples = collections.OrderedDict(
            (key, tuple(value) if isinstance(value, list) else value)
            for key, value in spec.items()
        )
        return tff.learning.models.from_keras_model(
            keras_model(network), loss=loss, input_spec=tuples, metrics=metrics
        )

    return make


def _metric(network):
    if network.head in ("classes", "masked", "ignored_class"):
        return tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
    return tf.keras.metrics.MeanSquaredError("squares")
