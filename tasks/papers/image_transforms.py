"""Transforms of images before and during training.

Images are arrays `[examples, rows, columns, channels]`. The functions that take a
generator draw for every image anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Acar et al. pad with this many pixels before they crop.
_PADDING = 4


def standardize(
    images: np.ndarray, mean: float | Sequence[float], std: float | Sequence[float]
) -> np.ndarray:
    """Returns bytes as numbers with given statistics taken out.

    Args:
      images: `uint8` images.
      mean: The mean to subtract, per channel or of all, in units of the full byte.
      std: The standard deviation to divide by, likewise.

    Returns:
      (images / 255 - mean) / std, as `float32`.
    """
    scale = 1 / (255 * np.asarray(std, np.float64))
    offset = np.asarray(mean, np.float64) / np.asarray(std, np.float64)
    return images * scale.astype(np.float32) - offset.astype(np.float32)


def flip_and_crop(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Flips and crops images at random, each with probability 1/2.

    As Varno et al., AdaBest (2022, https://arxiv.org/abs/2204.13170), after Acar et
    al., Federated Learning Based on Dynamic Regularization (2021,
    https://arxiv.org/abs/2111.04263), whose code (https://github.com/alpemreacar/
    FedDyn) gives the details: half the images, at random, are mirrored; a half
    drawn anew is padded with four zeros on each side and cut to its size at a
    place drawn uniformly.

    Args:
      images: The images, standardised, so that zero is the mean.
      generator: The random generator.

    Returns:
      As many images of the same size.
    """
    count, rows, columns, _ = images.shape
    images = images.copy()
    mirrored = generator.random(count) < 0.5
    images[mirrored] = images[mirrored, :, ::-1]
    cropped = np.flatnonzero(generator.random(count) < 0.5)
    margins = ((0, 0), (_PADDING, _PADDING), (_PADDING, _PADDING), (0, 0))
    images[cropped] = _windows(
        np.pad(images[cropped], margins), rows, columns, generator
    )
    return images


def random_crop(
    images: np.ndarray, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Returns a square of each image, at a place drawn uniformly, and flips half.

    The augmentation of CIFAR-100 in Reddi et al., Adaptive Federated Optimization
    (2021, https://arxiv.org/abs/2003.00295).

    Args:
      images: The images.
      size: Rows and columns of the squares.
      generator: The random generator.

    Returns:
      The squares.
    """
    squares = _windows(images, size, size, generator)
    mirrored = generator.random(len(squares)) < 0.5
    squares[mirrored] = squares[mirrored, :, ::-1]
    return squares


def _windows(
    images: np.ndarray, rows: int, columns: int, generator: np.random.Generator
) -> np.ndarray:
    """Returns a window of each image at a place drawn uniformly."""
    count, image_rows, image_columns, _ = images.shape
    top = generator.integers(image_rows - rows, size=count, endpoint=True)
    left = generator.integers(image_columns - columns, size=count, endpoint=True)
    row = top[:, np.newaxis] + np.arange(rows)
    column = left[:, np.newaxis] + np.arange(columns)
    image = np.arange(count)[:, np.newaxis, np.newaxis]
    return images[image, row[:, :, np.newaxis], column[:, np.newaxis, :]]


def central_crop(images: np.ndarray, size: int) -> np.ndarray:
    """Returns the square in the middle of each image.

    Args:
      images: The images.
      size: Rows and columns of the squares.

    Returns:
      The squares, as `tf.image.resize_with_crop_or_pad` cuts them.
    """
    top, left = ((length - size) // 2 for length in images.shape[1:3])
    return images[:, top : top + size, left : left + size]


def standardize_each(images: np.ndarray) -> np.ndarray:
    """Returns images with mean 0 and standard deviation 1 each, as `float32`.

    Args:
      images: The images.

    Returns:
      What `tf.image.per_image_standardization` makes of them.
    """
    return tf.image.per_image_standardization(images.astype(np.float32)).numpy()
