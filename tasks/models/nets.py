"""Nets of layers, whose initial weights follow from a seed, and batches' losses."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tasks import seeds


def build_sequential(
    input_shape: Sequence[int], layers: Sequence[tf.keras.layers.Layer], seed: int
) -> tf.keras.Model:
    """Returns a net whose kernels start as Glorot and Bengio (2010) draw them.

    Args:
      input_shape: The shape of an example.
      layers: The layers, not built yet, each with a seed of its own for its kernel.
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    kernels = [layer for layer in layers if hasattr(layer, "kernel_initializer")]
    for layer, layer_seed in zip(
        kernels, seeds.initializer_seeds(seed, len(kernels)), strict=True
    ):
        layer.kernel_initializer = tf.keras.initializers.GlorotUniform(layer_seed)
    return tf.keras.Sequential([tf.keras.Input(tuple(input_shape)), *layers])


def reduction(loss: str) -> str:
    """Returns how Keras makes the loss of a batch of those of its examples.

    Args:
      loss: "sum" or "mean".
    """
    reductions = tf.keras.losses.Reduction
    return reductions.SUM if loss == "sum" else reductions.SUM_OVER_BATCH_SIZE
