"""Optimizers from what builders accept: an optimizer, or a learning rate."""

from __future__ import annotations

import numbers
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.optimizers.momentum import MomentumSgd

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
      A `tff.learning.optimizers.Optimizer`; for TFF's SGD with momentum one that takes
      its steps in any float dtype.

    Raises:
      TypeError: If `value` is neither.
      ValueError: If the learning rate is not a finite number greater than 0.
    """
    if type(value) is _SGD:
        state = value.initialize(tf.TensorSpec([], tf.float32))
        hparams = value.get_hparams(state)
        return MomentumSgd(**hparams) if "momentum" in hparams else value
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
    """Returns whether an optimizer is SGD, with or without momentum."""
    return type(optimizer) in (_SGD, MomentumSgd)


def check_dtypes(
    name: str, optimizer: tff.learning.optimizers.Optimizer, specs: Any
) -> None:
    """Raises unless an optimizer takes steps of weights in their dtypes.

    In float32 all do. Some of TFF's multiply other weights by numbers of float32.

    Args:
      name: The argument's name, for the message.
      optimizer: The optimizer.
      specs: A structure of the weights' `tf.TensorSpec`s.

    Raises:
      TypeError: If its step fails.
    """
    dtypes = {spec.dtype.name for spec in tf.nest.flatten(specs)} - {"float32"}
    if not dtypes:
        return
    with tf.Graph().as_default():
        weights = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), specs
        )
        state = autograph.of_user(optimizer.initialize)(specs)
        # As tensors, which hyperparameters are in a computation.
        state = tf.nest.map_structure(tf.convert_to_tensor, state)
        try:
            autograph.of_user(optimizer.next)(state, weights, weights)
        except (TypeError, ValueError) as error:
            said = str(error).strip().rpartition("\n")[2]
            raise TypeError(
                f"{name} must take steps of the model's weights, of which some are "
                f"{checks.listed(sorted(dtypes))}, found {checks.shown(optimizer)}, "
                f"whose step fails: {checks.shortened(said)} Give an optimizer of "
                "tff_drift.optimizers, or float32 weights."
            ) from error


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
