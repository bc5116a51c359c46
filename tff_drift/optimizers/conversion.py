"""Optimizers from what builders accept: an optimizer, or a learning rate."""

from __future__ import annotations

import numbers
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks

# An optimizer, or the learning rate of plain SGD.
OptimizerOrRate: TypeAlias = tff.learning.optimizers.Optimizer | float
_SGD = type(tff.learning.optimizers.build_sgdm())


def as_optimizer(name: str, value: Any) -> tff.learning.optimizers.Optimizer:
    """Returns an optimizer: plain SGD if only a learning rate is given.

    Args:
      name: The argument's name, for messages.
      value: A `tff.learning.optimizers.Optimizer`, or the learning rate of
        `tff.learning.optimizers.build_sgdm` without momentum.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If `value` is neither.
      ValueError: If the learning rate is not a finite number greater than 0.
    """
    if isinstance(value, tff.learning.optimizers.Optimizer):
        return value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        checks.check_positive(name, value)
        return tff.learning.optimizers.build_sgdm(float(value))
    raise TypeError(
        f"{name} must be a learning rate such as 0.1, or a "
        "tff.learning.optimizers.Optimizer such as "
        "tff.learning.optimizers.build_sgdm(0.1), found "
        f"{checks.shown(value)}.{_advice(value)}"
    )


def is_sgd(optimizer: tff.learning.optimizers.Optimizer) -> bool:
    """Returns whether an optimizer is TFF's SGD, with or without momentum."""
    return type(optimizer) is _SGD


def _advice(value: Any) -> str:
    keras = (
        tf.keras.optimizers.Optimizer,
        tf.keras.optimizers.legacy.Optimizer,
        tf.keras.optimizers.experimental.Optimizer,
    )
    keras_type = value if isinstance(value, type) else type(value)
    if issubclass(keras_type, keras) or checks.is_of_keras3(value):
        return (
            " Optimizers of Keras are not supported: take the one of the same name "
            "in tff.learning.optimizers."
        )
    if callable(value):
        return (
            " Pass an optimizer itself, not a function that builds one; what it "
            "builds must be of tff.learning.optimizers or tff_drift.optimizers."
        )
    return ""
