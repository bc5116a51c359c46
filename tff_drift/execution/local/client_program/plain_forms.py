"""Operations whose kernels move every value to another place, as plainer ones.

Keras' `LayerNormalization` gives TensorFlow's fused normalization its rows as the
channels of one image. The fused kernel moves values there and back, and of such calls
one at a time may run (see `graphs.functions.for_threads`).

Keras' `GroupNormalization` sums over the pixels and over the channels of a group, with
the groups between them. TensorFlow moves values for a sum over axes that are not side
by side; sums over one after the other take a tenth of the time.

Keras' attention multiplies by Einstein sums. TensorFlow's kernel moves values for them
that a product of matrices takes where they are, and takes up to twice the time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

_PIXELS = (2, 3)
_PLAIN_TYPES = (tf.float32, tf.float64)


def as_plain(operation: tf.Operation) -> list[tf.Tensor] | None:
    """Returns what an operation returns, without its kernel.

    Args:
      operation: One of `KINDS`, of one client.

    Returns:
      Its outputs; None where it has no plainer form: a normalization of several images,
      of numbers in half precision, or by other moments than the image's own; a sum or
      mean over axes that are side by side, or not known, or of integers; an Einstein
      sum that is no product of two tensors, or not of `float32` or `float64`.
    """
    return KINDS[operation.type](operation)


def pooled_by_one_thread(
    operation: tf.Operation, images: tf.Tensor
) -> tf.Tensor | None:
    """Returns a pooling by the largest value, None if it has no plainer form.

    oneDNN splits even that of few images among threads, and waits for them. TensorFlow
    leaves the second version of the operation to a kernel that does not.

    Args:
      operation: A `MaxPool` of one client.
      images: Its input, or that of several clients.
    """
    padding, form = (operation.get_attr(x).decode() for x in ("padding", "data_format"))
    if padding == "EXPLICIT" or form != "NHWC":
        return None
    return tf.raw_ops.MaxPoolV2(
        input=images,
        ksize=operation.get_attr("ksize"),
        strides=operation.get_attr("strides"),
        padding=padding,
    )


def multiplied_by_eigen(
    first: tf.Tensor,
    second: tf.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tf.Tensor:
    """Returns the products of stacks of matrices, as `tf.matmul` takes them.

    oneDNN splits even small ones among threads, and waits for them. TensorFlow leaves
    this kind of the operation to Eigen, which does not.
    """
    return tf.raw_ops.BatchMatMulV3(
        x=first, y=second, Tout=first.dtype, adj_x=transpose_a, adj_y=transpose_b
    )


def _of_one_image(operation: tf.Operation) -> list[tf.Tensor] | None:
    is_gradient = operation.type == "FusedBatchNormGradV3"
    image = operation.inputs[1 if is_gradient else 0]
    if (
        operation.get_attr("data_format") != b"NCHW"
        or image.dtype != tf.float32
        or image.shape.rank != 4
        or image.shape[0] != 1
        or not operation.get_attr("is_training")
    ):
        return None
    return _gradients(operation) if is_gradient else _normalized(operation)


def _by_neighbours(operation: tf.Operation) -> list[tf.Tensor] | None:
    """Returns a sum or a mean over one run of axes that are side by side at a time.

    The front ones first: there TensorFlow adds up many values at a time.
    """
    values, given = operation.inputs
    axes, rank = tf.get_static_value(given), values.shape.rank
    if axes is None or rank is None or values.dtype not in _PLAIN_TYPES:
        return None
    places = sorted({int(axis) % rank for axis in axes.ravel()})
    # In a run axes grow as their numbers do.
    grouped = itertools.groupby(enumerate(places), lambda each: each[1] - each[0])
    runs = [[axis for _, axis in run] for _, run in grouped]
    if len(runs) < 2:
        return None
    reduce = {"Sum": tf.reduce_sum, "Mean": tf.reduce_mean}[operation.type]
    for run in runs:
        values = reduce(values, run, keepdims=True)
    if not operation.get_attr("keep_dims"):
        values = tf.squeeze(values, places)
    return [values]


def _as_product(operation: tf.Operation) -> list[tf.Tensor] | None:
    """Returns an Einstein sum as a product of matrices."""
    terms, result = operation.get_attr("equation").decode().split("->")
    factors, (first, *others) = operation.inputs, terms.split(",")
    if len(others) != 1 or factors[0].dtype not in _PLAIN_TYPES:
        return None
    second = others[0]
    if not _is_product(first, second, result) or None in [
        x.shape.rank for x in factors
    ]:
        return None
    sizes: dict[str, int | None] = {}
    for labels, factor in zip((first, second), factors, strict=True):
        for label, size in zip(labels, factor.shape, strict=True):
            sizes[label] = sizes.get(label) if size is None else size
    # One of a shape follows from the others, if none of these is 0.
    if sum(size is None for size in sizes.values()) > 1 or 0 in sizes.values():
        return None
    shared = [[x] for x in result if x in first and x in second]
    summed = [x for x in first if x in second and x not in result]
    rows = [x for x in result if x not in second]
    columns = [x for x in result if x not in first]
    left, turn_left = _as_matrices(factors[0], first, shared, rows, summed, sizes)
    right, turn_right = _as_matrices(factors[1], second, shared, summed, columns, sizes)
    product = tf.matmul(left, right, transpose_a=turn_left, transpose_b=turn_right)
    found = [*itertools.chain(*shared), *rows, *columns]
    if not len(rows) == len(columns) == 1:
        product = _reshaped(product, [[x] for x in found], sizes)
    return [_in_order(product, [found.index(x) for x in result])]


def _is_product(first: str, second: str, result: str) -> bool:
    """Whether each axis of two factors is kept or in both, and none comes twice."""
    if "." in first + second or any(
        len(set(x)) < len(x) for x in (first, second, result)
    ):
        return False
    return set(first) ^ set(second) <= set(result)


def _as_matrices(
    factor: tf.Tensor,
    labels: str,
    shared: Sequence[list[str]],
    rows: list[str],
    columns: list[str],
    sizes: Mapping[str, int | None],
) -> tuple[tf.Tensor, bool]:
    """Returns a factor as stacked matrices, and whether these are transposed.

    Args:
      factor: The factor.
      labels: Those of its axes.
      shared: Those of the axes of the stack.
      rows: Those that are the rows of a matrix.
      columns: Those that are its columns.
      sizes: The size of each, None where it is not known.
    """
    is_turned = [*labels] == [*itertools.chain(*shared), *columns, *rows]
    matrix = [columns, rows] if is_turned else [rows, columns]
    order = [labels.index(x) for x in itertools.chain(*shared, *matrix)]
    factor = _in_order(factor, order)
    if not len(rows) == len(columns) == 1:
        factor = _reshaped(factor, [*shared, *matrix], sizes)
    return factor, is_turned


def _reshaped(
    tensor: tf.Tensor, axes: Sequence[list[str]], sizes: Mapping[str, int | None]
) -> tf.Tensor:
    """Returns a tensor with one axis for each of some that follow each other.

    At most one of the sizes is not known.
    """
    # A size that is not known is -1, and so is what it is multiplied by.
    shape = [math.prod(sizes[x] or -1 for x in axis) for axis in axes]
    return tf.reshape(tensor, [max(size, -1) for size in shape])


def _in_order(tensor: tf.Tensor, axes: list[int]) -> tf.Tensor:
    return tensor if axes == sorted(axes) else tf.transpose(tensor, axes)


def _normalized(operation: tf.Operation) -> list[tf.Tensor]:
    image, scale, offset, *averages = operation.inputs
    mean = _mean(image)
    centered = image - mean
    variance = _mean(tf.square(centered))
    result = centered * tf.math.rsqrt(variance + operation.get_attr("epsilon"))
    if not _is_filled_with(1, scale):
        result *= _by_channel(scale)
    if not _is_filled_with(0, offset):
        result += _by_channel(offset)
    mean, variance = _flat(mean), _flat(variance)
    # What is averaged over batches is without bias.
    size = tf.cast(tf.reduce_prod(tf.shape(image)[2:]), tf.float32)
    moments = [mean, variance * (size / tf.maximum(size - 1, 1))]
    share = operation.get_attr("exponential_avg_factor")
    if share != 1:
        moments = [
            (1 - share) * average + share * moment
            for average, moment in zip(averages, moments, strict=True)
        ]
    return [result, *moments, mean, variance, tf.zeros([0])]


def _gradients(operation: tf.Operation) -> list[tf.Tensor]:
    given, image, scale, mean, variance, _ = operation.inputs
    factor = tf.math.rsqrt(_by_channel(variance) + operation.get_attr("epsilon"))
    values = (image - _by_channel(mean)) * factor
    along = given * values
    of_image = given - _mean(given) - values * _mean(along)
    if not _is_filled_with(1, scale):
        factor *= _by_channel(scale)
    of_channels = [tf.reduce_sum(each, (0, *_PIXELS)) for each in (along, given)]
    return [of_image * factor, *of_channels, tf.zeros([0]), tf.zeros([0])]


def _mean(image: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(image, _PIXELS, keepdims=True)


def _by_channel(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [1, -1, 1, 1])


def _flat(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [-1])


def _is_filled_with(number: float, values: tf.Tensor) -> bool:
    """Whether all values are known to be one number, as those of Keras are."""
    return values.op.type == "Fill" and (
        tf.get_static_value(values.op.inputs[1]) == number
    )


KINDS = {
    "Einsum": _as_product,
    "FusedBatchNormV3": _of_one_image,
    "FusedBatchNormGradV3": _of_one_image,
    "Mean": _by_neighbours,
    "Sum": _by_neighbours,
}
