"""Batches that a client could have."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import checks, compat

# What is read becomes part of a computation, which must stay below 2 GB.
_MOST_BYTES = 2**30


def check_batches(name: str, batches: Any, data_type: compat.SequenceType) -> None:
    """Raises unless `batches` is a dataset that a client could have.

    Args:
      name: The argument that holds it.
      batches: The value to check.
      data_type: The type of a client's dataset.

    Raises:
      TypeError: If it is not a dataset, or one of another type.
    """
    checks.check_instance("data_type", data_type, compat.SequenceType)
    if not isinstance(batches, tf.data.Dataset):
        raise TypeError(
            f"{name} must be a tf.data.Dataset of batches, found "
            f"{type(batches).__name__}. For arrays: "
            "tf.data.Dataset.from_tensor_slices(arrays).batch(size)."
        )
    found = compat.tensorflow_to_type(batches.element_spec)
    if not data_type.element.is_assignable_from(found):
        raise TypeError(
            f"{name} must have batches of the type that the model takes, "
            f"{checks.shortened(data_type.element)}, found {checks.shortened(found)}."
        )


def read_batches(
    name: str, batches: tf.data.Dataset, most_batches: int = 2**20
) -> list[Any]:
    """Returns the batches of a dataset, as arrays, for a computation to hold.

    Args:
      name: The argument that holds the dataset.
      batches: A dataset that `check_batches` has checked.
      most_batches: The largest number of batches.

    Raises:
      ValueError: If it is endless, has more batches, or more than 1 GiB.
    """
    if batches.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"{name} is endless, as repeat() makes a dataset. Leave repeat() out, or "
            f"give {name}.take(n)."
        )
    read: list[Any] = []
    num_bytes = 0
    # A dataset may be endless without knowing it.
    for batch in batches.as_numpy_iterator():
        num_bytes += sum(np.asarray(leaf).nbytes for leaf in tf.nest.flatten(batch))
        if len(read) == most_batches or num_bytes > _MOST_BYTES:
            raise ValueError(
                f"{name} holds more than {len(read):,} batches of "
                f"{num_bytes / 1e6:,.0f} MB together; it may hold {most_batches:,} "
                f"batches, and {_MOST_BYTES / 1e6:,.0f} MB. Give fewer or larger "
                f"batches, {name}.take(n) if it is endless."
            )
        read.append(batch)
    return read
