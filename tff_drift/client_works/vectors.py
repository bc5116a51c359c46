"""Weights as one flat vector, the form in which client memory travels.

One vector of a client costs TFF's native execution far less than a tensor for
each layer.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tff_drift import compat
from tff_drift.client_works.local_models import Tensors


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
            f"floating dtype, because clients remember one vector, found {names}."
        )
    size = sum(spec.shape.num_elements() for spec in specs)
    return compat.TensorType(next(iter(dtypes)).as_numpy_dtype, [int(np.int64(size))])
