"""EMNIST character recognition, 62 classes, by writer.

The task of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), and of Charles et al., On Large-Cohort Training
for Federated Learning (2021, https://arxiv.org/abs/2106.07820): all writers, a
convolutional net with dropout, B = 20, E = 1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tasks import definitions
from tasks import options as shared
from tasks.models import classification, nets
from tasks.papers import emnist_data
from tasks.registry import TaskDefinition
from tasks.sources import official_data
from tff_drift.layers import Dropout

_NAME = "emnist_character"
_NUM_CLASSES = 62


def build_keras_model(seed: int) -> tf.keras.Model:
    """Returns the net: 1,206,590 parameters, logits of 62 classes.

    Args:
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    return nets.build_sequential(
        (28, 28, 1),
        [
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPool2D(2),
            Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            Dropout(0.5),
            layers.Dense(_NUM_CLASSES),
        ],
        seed,
    )


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
    clients = official_data.load_clients(
        emnist_data.build(only_digits=False),
        emnist_data.preprocess,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
    )
    model_fn = classification.build_model_fn(
        functools.partial(build_keras_model, seed), emnist_data.BATCH_SPEC
    )
    return clients, model_fn


TASK = TaskDefinition(
    "emnist_character",
    "Handwritten digits and letters by writer (TFF EMNIST, 62 classes), "
    "convolutional net with dropout.",
    (
        *shared.batching(20),
        *shared.OFFICIAL,
    ),
    build,
    files=("emnist_all.sqlite",),
)
