"""Real handwritten digits that come with scikit-learn: no network, no file.

The 1,797 images of 8 x 8 pixels are the test set of Alpaydin and Kaynak, Optical
Recognition of Handwritten Digits (1998, https://doi.org/10.24432/C50P49). A fifth
is held out for tests. The rest is split over clients with Dirichlet label skew;
each client's test examples follow its own class proportions, so that percentiles
over clients tell how well a model serves each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn.datasets
import tensorflow as tf

from tasks import definitions, partitioners, seeds
from tasks import options as shared
from tasks.models import classification, nets
from tasks.registry import TaskDefinition
from tasks.sources import partitioned_data
from tff_drift.simulation import ClientDatasets

_NUM_CLASSES = 10
_NUM_PIXELS = 64
_TEST_FRACTION = 0.2
# The images count the dark ones of 16 dots per pixel.
_MAX_PIXEL = 16.0


def build_keras_model(seed: int) -> tf.keras.Model:
    """Returns a net with one hidden layer of 50 units: 3,760 parameters.

    Args:
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    return nets.build_sequential(
        (_NUM_PIXELS,),
        [layers.Dense(50, activation="relu"), layers.Dense(_NUM_CLASSES)],
        seed,
    )


def _split_over_clients(
    images: np.ndarray,
    labels: np.ndarray,
    num_clients: int,
    proportions: np.ndarray | None,
    seed: int,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    sizes = partitioners.balanced_sizes(len(labels), num_clients)
    shares = partitioned_data.partition(labels, proportions, sizes, seed)
    ids = partitioners.client_ids(num_clients)
    return {
        client_id: (images[share], labels[share])
        for client_id, share in zip(ids, shares, strict=True)
    }


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
    del cache_dir  # The data comes with scikit-learn.
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    images = (images / _MAX_PIXEL).astype(np.float32)
    labels = labels.astype(np.int32)
    order = seeds.generator(seed, "held-out examples").permutation(len(labels))
    num_test = int(len(labels) * _TEST_FRACTION)
    num_clients = options["num_clients"]
    if num_clients > num_test:
        raise ValueError(
            f"num_clients must be at most {num_test}, found {num_clients}: every "
            "client needs an example of the test set."
        )
    proportions = None
    if options["alpha"] is not None:
        proportions = partitioners.dirichlet_proportions(
            num_clients, _NUM_CLASSES, options["alpha"], seed
        )
    train, test = (
        _split_over_clients(images[rows], labels[rows], num_clients, proportions, seed)
        for rows in (order[num_test:], order[:num_test])
    )
    batching = {**definitions.batching(options), "seed": seed}
    model_fn = classification.build_model_fn(
        functools.partial(build_keras_model, seed),
        classification.batch_spec((_NUM_PIXELS,)),
    )
    clients = definitions.Clients(
        ClientDatasets.from_arrays(train, **batching),
        ClientDatasets.from_arrays(test, **{**batching, "max_examples": None}),
    )
    return clients, model_fn


TASK = TaskDefinition(
    "digits",
    "Handwritten 8 x 8 digits that come with scikit-learn, split with "
    "Dirichlet label skew, small dense net.",
    (
        *shared.batching(10),
        shared.num_clients(50),
        shared.ALPHA,
    ),
    build,
)
