"""CIFAR-10, split over clients.

Three nets in one task, by its option `network`:

*   `adabest`: Varno et al., AdaBest (2022, https://arxiv.org/abs/2204.13170),
    section 4: 100 or 1,000 training clients and a tenth as many for validation, IID
    or with Dirichlet label skew, sizes balanced or log-normal; B = 45, E = 5;
    training images flipped and cropped, each with probability 1/2.
*   `uga`: Yao et al., Federated Learning with Unbiased Gradient Aggregation and
    Controllable Meta Updating (2019, https://arxiv.org/abs/1910.08234), section
    4.1: ten clients, IID (`alpha=None, num_clients=10, validation_fraction=0`),
    B = 64 or 128, E = 2 or 5. The paper mentions no data augmentation:
    `augment=False`.
*   `resnet18`: the net of Reddi et al., Adaptive Federated Optimization (2021,
    https://arxiv.org/abs/2003.00295), see `tasks.models.resnet`, on whole images.

Pixels are standardised per channel by constants of the training set, those of
https://github.com/alpemreacar/FedDyn, whose preprocessing AdaBest follows. AdaBest
fills up the last short batch of an epoch with a bootstrap of the client's examples:
`last_batch="bootstrap"`. Krizhevsky, Learning Multiple Layers of Features from Tiny
Images (2009, https://www.cs.toronto.edu/~kriz/cifar.html).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks import options as shared
from tasks.models import classification, convolutional_nets, resnet
from tasks.papers import image_transforms
from tasks.registry import Option, TaskDefinition
from tasks.sources import central_data, partitioned_data
from tff_drift.simulation.data.examples import Transform

_NAME = "cifar10"
_NUM_CLASSES = 10
_MEAN = (0.491, 0.482, 0.447)
_STD = (0.247, 0.243, 0.262)

DATA = central_data.CentralData(
    # The second is a part of the set, for development.
    file_names=("cifar10.npz", "cifar10_subset.npz"),
    tfds_name="cifar10",
    image_shape=(32, 32, 3),
    num_classes=_NUM_CLASSES,
)

BATCH_SPEC = classification.batch_spec((32, 32, 3))

NETWORKS: Mapping[str, Callable[[int, int], tf.keras.Model]] = {
    "adabest": convolutional_nets.build_adabest,
    "uga": convolutional_nets.build_uga,
    "resnet18": functools.partial(resnet.build_resnet18, (32, 32, 3)),
}


def build_transform(
    mean: tuple[float, ...], std: tuple[float, ...], augment: bool
) -> Transform:
    """Returns the preprocessing of AdaBest's CIFAR images.

    Args:
      mean: The mean of each channel, in units of the full byte.
      std: The standard deviation of each channel.
      augment: Whether to flip and crop training images.

    Returns:
      A transform for `tff_drift.simulation.ClientDatasets`.
    """

    def transform(
        examples: tuple[np.ndarray, np.ndarray], generator: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        images, labels = examples
        images = image_transforms.standardize(images, mean, std)
        if augment and generator is not None:
            images = image_transforms.flip_and_crop(images, generator)
        return images, labels

    return transform


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
    data = central_data.load(
        DATA, task_name=_NAME, cache_dir=cache_dir, seed=seed, options=options
    )
    clients = partitioned_data.split_over_clients(
        data,
        _NUM_CLASSES,
        build_transform(_MEAN, _STD, options["augment"]),
        seed=seed,
        options=options,
    )
    model_fn = classification.build_model_fn(
        functools.partial(NETWORKS[options["network"]], _NUM_CLASSES, seed), BATCH_SPEC
    )
    return clients, model_fn


TASK = TaskDefinition(
    "cifar10",
    "Small photographs of 10 classes (CIFAR-10), split with Dirichlet "
    "label skew, convolutional net.",
    (
        *shared.batching(45),
        Option(
            "network",
            "choice",
            "The net, by paper.",
            "adabest",
            choices=("adabest", "uga", "resnet18"),
        ),
        Option(
            "augment",
            "flag",
            "Flip and crop training images, each with probability 1/2.",
            True,
        ),
        *shared.SPLIT,
        shared.SPLIT_VALIDATION,
        *shared.IMAGE_FILES,
    ),
    build,
    files=("cifar10.npz",),
)
