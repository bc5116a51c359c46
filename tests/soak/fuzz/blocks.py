"""Layers of random Keras models, by the kind of what they take.

Each block takes a tensor of its kind and returns one of the same rank.
"""

import tensorflow as tf

from tff_drift import layers

_LAYERS = tf.keras.layers


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


def _shared_convolution(x):
    convolution = _LAYERS.Conv2D(x.shape[-1], 3, padding="same", activation="tanh")
    return _LAYERS.Average()([convolution(x), convolution(convolution(x))])


def _shared_recurrence(x):
    recurrence = layers.GRU(x.shape[-1], return_sequences=True)
    return _LAYERS.Maximum()([recurrence(x), recurrence(recurrence(x))])


def _siamese(x):
    """Two looks at the same vector by one network, compared."""
    dense = _LAYERS.Dense(4, "tanh")
    one, other = dense(x), dense(_LAYERS.ReLU(max_value=1.0)(x))
    return _LAYERS.Concatenate()([one, _LAYERS.Dot(1)([one, other])])


class _Chosen(_LAYERS.Layer):
    """One of two denses, as the batch decides."""

    def build(self, shape):
        self._low = self.add_weight("low", [shape[-1], 4])
        self._high = self.add_weight("high", [shape[-1], 4])

    def call(self, inputs):
        chosen = tf.cond(
            tf.reduce_sum(inputs) > 0,
            lambda: tf.matmul(inputs, self._high),
            lambda: tf.tanh(tf.matmul(inputs, self._low)),
        )
        return tf.ensure_shape(chosen, [None, 4])


class _Checked(_LAYERS.Layer):
    """Refuses a batch with a value that few have."""

    def call(self, inputs):
        bound = tf.debugging.assert_less(tf.reduce_max(tf.abs(inputs)), 3.0)
        with tf.control_dependencies([] if bound is None else [bound]):
            return tf.identity(inputs)


def _new(make):
    return lambda x: make()(x)


VECTOR = {
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
    "siamese": _siamese,
    "chosen": _new(lambda: _Chosen()),
    "checked": _new(lambda: _Checked()),
    "rescaling": _new(lambda: _LAYERS.Rescaling(0.5, 0.1)),
}
# Their operations with side effects stay in the graph in which Keras builds a model, on
# inputs that nobody feeds: TFF's worker fails on functional models with them.
KEPT_OF_BUILDING = frozenset({"chosen", "checked"})
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
    "shared_convolution": _shared_convolution,
    "depthwise_strided": _new(
        lambda: _LAYERS.DepthwiseConv2D(3, 2, "same", activation="relu")
    ),
    "image_layer_norm": _new(lambda: _LAYERS.LayerNormalization()),
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
    "depthwise1d": _new(lambda: _LAYERS.DepthwiseConv1D(2, padding="same")),
    "separable1d": _new(lambda: _LAYERS.SeparableConv1D(4, 2, padding="same")),
    "shared_recurrence": _shared_recurrence,
    "per_step": _new(lambda: _LAYERS.TimeDistributed(_LAYERS.Dense(4, "tanh"))),
    "attention": _attention,
    "series_norm": _new(lambda: _LAYERS.LayerNormalization()),
}
BLOCKS = {"vector": VECTOR, "image": _IMAGE, "series": _SERIES, "tokens": _SERIES}
