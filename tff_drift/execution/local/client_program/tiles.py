"""The patches of images that convolutions multiply with their filters, as numbers.

Which pixels a patch consists of, which parts of patches a pixel is, and where filters
stand in the matrix of a tile. Nothing here is of TensorFlow.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np


class Axis(NamedTuple):
    """A convolution along the height or the width of images.

    Attributes:
      size: The pixels of an image.
      taps: The pixels of a filter.
      out: The pixels of a result.
      stride: From the patch of one result to that of the next.
      dilation: From one tap to the next.
      before: The pixels that pad the image in front.
      tile: How many results side by side have one patch.
    """

    size: int
    taps: int
    out: int
    stride: int
    dilation: int
    before: int
    tile: int = 1

    @property
    def tiles(self) -> int:
        """The number of patches."""
        return self.out // self.tile

    @property
    def across(self) -> int:
        """The pixels of a patch."""
        return (self.tile - 1) * self.stride + self.taps

    def positions(self) -> np.ndarray:
        """Returns the pixels of every patch, `[tiles, across]`; -1 outside."""
        starts = np.arange(self.tiles)[:, None] * self.tile * self.stride - self.before
        pixels = starts + np.arange(self.across) * self.dilation
        return np.where((pixels >= 0) & (pixels < self.size), pixels, -1)

    def tiled(self) -> Axis:
        """Returns the axis with at most as many results to a patch as it has taps.

        Then a patch has at most twice as many pixels as a filter, of which the results
        side by side share most.
        """
        if self.dilation > 1 or self.stride >= self.taps:
            return self
        sizes = range(1, self.taps + 1)
        return self._replace(tile=max(size for size in sizes if not self.out % size))


class Geometry(NamedTuple):
    """Where a convolution applies its filters.

    Attributes:
      height: Along the height.
      width: Along the width.
    """

    height: Axis
    width: Axis

    @property
    def taps(self) -> int:
        """The pixels of a filter."""
        return self.height.taps * self.width.taps

    @property
    def patches(self) -> int:
        """The patches of an image."""
        return self.height.tiles * self.width.tiles

    @property
    def patch(self) -> int:
        """The pixels of a patch."""
        return self.height.across * self.width.across

    @property
    def pixels(self) -> int:
        """The pixels of an image."""
        return self.height.size * self.width.size


def padding(axis: Axis) -> list[int]:
    """Returns how many pixels lie outside, in front of and behind an image."""
    reach = (axis.across - 1) * axis.dilation + 1
    end = (axis.tiles - 1) * axis.tile * axis.stride + reach
    return [axis.before, max(0, end - axis.before - axis.size)]


@functools.lru_cache(maxsize=256)
def pixels_of_patches(geometry: Geometry) -> tuple[np.ndarray, bool]:
    """Returns which pixels the patches consist of, in their order.

    Returns:
      The numbers of the pixels, that of one more for what is outside; whether none is
      outside.
    """
    rows, columns = (axis.positions() for axis in geometry)
    rows, columns = rows[:, None, :, None], columns[None, :, None, :]
    places = np.where(
        (rows < 0) | (columns < 0),
        geometry.pixels,
        rows * geometry.width.size + columns,
    )
    return places.ravel().astype(np.int32), bool((places < geometry.pixels).all())


@functools.lru_cache(maxsize=256)
def parts_of_pixels(geometry: Geometry) -> tuple[np.ndarray, bool]:
    """Returns which parts of patches each pixel is, `[pixels, most]`.

    Returns:
      The numbers of the parts, that of one more where a pixel has fewer than most;
      whether none has.
    """
    pixels, _ = pixels_of_patches(geometry)
    table, complete = _places_of(pixels, geometry.pixels)
    return table[:, 0] if table.shape[1] == 1 else table, complete


@functools.lru_cache(maxsize=256)
def filters_in_tiles(
    geometry: Geometry, channels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the rows of filters stand in the matrix of a tile.

    Returns:
      Which row stands at every pixel and channel of a patch, for every result, one
      more where none does; and the places of each row, one for every result.
    """
    height, width = geometry
    results = np.arange(width.tile)
    columns = np.arange(width.across)[:, None] - results * width.stride
    columns = np.where((columns >= 0) & (columns < width.taps), columns, -1)
    taps = np.arange(height.taps)[:, None, None] * width.taps + columns
    rows = taps[:, :, None] * channels + np.arange(channels)[:, None]
    absent = geometry.taps * channels
    rows = np.where(columns[None, :, None] < 0, absent, rows)
    numbers = rows.ravel().astype(np.int32)
    places, _ = _places_of(numbers, absent)
    return numbers, places


def _places_of(numbers: np.ndarray, count: int) -> tuple[np.ndarray, bool]:
    """Returns where each of the first numbers stands, `[count, most]`.

    Args:
      numbers: Numbers up to `count`.
      count: How many are looked for.

    Returns:
      Their places, the one behind the last where a number stands at fewer than most;
      whether none does.
    """
    places: list[list[int]] = [[] for _ in range(count + 1)]
    for place, number in enumerate(numbers):
        places[number].append(place)
    del places[-1]
    most = max(map(len, places))
    table = np.full([count, most], len(numbers), np.int32)
    for row, each in zip(table, places, strict=True):
        row[: len(each)] = each
    return table, all(len(each) == most for each in places)
