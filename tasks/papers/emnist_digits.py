"""EMNIST digits of 100 random writers.

The task "FEMNIST" of Yao et al., Federated Learning with Unbiased Gradient
Aggregation and Controllable Meta Updating (2019, https://arxiv.org/abs/1910.08234),
section 4.2: E is 2 or 5, B is 64 or 128. The net is that of McMahan et al.,
Communication-Efficient Learning of Deep Networks from Decentralized Data (2017,
https://arxiv.org/abs/1602.05629), with dropout before the last layer. The paper
gives no dropout rate; 0.5 is this task's choice.

With `network="adabest"` the net is the one that Varno et al., AdaBest (2022,
https://arxiv.org/abs/2204.13170), section 4.2, train on EMNIST letters: two dense
layers of 100 units and no dropout. Its rounds take a fraction of the time. As there,
its pixels are standardised, by the mean and the standard deviation over the training
images: without that, on images that are nearly white, such a net hardly learns.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks import options as shared
from tasks.models import classification, nets
from tasks.papers import emnist_data, emnist_letters
from tasks.registry import Option, TaskDefinition
from tasks.sources import official_data
from tff_drift.layers import Dropout

_NAME = "emnist_digits"
_NUM_CLASSES = 10
# Over the training digits of 100 writers, where 1 is white.
_MEAN, _STD = 0.9625, 0.1622


def build_keras_model(seed: int, dropout_rate: float = 0.5) -> tf.keras.Model:
    """Returns the net: 1,663,370 parameters, logits of 10 classes.

    Args:
      seed: The seed of the initial weights.
      dropout_rate: The rate of the dropout before the last layer.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    return nets.build_sequential(
        (28, 28, 1),
        [
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            Dropout(dropout_rate),
            layers.Dense(_NUM_CLASSES),
        ],
        seed,
    )


def preprocess_standardized(
    features: Mapping[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's images, standardised and with one channel, and labels."""
    images, labels = emnist_data.preprocess(features)
    return (images - np.float32(_MEAN)) / np.float32(_STD), labels


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Builds the task.

    Args:
      cache_dir: The folder with the data files, see `tasks.load`.
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.

    Returns:
      The clients and the model function.
    """
    is_adabest = options["network"] == "adabest"
    clients = official_data.load_clients(
        emnist_data.build(only_digits=True),
        preprocess_standardized if is_adabest else emnist_data.preprocess,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
        drawn="writers",
    )
    build_net = functools.partial(build_keras_model, seed, options["dropout_rate"])
    if is_adabest:
        build_net = functools.partial(
            emnist_letters.build_keras_model, seed, _NUM_CLASSES
        )
    return clients, classification.build_model_fn(build_net, emnist_data.BATCH_SPEC)


TASK = TaskDefinition(
    "emnist_digits",
    "Handwritten digits of 100 random writers (TFF EMNIST), "
    "convolutional net with dropout.",
    (
        *shared.batching(64),
        shared.num_clients(100, "Writers drawn by the seed."),
        Option(
            "dropout_rate",
            "rate",
            "Dropout before the last layer of the convolutional net.",
            0.5,
        ),
        Option(
            "network",
            "choice",
            "The net, by paper.",
            "uga",
            choices=("uga", "adabest"),
        ),
        *shared.OFFICIAL,
    ),
    build,
    files=("emnist_all.sqlite",),
)
