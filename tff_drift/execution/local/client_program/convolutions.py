"""Convolutions of many clients, each with filters of its own, as products.

A convolution multiplies patches of its images with its filters. With the patches as
the rows of a matrix, that of many clients is one product of stacks of matrices:

    images    [clients, examples, height, width, channels]
    patches   [clients, examples * out_height * tiles, pixels * channels]
    filters   [clients, pixels * channels, tile * filters]

and so are its gradients: by the filters that of the transposed patches and the
results' gradient, by the images that of this gradient and the transposed filters, of
which every pixel adds up those that belong to it. TensorFlow itself would run one
convolution after the other.

A patch is that of a tile: of a few results side by side, whose pixels overlap. A filter
stands in the matrix once for each of them, shifted, among zeros. That is more to
multiply and less to copy, which takes longer.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

# Private: nothing public says how one operation is converted.
from tensorflow.python.ops.parallel_for.pfor import wrap

from tff_drift.execution.local import patterns, policy
from tff_drift.execution.local.client_program import plain_forms, tiles
from tff_drift.execution.local.options import Limits

# Patches of so few channels, if each has no more than so many values and those of an
# image have no fewer than so many, are copied faster by a convolution with a filter
# that copies than pixel by pixel.
_FEW_CHANNELS, _SHORT, _MANY = 3, 64, 4_000
_DEFAULT_LIMITS = Limits()
# Those of the context whose functions are being built: the conversions are called by
# TensorFlow, which passes on nothing of ours.
_limits = contextvars.ContextVar[Limits]("limits")


def shapes_of(operation: tf.Operation) -> tuple[tf.TensorShape, tf.TensorShape]:
    """Returns the shapes of the images and the filters of a convolution.

    Args:
      operation: One of `KINDS`, of one client: a convolution, or a gradient of one.
    """
    images, filters = KINDS[operation.type]
    return images(operation).shape, filters(operation).shape


def geometry_of(operation: tf.Operation) -> tiles.Geometry | None:
    """Returns where a convolution applies its filters.

    Args:
      operation: One of `KINDS`, of one client.

    Returns:
      The geometry; None if sizes are not known, channels come first or groups of them
      have filters of their own.
    """
    images, filters = shapes_of(operation)
    if operation.get_attr("data_format") != b"NHWC":
        return None
    if images.rank != 4 or not filters.is_fully_defined():
        return None
    if not images[1:].is_fully_defined() or images[3] != filters[2]:
        return None
    height, width = (_axis(operation, place, images, filters) for place in (1, 2))
    return tiles.Geometry(height, width.tiled())


def _axis(
    operation: tf.Operation,
    place: int,
    images: tf.TensorShape,
    filters: tf.TensorShape,
) -> tiles.Axis:
    size, taps = images[place], filters[place - 1]
    stride, dilation = (
        operation.get_attr(name)[place] for name in ("strides", "dilations")
    )
    explicit = list(operation.get_attr("explicit_paddings")) or [0] * 8
    before, behind = explicit[2 * place : 2 * place + 2]
    reach = (taps - 1) * dilation + 1
    if operation.get_attr("padding") == b"SAME":
        added = max((-(-size // stride) - 1) * stride + reach - size, 0)
        before, behind = added // 2, added - added // 2
    out = (size + before + behind - reach) // stride + 1
    return tiles.Axis(size, taps, out, stride, dilation, before)


def num_patch_values(operations: Iterable[tf.Operation]) -> float:
    """Returns how many values the patches have that some operations take.

    Args:
      operations: Operations of one client, of any kind.

    Returns:
      The number, infinite if the sizes of a convolution are not known.
    """
    return sum(
        _num_patch_values(operation)
        for operation in operations
        if patterns.has_convolution([operation.type])
    )


def _num_patch_values(operation: tf.Operation) -> float:
    geometry = geometry_of(operation) if operation.type in KINDS else None
    if geometry is None:
        return math.inf
    (examples, *_, channels), _ = shapes_of(operation)
    if examples is None:
        return math.inf
    return examples * geometry.patches * geometry.patch * channels


def with_own_filters(given: Any) -> Any | None:
    """Converts a convolution, or a gradient of one, of clients with their own filters.

    Args:
      given: What `tf.vectorized_map` gives to convert, one of `KINDS`.

    Returns:
      The result; None if it is better converted as TensorFlow does, since clients
      share the filters, since patches are large or their sizes not known, or since
      filters are depthwise: TensorFlow takes clients' channels as those of one image.
    """
    geometry = _with_small_patches(given.op)
    if geometry is None:
        return None
    first, second = _FACTORS[given.op_type]
    has_filters = given.op_type != "Conv2DBackpropFilter"
    if has_filters and not given.input(second).is_stacked:
        return None
    given.stack_inputs([first, second])
    number = tf.get_static_value(given.pfor.loop_len_vector)
    clients = given.pfor.loop_len_vector[0] if number is None else int(number[0])
    kept = _KEPT.setdefault(given.pfor, {})
    product = _Product(given.op, geometry, clients, kept)
    return wrap(product.of(given.input(first).t, given.input(second).t), True)


@contextlib.contextmanager
def limited_by(limits: Limits) -> Iterator[None]:
    """Has limits decide what becomes which product, in functions built within.

    Args:
      limits: The limits of the context.
    """
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def limits_of_context() -> Limits:
    """Returns the limits of the context whose functions are being built."""
    return _limits.get(_DEFAULT_LIMITS)


def as_product(operation: tf.Operation, kept: dict[Any, tf.Tensor]) -> tf.Tensor | None:
    """Adds the product that a convolution of one client, or a gradient of one, is.

    A small one takes less time than the convolution.

    Args:
      operation: Any operation.
      kept: The patches and matrices that such products share.

    Returns:
      The result; None if it is not a convolution, or has large patches.
    """
    geometry = _with_small_patches(operation)
    if geometry is None:
        return None
    factors = [operation.inputs[k][tf.newaxis] for k in _FACTORS[operation.type]]
    return _Product(operation, geometry, 1, kept).of(*factors)[0]


def _with_small_patches(operation: tf.Operation) -> tiles.Geometry | None:
    """Returns the geometry of a convolution that is faster as a product."""
    geometry = geometry_of(operation) if operation.type in _FACTORS else None
    if geometry is None:
        return None
    images, _ = shapes_of(operation)
    num_values = geometry.patches * geometry.patch * images[-1]
    few = policy.multiply_patches(limits_of_context(), num_values)
    return geometry if few else None


class _Product:
    """A convolution of several clients, or a gradient of one, as a product.

    Args:
      operation: That of one client.
      geometry: Where it applies its filters.
      clients: The number of clients.
      kept: The patches and matrices that other products have taken, and this one
        leaves.
    """

    def __init__(
        self,
        operation: tf.Operation,
        geometry: tiles.Geometry,
        clients: Any,
        kept: dict[Any, tf.Tensor],
    ) -> None:
        self._operation, self._clients, self._geometry = operation, clients, geometry
        self._images, self._filters = shapes_of(operation)
        self._kept = kept

    def of(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Returns the product of stacks of two inputs, see `_FACTORS`."""
        of = {
            "Conv2D": self._results,
            "Conv2DBackpropFilter": self._filter_gradient,
            "Conv2DBackpropInput": self._image_gradient,
        }
        return of[self._operation.type](first, second)

    def _results(self, images: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
        patches = self._once(self._patches, images)
        product = self._multiply(patches, self._once(self._matrices, filters))
        height, width = self._geometry
        shape = [*self._counts(images), height.out, width.out, filters.shape[-1]]
        return tf.reshape(product, shape)

    def _filter_gradient(self, images: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        patches, rows = self._once(self._patches, images), self._rows(gradient)
        product = self._multiply(patches, rows, transpose_a=True)
        if self._tile > 1:
            *_, channels, count = self._filters
            _, places = tiles.filters_in_tiles(self._geometry, channels)
            product = tf.reshape(product, [self._clients, -1, count])
            product = tf.reduce_sum(tf.gather(product, places, axis=1), axis=2)
        return tf.reshape(product, [self._clients, *self._filters])

    def _image_gradient(self, gradient: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
        rows, matrices = self._rows(gradient), self._once(self._matrices, filters)
        parts = self._multiply(rows, matrices, transpose_b=True)
        length = self._geometry.patches * self._geometry.patch
        parts = tf.reshape(parts, [-1, length, self._filters[2]])
        numbers, complete = tiles.parts_of_pixels(self._geometry)
        if not complete:
            parts = tf.pad(parts, [[0, 0], [0, 1], [0, 0]])
        sums = tf.gather(parts, numbers, axis=1)
        if numbers.ndim > 1:
            sums = tf.reduce_sum(sums, axis=2)
        return tf.reshape(sums, [*self._counts(gradient), *self._images[1:]])

    def _multiply(
        self, first: tf.Tensor, second: tf.Tensor, **transposed: bool
    ) -> tf.Tensor:
        if isinstance(self._clients, int) and self._clients == 1:
            # Of stacks, TensorFlow prepares a kernel for every shape that comes.
            return tf.matmul(first[0], second[0], **transposed)
        height, width = self._geometry
        num_weights = height.out * width.out * math.prod(self._filters)
        few = policy.multiply_without_threads(limits_of_context(), num_weights)
        if few and first.dtype == tf.float32:
            return plain_forms.multiplied_by_eigen(first, second, **transposed)
        return tf.matmul(first, second, **transposed)

    def _once(
        self, make: Callable[[tf.Tensor], tf.Tensor], values: tf.Tensor
    ) -> tf.Tensor:
        """Makes patches or matrices once for all operations that take them."""
        graph = tf.compat.v1.get_default_graph()
        key = graph, values.ref(), self._geometry
        if key not in self._kept:
            self._kept[key] = make(values)
        return self._kept[key]

    def _patches(self, images: tf.Tensor) -> tf.Tensor:
        geometry, channels = self._geometry, self._images[-1]
        length = geometry.patch * channels
        many = geometry.patches * length >= _MANY
        if many and channels <= _FEW_CHANNELS and length <= _SHORT:
            patches = self._copied(tf.reshape(images, [-1, *self._images[1:]]))
        else:
            pixels = tf.reshape(images, [-1, geometry.pixels, channels])
            numbers, complete = tiles.pixels_of_patches(geometry)
            if not complete:
                pixels = tf.pad(pixels, [[0, 0], [0, 1], [0, 0]])
            patches = tf.gather(pixels, numbers, axis=1)
        clients, examples = self._counts(images)
        return tf.reshape(patches, [clients, examples * geometry.patches, length])

    def _copied(self, images: tf.Tensor) -> tf.Tensor:
        """Returns the patches of images by a convolution with filters that copy."""
        shape = [axis.across for axis in self._geometry] + [self._images[-1]]
        copying = np.eye(math.prod(shape)).reshape([*shape, -1])
        steps = [axis.tile * axis.stride for axis in self._geometry]
        padding = [[0, 0], *map(tiles.padding, self._geometry), [0, 0]]
        return tf.raw_ops.Conv2D(
            input=images,
            filter=tf.constant(copying, images.dtype),
            strides=[1, *steps, 1],
            dilations=self._operation.get_attr("dilations"),
            padding="EXPLICIT",
            explicit_paddings=list(itertools.chain(*padding)),
        )

    def _matrices(self, filters: tf.Tensor) -> tf.Tensor:
        *_, channels, count = self._filters
        length = self._geometry.taps * channels
        matrices = tf.reshape(filters, [self._clients, length, count])
        if self._tile == 1:
            return matrices
        numbers, _ = tiles.filters_in_tiles(self._geometry, channels)
        matrices = tf.pad(matrices, [[0, 0], [0, 1], [0, 0]])
        length = self._geometry.patch * channels
        return tf.reshape(
            tf.gather(matrices, numbers, axis=1),
            [self._clients, length, self._tile * count],
        )

    def _rows(self, results: tf.Tensor) -> tf.Tensor:
        """Returns results, or their gradient, with a row for each patch."""
        clients, examples = self._counts(results)
        rows = examples * self._geometry.patches
        return tf.reshape(results, [clients, rows, self._tile * self._filters[-1]])

    @property
    def _tile(self) -> int:
        return self._geometry.width.tile

    def _counts(self, stack: tf.Tensor) -> tuple[Any, Any]:
        """Returns the numbers of clients and of each one's examples."""
        examples = stack.shape[1]
        return self._clients, tf.shape(stack)[1] if examples is None else examples


# Which inputs are multiplied: first images or their results' gradient, then filters or,
# where they are what is wanted, that gradient.
_FACTORS = {
    "Conv2D": (0, 1),
    "Conv2DBackpropFilter": (0, 2),
    "Conv2DBackpropInput": (2, 1),
}
# What the conversions of one `tf.vectorized_map` share.
_KEPT: weakref.WeakKeyDictionary[Any, dict[Any, tf.Tensor]] = (
    weakref.WeakKeyDictionary()
)
# Where operations have images and filters.
_IMAGES_AND_FILTERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "": (lambda op: op.inputs[0], lambda op: op.inputs[1]),
    "BackpropFilter": (lambda op: op.inputs[0], lambda op: op.outputs[0]),
    "BackpropInput": (lambda op: op.outputs[0], lambda op: op.inputs[1]),
}
KINDS = {
    f"{convolution}{gradient}": where
    for convolution in ("Conv2D", "DepthwiseConv2dNative")
    for gradient, where in _IMAGES_AND_FILTERS.items()
}
