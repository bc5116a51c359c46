"""Batches that a client could have."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_drift import checks, compat


def check_batches(name: str, batches: Any, data_type: compat.SequenceType) -> None:
    """Raises unless `batches` is a dataset that a client could have.

    Args:
      name: The argument that holds it.
      batches: The value to check.
      data_type: The type of a client's dataset.

    Raises:
      TypeError: If it is not a dataset, or one of another type.
    """
    checks.check_instance(
        "data_type", data_type, compat.SequenceType, "a tff.SequenceType"
    )
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
            f"{data_type.element}, found {found}."
        )
