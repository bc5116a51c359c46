"""Which results of a convolution share a patch, and the products of these."""

import numpy as np
import pytest
import tensorflow as tf

from tff_drift import execution
from tff_drift.execution.local.client_program import convolutions, tiles


@pytest.mark.parametrize(
    ("out", "taps", "stride", "dilation", "tile"),
    [
        (8, 5, 1, 1, 4),
        (10, 5, 1, 1, 5),
        (26, 3, 1, 1, 2),
        (12, 5, 2, 1, 4),
        # A prime number of results, filters of one pixel, and patches that share none.
        (13, 5, 1, 1, 1),
        (8, 1, 1, 1, 1),
        (8, 3, 3, 1, 1),
        (8, 3, 1, 2, 1),
    ],
)
def test_tiles_divide_the_results(out, taps, stride, dilation, tile):
    axis = tiles.Axis((out - 1) * stride + taps, taps, out, stride, dilation, 0)
    assert axis.tiled().tile == tile


def test_the_pixels_and_filters_of_a_tile_by_hand():
    """Four results of a filter of three pixels in a row of four, padded by one."""
    row = tiles.Axis(4, 3, 4, 1, 1, 1, tile=2)
    geometry = tiles.Geometry(tiles.Axis(1, 1, 1, 1, 1, 0), row)
    pixels, complete = tiles.pixels_of_patches(geometry)
    # Pixel 4 is outside.
    assert pixels.tolist() == [4, 0, 1, 2, 1, 2, 3, 4]
    assert not complete
    parts, complete = tiles.parts_of_pixels(geometry)
    assert parts.tolist() == [[1, 8], [2, 4], [3, 5], [6, 8]]
    assert not complete
    numbers, places = tiles.filters_in_tiles(geometry, 1)
    # At every pixel of the patch, for both results; 3 where no tap stands.
    assert numbers.reshape(4, 2).tolist() == [[0, 3], [1, 0], [2, 1], [3, 2]]
    assert places.tolist() == [[0, 3], [2, 5], [4, 7]]


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("padding", ["VALID", "SAME", [[0, 0], [2, 1], [0, 3], [0, 0]]])
@pytest.mark.parametrize("strides", [1, 2, (2, 1), 3])
@pytest.mark.parametrize(("size", "taps"), [((9, 14), (3, 4)), ((36, 30), (5, 5))])
def test_products_are_the_convolution_and_its_gradients(
    size, taps, strides, padding, channels
):
    random = np.random.default_rng(3)
    images = random.normal(size=(2, *size, channels))
    filters = random.normal(size=(*taps, channels, 3))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.constant(images), tf.constant(filters)
        result = tf.nn.conv2d(*given, strides, padding)
        of_result = tf.constant(random.normal(size=result.shape))
        gradients = tf.gradients(result, given, of_result)
        kept = {}
        for expected in (result, *gradients):
            with convolutions.limited_by(execution.Limits(largest_patches=10**6)):
                product = convolutions.as_product(expected.op, kept)
            actual, expected = session.run([product, expected])
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
