"""ResNet-18 with group normalisation.

The net of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), and of Charles et al., On Large-Cohort Training
for Federated Learning (2021, https://arxiv.org/abs/2106.07820), as their code has
it: https://github.com/google-research/federated, `utils/models/resnet_models.py`.
It is He et al., Identity Mappings in Deep Residual Networks (2016,
https://arxiv.org/abs/1603.05027), where each batch normalisation is a group
normalisation (Wu and He, 2018, https://arxiv.org/abs/1803.08494) with two groups.
TensorFlow Federated's own copy of it has 32 groups instead.

The four stages all work at one resolution: none has a stride. Convolutions and the
dense layer add 0.0001 times their squared norm to the loss.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from tasks import seeds

_NUM_GROUPS = 2
_WEIGHT_DECAY = 1e-4
_STAGE_FILTERS = (64, 128, 256, 512)
_BLOCKS_PER_STAGE = 2
# One of the stem, two of each block, one of the shortcut of each stage but the
# first, and the dense layer.
_NUM_KERNELS = 1 + 2 * 8 + 3 + 1


class _Builder:
    """Makes the net's layers, each with an initializer seed of its own."""

    def __init__(self, seed: int) -> None:
        self.seeds: Iterator[int] = iter(seeds.initializer_seeds(seed, _NUM_KERNELS))

    def conv(
        self, x: tf.Tensor, filters: int, kernel_size: int, strides: int = 1
    ) -> tf.Tensor:
        return tf.keras.layers.Conv2D(
            filters,
            kernel_size,
            strides=strides,
            padding="same",
            use_bias=False,
            kernel_initializer=tf.keras.initializers.HeNormal(next(self.seeds)),
            kernel_regularizer=_decay(),
        )(x)

    def block(self, x: tf.Tensor, filters: int, normalize_first: bool) -> tf.Tensor:
        """Adds two 3 x 3 convolutions to a shortcut past them."""
        residual = self.conv(_norm_relu(x) if normalize_first else x, filters, 3)
        residual = self.conv(_norm_relu(residual), filters, 3)
        if x.shape[-1] != filters:
            x = _norm(self.conv(x, filters, 1))
        return tf.keras.layers.add([x, residual])


def _decay() -> tf.keras.regularizers.Regularizer:
    return tf.keras.regularizers.L2(_WEIGHT_DECAY)


def _norm(x: tf.Tensor) -> tf.Tensor:
    return tf.keras.layers.GroupNormalization(_NUM_GROUPS)(x)


def _norm_relu(x: tf.Tensor) -> tf.Tensor:
    return tf.keras.layers.Activation("relu")(_norm(x))


def build_resnet18(
    input_shape: tuple[int, int, int], num_classes: int, seed: int
) -> tf.keras.Model:
    """Returns the net: 11,227,812 parameters with 100 classes.

    Args:
      input_shape: Rows, columns and channels of an image.
      num_classes: The number of classes.
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model whose outputs are logits.
    """
    builder = _Builder(seed)
    inputs = tf.keras.layers.Input(input_shape)
    x = _norm_relu(builder.conv(inputs, _STAGE_FILTERS[0], 7, strides=2))
    x = tf.keras.layers.MaxPool2D(3, strides=2, padding="same")(x)
    for stage, filters in enumerate(_STAGE_FILTERS):
        for number in range(_BLOCKS_PER_STAGE):
            # The stem has normalised what the first block of all gets.
            x = builder.block(x, filters, normalize_first=stage + number > 0)
    x = tf.keras.layers.GlobalAveragePooling2D()(_norm_relu(x))
    logits = tf.keras.layers.Dense(
        num_classes,
        kernel_initializer=tf.keras.initializers.RandomNormal(
            stddev=0.01, seed=next(builder.seeds)
        ),
        kernel_regularizer=_decay(),
        bias_regularizer=_decay(),
    )(x)
    return tf.keras.Model(inputs, logits)
