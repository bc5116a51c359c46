"""TFF's EMNIST: handwritten characters, a client is a writer.

The images are 28 x 28 with 1 for the background and 0 for ink, as TFF gives them
and as its baseline task and the papers use them. Cohen et al., EMNIST: an
Extension of MNIST to Handwritten Letters (2017, https://arxiv.org/abs/1702.05373);
split by writer after Caldas et al., LEAF (2018, https://arxiv.org/abs/1812.01097).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import classification
from tasks.sources import official_data

BATCH_SPEC = classification.batch_spec((28, 28, 1))


def build(only_digits: bool) -> official_data.OfficialData:
    """Returns the data set of all 62 classes, or of the 10 digits alone.

    Args:
      only_digits: Whether to leave out letters, and the writers without digits.

    Returns:
      The data set.
    """
    prefix = "digits_only" if only_digits else "all"
    return official_data.OfficialData(
        file_name="emnist_all.sqlite",
        train_split=f"{prefix}_train",
        test_split=f"{prefix}_test",
        element_spec={
            "label": tf.TensorSpec((), tf.int32),
            "pixels": tf.TensorSpec((28, 28), tf.float32),
        },
        load_data=functools.partial(
            tff.simulation.datasets.emnist.load_data, only_digits
        ),
        get_synthetic=tff.simulation.datasets.emnist.get_synthetic,
        num_classes={"label": 10 if only_digits else 62},
    )


def preprocess(
    features: Mapping[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's images, with one channel, and labels."""
    return features["pixels"][..., np.newaxis], features["label"]
