"""Operations whose kernels move every value to another place, as plainer ones.

Keras' `LayerNormalization` gives TensorFlow's fused normalization its rows as the
channels of one image. The fused kernel moves values there and back, and of such calls
one at a time may run (see `graphs.functions.for_threads`).

Keras' `GroupNormalization` sums over the pixels and over the channels of a group, with
the groups between them. TensorFlow moves values for a sum over axes that are not side
by side; sums over one after the other take a tenth of the time.
"""

from __future__ import annotations

import itertools

import tensorflow as tf

_PIXELS = (2, 3)


def as_plain(operation: tf.Operation) -> list[tf.Tensor] | None:
    """Returns what an operation returns, without its kernel.

    Args:
      operation: One of `KINDS`, of one client.

    Returns:
      Its outputs; None where it has no plainer form: a normalization of several images,
      of numbers in half precision, or by other moments than the image's own; a sum or
      mean over axes that are side by side, or not known, or of integers.
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
    if axes is None or rank is None or values.dtype not in (tf.float32, tf.float64):
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
    "FusedBatchNormV3": _of_one_image,
    "FusedBatchNormGradV3": _of_one_image,
    "Mean": _by_neighbours,
    "Sum": _by_neighbours,
}
