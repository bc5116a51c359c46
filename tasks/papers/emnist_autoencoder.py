"""Autoencoding of EMNIST characters, by writer.

The task of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), as `tff.simulation.baselines.emnist` builds it,
with the net of Hinton and Salakhutdinov, Reducing the Dimensionality of Data with
Neural Networks (2006, https://doi.org/10.1126/science.1127647): dense layers of
1000, 500, 250, 30, 250, 500, 1000 and 784 units, sigmoids except for the one of 30,
which is linear. Ink is 1 and background 0; B = 20, E = 1. The headline metric is the
mean squared error over pixels and examples: the lower, the better.

A batch's loss is a sum: over examples, of the mean squared error over pixels. The
paper's client learning rates are for it, as its code shows
(https://github.com/google-research/federated, `optimization/tasks/emnist_ae.py` at
4e06811), while TFF's baseline has the mean over examples. Methods that take the
gradient of a client's whole data need `loss="mean"`, whose gradient does not depend on
how the data is cut into batches; a rate for it is one for the sum, times the batch
size.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions
from tasks import options as shared
from tasks.models import nets
from tasks.papers import emnist_data
from tasks.registry import TaskDefinition
from tasks.sources import official_data

_NAME = "emnist_autoencoder"
_METRIC = "mean_squared_error"
_NUM_PIXELS = 28 * 28
_BOTTLENECK = 30
_WIDTHS = (1000, 500, 250, _BOTTLENECK, 250, 500, 1000, _NUM_PIXELS)

BATCH_SPEC = (
    tf.TensorSpec((None, _NUM_PIXELS), tf.float32),
    tf.TensorSpec((None, _NUM_PIXELS), tf.float32),
)


def preprocess(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's images as vectors of ink, twice."""
    pixels = features["pixels"]
    ink = 1 - pixels.reshape(len(pixels), _NUM_PIXELS)
    return ink, ink


def build_keras_model(seed: int) -> tf.keras.Model:
    """Returns the net: 2,837,314 parameters.

    Args:
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    layers = [
        tf.keras.layers.Dense(
            width, activation="linear" if width == _BOTTLENECK else "sigmoid"
        )
        for width in _WIDTHS
    ]
    return nets.build_sequential((_NUM_PIXELS,), layers, seed)


def _build_model(seed: int, loss: str) -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
        build_keras_model(seed),
        loss=tf.keras.losses.MeanSquaredError(reduction=nets.reduction(loss)),
        input_spec=BATCH_SPEC,
        metrics=[tf.keras.metrics.MeanSquaredError(_METRIC)],
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
        preprocess,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
    )
    return clients, functools.partial(_build_model, seed, options["loss"])


TASK = TaskDefinition(
    "emnist_autoencoder",
    "Autoencoding of handwritten digits and letters by writer (TFF EMNIST, "
    "62 classes), dense net with a bottleneck.",
    (
        *shared.batching(20),
        shared.LOSS,
        *shared.OFFICIAL,
    ),
    build,
    files=("emnist_all.sqlite",),
    accuracy_metric="mean_squared_error",
    higher_is_better=False,
)
