"""Convolutional nets for CIFAR images, by paper."""

from __future__ import annotations

import tensorflow as tf

from tasks.models import nets
from tff_drift.layers import Dropout

_IMAGE_SHAPE = (32, 32, 3)


def build_adabest(num_classes: int, seed: int) -> tf.keras.Model:
    """Returns the net of Varno et al., AdaBest, section 4.3.

    Two convolutions of 64 channels, 5 x 5 without padding, each with ReLU and 2 x 2
    max-pooling; dense layers of 394 and 192 units with ReLU; logits. The padding
    and the pooling are those of the code it follows, https://github.com/alpemreacar/
    FedDyn. 815,892 parameters with 10 classes.

    Args:
      num_classes: The number of classes.
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    return nets.build_sequential(
        _IMAGE_SHAPE,
        [
            layers.Conv2D(64, 5, activation="relu"),
            layers.MaxPool2D(2),
            layers.Conv2D(64, 5, activation="relu"),
            layers.MaxPool2D(2),
            layers.Flatten(),
            layers.Dense(394, activation="relu"),
            layers.Dense(192, activation="relu"),
            layers.Dense(num_classes),
        ],
        seed,
    )


def build_uga(num_classes: int, seed: int, dropout_rate: float = 0.5) -> tf.keras.Model:
    """Returns the net of Yao et al. (2019), section 4.1.

    Federated Learning with Unbiased Gradient Aggregation and Controllable Meta
    Updating (https://arxiv.org/abs/1910.08234): two convolutions of 64 channels,
    5 x 5, each with ReLU and 3 x 3 max-pooling of stride 2; dense layers of 384 and
    192 units, each with ReLU and dropout; logits. The paper says nothing of padding
    or the dropout's rate: the images are padded to their size, as in the net that
    it takes over from McMahan et al. (2017, https://arxiv.org/abs/1602.05629), and
    the rate of 0.5 is this function's choice. 1,756,426 parameters with 10 classes.

    Args:
      num_classes: The number of classes.
      seed: The seed of the initial weights.
      dropout_rate: The rate of the dropout after each dense layer.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    return nets.build_sequential(
        _IMAGE_SHAPE,
        [
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPool2D(3, strides=2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPool2D(3, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(384, activation="relu"),
            Dropout(dropout_rate),
            layers.Dense(192, activation="relu"),
            Dropout(dropout_rate),
            layers.Dense(num_classes),
        ],
        seed,
    )
