"""Fused normalizations of one image, as the operations that they consist of.

Keras' `LayerNormalization` gives TensorFlow's fused normalization its rows as the
channels of one image. The fused kernel moves every value to another place and back, and
of such calls one at a time may run (see `graphs.functions.for_threads`). Plain
operations do neither.
"""

from __future__ import annotations

import tensorflow as tf

_PIXELS = (2, 3)


def as_plain(operation: tf.Operation) -> list[tf.Tensor] | None:
    """Returns what a fused normalization of one image returns, without its kernel.

    Args:
      operation: One of `KINDS`, of one client.

    Returns:
      Its outputs; None where it is of several images, of numbers in half precision, or
      by other moments than the image's own.
    """
    image = operation.inputs[_IMAGE_OF[operation.type]]
    if (
        operation.get_attr("data_format") != b"NCHW"
        or image.dtype != tf.float32
        or image.shape.rank != 4
        or image.shape[0] != 1
        or not operation.get_attr("is_training")
    ):
        return None
    return KINDS[operation.type](operation)


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


# Which function makes the outputs of an operation, and where its image is.
KINDS = {"FusedBatchNormV3": _normalized, "FusedBatchNormGradV3": _gradients}
_IMAGE_OF = {"FusedBatchNormV3": 0, "FusedBatchNormGradV3": 1}
