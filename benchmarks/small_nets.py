"""Keras' forms of the small nets that `benchmarks/rounds.py` trains."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from populations import FEW_CLASSES, SMALL_EXAMPLES


def _conv_small() -> tf.keras.Model:
    """Two small convolutions on digits of 8 x 8 pixels, and two dense layers."""
    shape = SMALL_EXAMPLES["conv_small"][0]
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(6, 3, activation="relu", input_shape=shape),
            tf.keras.layers.MaxPool2D(2),
            tf.keras.layers.Conv2D(16, 2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(120, activation="relu"),
            tf.keras.layers.Dense(FEW_CLASSES),
        ]
    )


def _mobile_block() -> tf.keras.Model:
    """Separable convolutions, as of MobileNet, on images of 16 x 16 pixels."""
    shape = SMALL_EXAMPLES["mobile_block"][0]
    conv, depthwise = tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D
    return tf.keras.Sequential(
        [
            conv(8, 3, 2, padding="same", activation="relu", input_shape=shape),
            depthwise(3, padding="same", activation="relu"),
            conv(16, 1, activation="relu"),
            depthwise(3, 2, padding="same", activation="relu"),
            conv(32, 1, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(FEW_CLASSES),
        ]
    )


def _embedding_mean() -> tf.keras.Model:
    """The mean of a text's embeddings into classes."""
    (length,), words = SMALL_EXAMPLES["embedding_mean"]
    return tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(words, 16, input_length=length),
            tf.keras.layers.GlobalAveragePooling1D(),
            tf.keras.layers.Dense(FEW_CLASSES),
        ]
    )


def _text_cnn() -> tf.keras.Model:
    """Convolutions along a text, and the largest result of each."""
    (length,), words = SMALL_EXAMPLES["text_cnn"]
    return tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(words, 16, input_length=length),
            tf.keras.layers.Conv1D(32, 3, activation="relu"),
            tf.keras.layers.GlobalMaxPooling1D(),
            tf.keras.layers.Dense(FEW_CLASSES),
        ]
    )


def _wide_and_deep() -> tf.keras.Model:
    """Columns of categories: a linear model beside a dense net on embeddings."""
    (columns,), categories = SMALL_EXAMPLES["wide_and_deep"]
    inputs = tf.keras.Input([columns], dtype=tf.int32)
    # Every column has categories of its own.
    numbers = inputs + tf.range(columns) * categories
    embedding = tf.keras.layers.Embedding
    wide = embedding(columns * categories, FEW_CLASSES)(numbers)
    deep = embedding(columns * categories, 8)(numbers)
    deep = tf.keras.layers.Flatten()(deep)
    for units in (64, 32):
        deep = tf.keras.layers.Dense(units, activation="relu")(deep)
    deep = tf.keras.layers.Dense(FEW_CLASSES)(deep)
    return tf.keras.Model(inputs, tf.reduce_sum(wide, axis=1) + deep)


def _matrix_factorization() -> tf.keras.Model:
    """The product of two embeddings, of a user and of an item, scaled by each class."""
    _, numbers = SMALL_EXAMPLES["matrix_factorization"]
    inputs = tf.keras.Input([2], dtype=tf.int32)
    users, items = (
        tf.keras.layers.Embedding(numbers, 32)(inputs[:, k]) for k in range(2)
    )
    product = tf.reduce_sum(users * items, axis=1, keepdims=True)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(FEW_CLASSES)(product))


def _siamese_pair() -> tf.keras.Model:
    """How far two vectors are apart, by one tower for both."""
    shape, _ = SMALL_EXAMPLES["siamese_pair"]
    inputs = tf.keras.Input(shape)
    tower = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(32, activation="relu"),
        ]
    )
    first, second = (tower(inputs[:, k]) for k in range(2))
    return tf.keras.Model(
        inputs, tf.keras.layers.Dense(FEW_CLASSES)(tf.abs(first - second))
    )


def _tiny_transformer() -> tf.keras.Model:
    """A block of one head, a dense layer, and the mean over the text."""
    (length,), words = SMALL_EXAMPLES["tiny_transformer"]
    inputs = tf.keras.Input([length], dtype=tf.int32)
    text = tf.keras.layers.Embedding(words, 32)(inputs)
    queries, keys, values = (tf.keras.layers.Dense(32)(text) for _ in range(3))
    scores = tf.matmul(queries, keys, transpose_b=True) / 32**0.5
    text += tf.matmul(tf.nn.softmax(scores), values)
    hidden = tf.keras.layers.Dense(64, activation="relu")(text)
    text += tf.keras.layers.Dense(32)(hidden)
    outputs = tf.keras.layers.Dense(FEW_CLASSES)(tf.reduce_mean(text, axis=1))
    return tf.keras.Model(inputs, outputs)


def _norm_transformer() -> tf.keras.Model:
    """A block with attention of two heads and layer normalization."""
    (length,), words = SMALL_EXAMPLES["norm_transformer"]
    inputs = tf.keras.Input([length], dtype=tf.int32)
    text = tf.keras.layers.Embedding(words, 32)(inputs)
    text += tf.keras.layers.MultiHeadAttention(2, 16)(text, text)
    text = tf.keras.layers.LayerNormalization()(text)
    hidden = tf.keras.layers.Dense(64, activation="relu")(text)
    text = tf.keras.layers.LayerNormalization()(
        text + tf.keras.layers.Dense(32)(hidden)
    )
    outputs = tf.keras.layers.Dense(FEW_CLASSES)(tf.reduce_mean(text, axis=1))
    return tf.keras.Model(inputs, outputs)


def _groupnorm_residual() -> tf.keras.Model:
    """A residual block with group normalization on images of 16 x 16 pixels."""
    shape, _ = SMALL_EXAMPLES["groupnorm_residual"]
    inputs = tf.keras.Input(shape)
    relu = tf.keras.layers.ReLU()
    start = tf.keras.layers.Conv2D(8, 3, 2, padding="same", activation="relu")(inputs)
    pixels = start
    for end in (relu, lambda last: last + start):
        pixels = tf.keras.layers.Conv2D(8, 3, padding="same")(pixels)
        pixels = end(tf.keras.layers.GroupNormalization(4)(pixels))
    pixels = tf.keras.layers.GlobalAveragePooling2D()(relu(pixels))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(FEW_CLASSES)(pixels))


def _table() -> tf.keras.Model:
    """Two hidden layers on a table's columns."""
    shape, _ = SMALL_EXAMPLES["table"]
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu", input_shape=shape),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(FEW_CLASSES),
        ]
    )


NETS: dict[str, Callable[[], tf.keras.Model]] = {
    "conv_small": _conv_small,
    "mobile_block": _mobile_block,
    "embedding_mean": _embedding_mean,
    "text_cnn": _text_cnn,
    "wide_and_deep": _wide_and_deep,
    "matrix_factorization": _matrix_factorization,
    "siamese_pair": _siamese_pair,
    "tiny_transformer": _tiny_transformer,
    "norm_transformer": _norm_transformer,
    "groupnorm_residual": _groupnorm_residual,
    "table": _table,
}
