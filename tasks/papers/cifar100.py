"""CIFAR-100, by TFF's partition or split over clients.

Two settings in one task, by its option `setting`:

*   `large_cohort`: TFF's federated set, 500 training clients of 100 images each,
    made by Pachinko allocation over coarse and fine classes, and ResNet-18 with
    group normalisation; B = 20, E = 1. Images are cropped to the central 24 x 24
    pixels and standardised one by one, in Charles et al., On Large-Cohort Training
    for Federated Learning (2021, https://arxiv.org/abs/2106.07820), for training
    and testing alike. Reddi et al., Adaptive Federated Optimization (2021,
    https://arxiv.org/abs/2003.00295), crop training images at random and mirror
    half of them: `augment=True`.
*   `adabest`: Varno et al., AdaBest (2022, https://arxiv.org/abs/2204.13170),
    section 4: the set in one piece, split over clients as in
    `tasks.papers.cifar10`, and the net used there; B = 45, E = 5. The options from
    `num_clients` to `size_sigma` are for this setting. Without another copy of the set
    its images come from TFF's file, whose clients together hold all of them.

Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009,
https://www.cs.toronto.edu/~kriz/cifar.html).
"""

from __future__ import annotations

import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions
from tasks import options as shared
from tasks.models import classification, convolutional_nets, resnet
from tasks.papers import cifar10, image_transforms
from tasks.registry import Option, TaskDefinition
from tasks.sources import central_data, official_data, partitioned_data, sqlite_files
from tff_drift.simulation.data.examples import Transform

_NAME = "cifar100"
_NUM_CLASSES = 100
_CROP_SIZE = 24
# The training set's statistics by channel, as https://github.com/alpemreacar/FedDyn
# has them.
_MEAN = (0.5071, 0.4867, 0.4408)
_STD = (0.2675, 0.2565, 0.2761)

# What each setting has for options that are not given.
_BY_SETTING = {
    "large_cohort": {"batch_size": 20, "validation_fraction": 0.0, "augment": False},
    "adabest": {"batch_size": 45, "validation_fraction": 0.1, "augment": True},
}

FEDERATED = official_data.OfficialData(
    file_name="cifar100.sqlite",
    train_split="train",
    test_split="test",
    element_spec={
        "image": tf.TensorSpec((32, 32, 3), tf.uint8),
        "label": tf.TensorSpec((), tf.int64),
    },
    load_data=tff.simulation.datasets.cifar100.load_data,
    get_synthetic=tff.simulation.datasets.cifar100.get_synthetic,
    num_classes={"label": _NUM_CLASSES},
)


def _pool(folder: pathlib.Path) -> central_data.Splits | None:
    """Returns all images of TFF's file, if it is in the folder."""
    path = folder / FEDERATED.file_name
    if not path.is_file():
        return None
    splits = (FEDERATED.train_split, FEDERATED.test_split)
    reader = sqlite_files.SqliteExamples(
        path, splits, FEDERATED.element_spec, FEDERATED.num_classes
    )

    def read_all(split_name: str) -> central_data.Images:
        clients = [
            reader.read(split_name, client_id)
            for client_id in reader.client_ids(split_name)
        ]
        images = np.concatenate([client["image"] for client in clients])
        labels = np.concatenate([client["label"] for client in clients])
        return central_data.Images(images, labels.astype(np.int32))

    return central_data.Splits(*map(read_all, splits))


CENTRAL = central_data.CentralData(
    file_names=("cifar100.npz",),
    tfds_name="cifar100",
    image_shape=(32, 32, 3),
    num_classes=_NUM_CLASSES,
    pool=_pool,
)


def select(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's images as bytes, and labels."""
    return features["image"], features["label"]


def build_transform(augment: bool) -> Transform:
    """Returns the preprocessing of the setting `large_cohort`.

    Args:
      augment: Whether to crop training images at random and mirror half of them.

    Returns:
      A transform for `tff_drift.simulation.ClientDatasets`.
    """

    def transform(
        examples: tuple[np.ndarray, np.ndarray], generator: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        images, labels = examples
        if augment and generator is not None:
            images = image_transforms.random_crop(images, _CROP_SIZE, generator)
        else:
            images = image_transforms.central_crop(images, _CROP_SIZE)
        return image_transforms.standardize_each(images), labels

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
    setting = options["setting"]
    given = {name: value for name, value in options.items() if value is not None}
    # `alpha=None` has a meaning of its own.
    options = types.MappingProxyType({**options, **_BY_SETTING[setting], **given})
    if setting == "adabest":
        return _build_adabest(cache_dir, seed, options)
    clients = official_data.load_clients(
        FEDERATED,
        select,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
        transform=build_transform(options["augment"]),
    )
    shape = (_CROP_SIZE, _CROP_SIZE, 3)
    model_fn = classification.build_model_fn(
        functools.partial(resnet.build_resnet18, shape, _NUM_CLASSES, seed),
        classification.batch_spec(shape, tf.int64),
    )
    return clients, model_fn


def _build_adabest(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    data = central_data.load(
        CENTRAL, task_name=_NAME, cache_dir=cache_dir, seed=seed, options=options
    )
    clients = partitioned_data.split_over_clients(
        data,
        _NUM_CLASSES,
        cifar10.build_transform(_MEAN, _STD, options["augment"]),
        seed=seed,
        options=options,
    )
    model_fn = classification.build_model_fn(
        functools.partial(convolutional_nets.build_adabest, _NUM_CLASSES, seed),
        cifar10.BATCH_SPEC,
    )
    return clients, model_fn


TASK = TaskDefinition(
    "cifar100",
    "Small photographs of 100 classes (TFF CIFAR-100), ResNet-18 with "
    "group normalisation; or split over clients, convolutional net.",
    (
        Option(
            "batch_size",
            "count",
            "Examples in a training batch; none takes the setting's, 20 or 45.",
            None,
            may_be_none=True,
        ),
        *shared.batching_but_size(),
        Option(
            "setting",
            "choice",
            "The paper whose clients and net to take.",
            "large_cohort",
            choices=("large_cohort", "adabest"),
        ),
        Option(
            "augment",
            "flag",
            "Distort training images; none: only in the setting adabest.",
            None,
            may_be_none=True,
        ),
        *shared.SPLIT,
        Option(
            "validation_fraction",
            "rate",
            "Clients held out for tuning; none: 0, or 0.1 in the setting adabest.",
            None,
            may_be_none=True,
        ),
        *shared.OFFICIAL_FILES,
    ),
    build,
    files=("cifar100.sqlite",),
)
