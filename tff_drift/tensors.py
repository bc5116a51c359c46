"""Norms, scaling and flattening of structures of float tensors.

The trainable weights of a model, and whatever has their shapes, are handled as a flat
tuple of tensors, or as one vector: the form in which a client's state travels, since a
vector costs TFF's native execution far less than a tensor for each layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat

Tensors = tuple[tf.Tensor, ...]

# TensorFlow's way to say that the tensors of a list have different shapes.
ANY_SHAPE = -1


def global_norm(value: Any) -> tf.Tensor:
    """Returns the L2 norm over all tensors of `value` taken together.

    The squares are summed in float32, whatever the dtypes: those of float16
    would overflow at entries of 256. A norm above about 1.8e19 is infinite, and
    NaN anywhere gives NaN.

    Args:
      value: A structure of float tensors.

    Returns:
      A float32 scalar.
    """
    return tf.linalg.global_norm(
        [tf.cast(tensor, tf.float32) for tensor in tf.nest.flatten(value)]
    )


def scaled(value: Any, factor: tf.Tensor) -> Any:
    """Returns `value` times `factor`, in the dtypes of `value`.

    Args:
      value: A structure of float tensors.
      factor: A float32 scalar. It may be too small for float16: the products are
        computed in float32 at least.

    Returns:
      A structure like `value`.
    """

    def times_factor(tensor: tf.Tensor) -> tf.Tensor:
        dtype = tf.float64 if tensor.dtype == tf.float64 else tf.float32
        product = tf.cast(tensor, dtype) * tf.cast(factor, dtype)
        return tf.cast(product, tensor.dtype)

    return tf.nest.map_structure(times_factor, value)


def selected(condition: tf.Tensor, if_true: Any, if_false: Any) -> Any:
    """Returns one of two structures, its bits unchanged.

    Multiplying by 1 or by 0 instead would flush denormal numbers to zero, and
    turn infinity into NaN.

    Args:
      condition: A boolean scalar.
      if_true: A structure of tensors.
      if_false: A structure of tensors like `if_true`.

    Returns:
      `if_true` where `condition` holds, else `if_false`.
    """
    return tf.nest.map_structure(
        lambda x, y: tf.where(condition, x, y), if_true, if_false
    )


def to_vector(tensors: Tensors) -> tf.Tensor:
    """Returns the entries of all tensors in order, as one vector.

    Args:
      tensors: A flat sequence of tensors of one dtype.

    Returns:
      A tensor of shape `[n]`.
    """
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def from_vector(vector: tf.Tensor, like: Tensors) -> Tensors:
    """Returns the inverse of `to_vector`.

    Args:
      vector: A tensor of shape `[n]`.
      like: Tensors of the shapes to return, n entries in all.

    Returns:
      One tensor for each of `like`.
    """
    sizes = [tensor.shape.num_elements() for tensor in like]
    parts = tf.split(vector, sizes)
    return tuple(tf.reshape(part, tensor.shape) for part, tensor in zip(parts, like))


def vector_type(trainable_type: compat.Type) -> compat.TensorType:
    """Returns the type of trainable weights as a vector.

    Args:
      trainable_type: The TFF type of the trainable weights.

    Returns:
      The type `float32[n]`, for weights of another dtype alike.

    Raises:
      TypeError: If the weights are not all of one floating dtype and of shapes
        that are known.
    """
    specs = tf.nest.flatten(compat.type_to_tf_tensor_specs(trainable_type))
    dtypes = {spec.dtype for spec in specs}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_floating:
        names = sorted(dtype.name for dtype in dtypes)
        raise TypeError(
            "model_fn must build a model whose trainable weights are all of one "
            f"floating dtype, because a client's state is one vector, found {names}."
        )
    size = sum(spec.shape.num_elements() for spec in specs)
    return compat.TensorType(next(iter(dtypes)).as_numpy_dtype, [int(np.int64(size))])
