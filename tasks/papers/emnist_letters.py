"""EMNIST letters, split over clients.

The task "EMNIST-L" of Varno et al., AdaBest (2022,
https://arxiv.org/abs/2204.13170), section 4: 26 classes, of which each holds the
capital and the small letter; two dense layers of 100 units; 100 or 1,000 training
clients and a tenth as many for validation; B = 45, E = 5; no data augmentation.
`letters=10` takes the first ten letters alone, as the code of Acar et al., Federated
Learning Based on Dynamic Regularization (2021, https://arxiv.org/abs/2111.04263), does,
whose data AdaBest follows: https://github.com/alpemreacar/FedDyn, `utils_dataset.py`.
Pixels are standardised by the mean and the standard deviation of the training set.
Cohen et al., EMNIST: an Extension of MNIST to Handwritten Letters (2017,
https://arxiv.org/abs/1702.05373).
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
from tasks.papers import image_transforms
from tasks.registry import Option, TaskDefinition
from tasks.sources import central_data, partitioned_data

_NAME = "emnist_letters"
_NUM_CLASSES = 26

DATA = central_data.CentralData(
    file_names=("emnist_letters.npz",),
    tfds_name="emnist/letters",
    image_shape=(28, 28, 1),
    num_classes=_NUM_CLASSES,
    # The set counts from A = 1.
    first_label=1,
    transposed=True,
)


def build_keras_model(
    seed: int, num_classes: int = _NUM_CLASSES, network: str = "adabest"
) -> tf.keras.Model:
    """Returns the net: with 26 classes, 91,226 parameters.

    Args:
      seed: The seed of the initial weights.
      num_classes: The number of logits.
      network: "adabest", or "logistic" for the logits alone, of weights that start at
        zero: the convex model of Karimireddy et al., SCAFFOLD (2020, from its second
        version on, https://arxiv.org/abs/1910.06378), section 7.

    Returns:
      An uncompiled Keras model.
    """
    layers = tf.keras.layers
    if network == "logistic":
        logits = layers.Dense(num_classes, kernel_initializer="zeros")
        return tf.keras.Sequential([layers.Flatten(input_shape=(28, 28, 1)), logits])
    return nets.build_sequential(
        (28, 28, 1),
        [
            layers.Flatten(),
            layers.Dense(100, activation="relu"),
            layers.Dense(100, activation="relu"),
            layers.Dense(num_classes),
        ],
        seed,
    )


def pixel_statistics(images: np.ndarray) -> tuple[float, float]:
    """Returns the mean and the standard deviation of pixels, full bytes being 1.

    Args:
      images: `uint8` images.

    Returns:
      Mean and standard deviation.
    """
    counts = np.zeros(256, np.int64)
    # Image by image: a count converts what it counts to eight times its size.
    for image in images:
        counts += np.bincount(image.ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = np.average(values, weights=counts)
    return float(mean), float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))


def first_classes(images: central_data.Images, number: int) -> central_data.Images:
    """Returns the images of the first classes.

    Args:
      images: The images and their classes.
      number: The number of classes to keep.
    """
    kept = images.labels < number
    return central_data.Images(images.images[kept], images.labels[kept])


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
    letters = options["letters"]
    if letters > _NUM_CLASSES:
        raise ValueError(f"letters must be at most {_NUM_CLASSES}, found {letters}.")
    data = central_data.load(
        DATA, task_name=_NAME, cache_dir=cache_dir, seed=seed, options=options
    )
    data = central_data.Splits(*(first_classes(part, letters) for part in data))
    mean, std = pixel_statistics(data.train.images)

    def transform(
        examples: tuple[np.ndarray, np.ndarray], generator: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        del generator  # Nothing is distorted.
        images, labels = examples
        return image_transforms.standardize(images, mean, std), labels

    clients = partitioned_data.split_over_clients(
        data, letters, transform, seed=seed, options=options
    )
    model_fn = classification.build_model_fn(
        functools.partial(build_keras_model, seed, letters, options["network"]),
        classification.batch_spec((28, 28, 1)),
    )
    return clients, model_fn


TASK = TaskDefinition(
    "emnist_letters",
    "Handwritten letters (EMNIST letters), split with Dirichlet label skew, dense net.",
    (
        *shared.batching(45),
        Option("letters", "count", "The first letters of the alphabet; 26: all.", 26),
        Option(
            "network",
            "choice",
            "The net of AdaBest, or logistic regression.",
            "adabest",
            choices=("adabest", "logistic"),
        ),
        *shared.SPLIT,
        shared.SPLIT_VALIDATION,
        *shared.IMAGE_FILES,
    ),
    build,
    files=("emnist_letters.npz",),
)
