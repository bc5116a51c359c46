"""Norms, scaling and flattening of structures of float tensors.

The trainable weights of a model, and whatever has their shapes, are handled as a flat
tuple of tensors, or as one vector: the form in which a client's state travels, since a
vector costs TFF's native execution far less than a tensor for each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import compat

Tensors = tuple[tf.Tensor, ...]

# TensorFlow's way to say that the tensors of a list have different shapes.
ANY_SHAPE = -1


def eagerly(function: Callable[[], Any]) -> Any:
    """Calls a function where TensorFlow is eager, and returns its result.

    `tf.init_scope` leaves the graphs of functions, but not a `tf.Graph` such as TFF's
    computations are traced in. Another thread would be out of that, but also out of
    what Keras has for each: its dtype policy and scopes of custom objects.

    Args:
      function: What to call.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            return function()
    # Who asks to see what variables the present graph gets is not to see others.
    with tf.Graph().as_default(), tf.__internal__.eager_context.eager_mode():
        return function()


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
    wide = [tf.cast(tensor, tf.float32) for tensor in tf.nest.flatten(value)]
    if not wide:
        return tf.constant(0.0)
    # `tf.linalg.global_norm` has an operation that is not stacked over clients.
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tensor)) for tensor in wide]))


def wide(dtype: tf.DType) -> tf.DType:
    """Returns the dtype for sums over many tensors of a dtype: float32 at least."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def minus(tensors: Tensors, others: Tensors) -> Tensors:
    """Returns the differences of tensors, one by one.

    Args:
      tensors: Tensors.
      others: What is subtracted, tensors like `tensors`.
    """
    return tuple(a - b for a, b in zip(tensors, others, strict=True))


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
        dtype = wide(tensor.dtype)
        product = tf.cast(tensor, dtype) * tf.cast(factor, dtype)
        return tf.cast(product, tensor.dtype)

    return tf.nest.map_structure(times_factor, value)


def clipped(tensors: Tensors, norm: float) -> Tensors:
    """Returns tensors scaled down so that their common L2 norm is at most `norm`.

    Args:
      tensors: Float tensors, whose dtypes may differ.
      norm: The largest norm allowed, greater than 0.

    Returns:
      The tensors where their norm is at most `norm`; NaN where it is not finite.
    """
    results, _ = tf.clip_by_global_norm(_widened(tensors), norm)
    return tuple(
        tf.cast(result, tensor.dtype)
        for result, tensor in zip(results, tensors, strict=True)
    )


def clipped_product(tensors: Tensors, norm: float, vector: Tensors) -> Tensors:
    """Returns the product of a vector and the derivative of `clipped`.

    With g = `tensors`, c = `norm` and v = `vector` it is v where ‖g‖ <= c, and
    otherwise (c / ‖g‖) (v - g (g'v) / ‖g‖²): the derivative is symmetric.

    Args:
      tensors: Float tensors, whose dtypes may differ.
      norm: The largest norm that is not clipped, greater than 0.
      vector: Tensors like `tensors`.

    Returns:
      Tensors like `tensors`.
    """
    wide, wide_vector = _widened(tensors), _widened(vector)
    length = tf.linalg.global_norm(wide)
    inner = tf.add_n(
        [tf.reduce_sum(g * v) for g, v in zip(wide, wide_vector, strict=True)]
    )
    scale = tf.math.divide_no_nan(tf.cast(norm, length.dtype), length)
    along = tf.math.divide_no_nan(inner, tf.square(length))
    return tuple(
        tf.cast(tf.where(length > norm, scale * (v - along * g), v), tensor.dtype)
        for g, v, tensor in zip(wide, wide_vector, tensors, strict=True)
    )


def _widened(tensors: Tensors) -> list[tf.Tensor]:
    """Returns tensors of one dtype, float32 at least: norms need no narrower one."""
    has_doubles = any(tensor.dtype == tf.float64 for tensor in tensors)
    dtype = tf.float64 if has_doubles else tf.float32
    return [tf.cast(tensor, dtype) for tensor in tensors]


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

    Raises:
      TypeError: If they are not all of one floating dtype.
    """
    _check_one_dtype({tensor.dtype for tensor in tensors})
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
    return tuple(
        tf.reshape(part, tensor.shape) for part, tensor in zip(parts, like, strict=True)
    )


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
    _check_one_dtype(dtypes)
    size = sum(spec.shape.num_elements() for spec in specs)
    return compat.TensorType(next(iter(dtypes)).as_numpy_dtype, [int(np.int64(size))])


def _check_one_dtype(dtypes: set[tf.DType]) -> None:
    if len(dtypes) != 1 or not next(iter(dtypes)).is_floating:
        names = sorted(dtype.name for dtype in dtypes)
        raise TypeError(
            "model_fn must build a model whose trainable weights are all of one "
            f"floating dtype, because they are sent as one vector, found {names}."
        )
