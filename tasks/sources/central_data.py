"""Image data sets that come in one piece, to be split over clients.

A set is looked for as a local file of NumPy arrays, then among the sets that
TensorFlow Datasets has prepared (https://www.tensorflow.org/datasets).
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from tasks import seeds
from tasks.sources import array_files, example_checks, missing_data
from tff_drift import checks

_PARTS = ("train", "test")
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_STAND_IN_EXAMPLES = {"train": 600, "test": 200}


class Images(NamedTuple):
    """Images and their classes.

    Attributes:
      images: `uint8[examples, rows, columns, channels]`.
      labels: `int32[examples]`, from 0.
    """

    images: np.ndarray
    labels: np.ndarray


class Splits(NamedTuple):
    """A data set's two parts."""

    train: Images
    test: Images


@dataclasses.dataclass(frozen=True)
class CentralData:
    """An image data set in one piece.

    Attributes:
      file_names: The names of a local file: the first one found is read. It holds
        the arrays `x_train`, `y_train`, `x_test` and `y_test`.
      tfds_name: Its name in TensorFlow Datasets.
      image_shape: Rows, columns and channels.
      num_classes: The number of classes.
      first_label: The label of the first class in the data.
      transposed: Whether TensorFlow Datasets swaps rows and columns.
      pool: Another source: returns the set, or `None` if the source is not in
        the folder it is given.
    """

    file_names: tuple[str, ...]
    tfds_name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    first_label: int = 0
    transposed: bool = False
    pool: Callable[[pathlib.Path], Splits | None] | None = None


def load(
    data: CentralData,
    *,
    task_name: str,
    cache_dir: str | None,
    seed: int,
    options: Mapping[str, Any],
) -> Splits:
    """Loads a data set.

    Args:
      data: The data set.
      task_name: The task that needs it, for messages.
      cache_dir: The folder with the local file or with the sets of TensorFlow
        Datasets; `None` is TFF's own, `~/.tff`, for the file and
        `~/tensorflow_datasets` for the sets.
      seed: The seed of the stand-in.
      options: The values of the task's options: `download`, whether TensorFlow
        Datasets may fetch the set, and `synthetic`, for a small stand-in instead.

    Returns:
      The train and the test split.

    Raises:
      FileNotFoundError: If the set is missing and may not be fetched.
      OSError: If it cannot be fetched.
      DataError: If the local file holds something else.
    """
    if options["synthetic"]:
        return _draw_stand_in(data, seed)
    folder = missing_data.folder(cache_dir)
    for name in data.file_names:
        if (folder / name).is_file():
            return read_file(folder / name, data)
    ways = missing_data.ways_to_go_on(
        f"{checks.shown(data.tfds_name)} through TensorFlow Datasets",
        f"with {data.file_names[0]}, which holds the arrays {', '.join(_KEYS)}, or "
        "with the set as TensorFlow Datasets prepared it",
        "a small synthetic stand-in",
    )
    found = _from_tfds(data, cache_dir, options["download"], ways)
    if found is None and data.pool is not None:
        found = data.pool(folder)
    if found is None:
        raise missing_data.absent(task_name, folder / data.file_names[0], ways)
    return found


def read_file(path: pathlib.Path, data: CentralData) -> Splits:
    """Reads a local file of arrays.

    Args:
      path: The file.
      data: The data set that it is to hold.

    Returns:
      The train and the test split.

    Raises:
      DataError: If it cannot be read, or holds something else.
    """
    arrays = array_files.read_arrays(path, _KEYS, str(path))
    return Splits(
        *(
            _images(arrays[f"x_{part}"], arrays[f"y_{part}"], data, path, part)
            for part in _PARTS
        )
    )


def _images(
    images: np.ndarray,
    labels: np.ndarray,
    data: CentralData,
    path: pathlib.Path | str,
    part: str,
) -> Images:
    """Returns checked images and labels from 0."""
    rows, columns, channels = data.image_shape
    shapes = (
        [data.image_shape, (rows, columns)] if channels == 1 else [data.image_shape]
    )
    if images.dtype != np.uint8 or images.shape[1:] not in shapes:
        raise example_checks.DataError(
            f"{path}, field 'x_{part}': expected uint8 images of shape "
            f"{data.image_shape}, found {images.dtype} and shape {images.shape[1:]}. "
            "Check that it is the right file."
        )
    labels = labels.reshape(-1) if labels.ndim == 2 else labels
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise example_checks.DataError(
            f"{path}, field 'y_{part}': expected {len(images)} integers, found "
            f"{labels.dtype} and shape {labels.shape}. Give one label per image."
        )
    example_checks.check_labels(
        labels,
        range(data.first_label, data.first_label + data.num_classes),
        f"{path}, split {checks.shown(part)}, field 'y_{part}'",
    )
    labels = labels.astype(np.int32) - np.int32(data.first_label)
    return Images(images.reshape(-1, *data.image_shape), labels)


def _from_tfds(
    data: CentralData, cache_dir: str | None, download: bool, ways: str
) -> Splits | None:
    """Returns the set that TensorFlow Datasets has, or may fetch."""
    try:
        tfds = _import_tfds()
    except ImportError as error:
        if download:
            raise FileNotFoundError(
                f"download=True needs TensorFlow Datasets: {error}. {ways}"
            ) from error
        return None
    builder = tfds.builder(data.tfds_name, data_dir=cache_dir)
    if not pathlib.Path(builder.data_path).is_dir():
        if not download:
            return None
        try:
            builder.download_and_prepare()
        except Exception as error:
            # The library lets through whatever its downloads raise.
            raise OSError(
                f"TensorFlow Datasets could not fetch {checks.shown(data.tfds_name)}: "
                f"{error}. {ways}"
            ) from error
    parts = {
        part: tfds.as_numpy(builder.as_dataset(split=part, batch_size=-1))
        for part in _PARTS
    }
    return Splits(
        *(
            _prepared(part, data, builder.data_path, name)
            for name, part in parts.items()
        )
    )


def _import_tfds() -> Any:
    """Imports TensorFlow Datasets, which takes seconds, and is needed here alone.

    Returns:
      The package's public names.

    Raises:
      ImportError: If it is absent, or fails; the message says what to install.
    """
    # The package logs what its import raises, and is then there without its names.
    logger = logging.get_absl_logger()
    was_disabled, logger.disabled = logger.disabled, True
    try:
        importlib.import_module("tensorflow_datasets")
        return importlib.import_module("tensorflow_datasets.public_api")
    except Exception as error:
        if getattr(error, "name", None) == "tensorflow_datasets":
            raise ImportError("install tensorflow-datasets") from None
        raise ImportError(
            f"its import fails ({type(error).__name__}: {checks.shortened(str(error))})"
            '; install what fits it: pip install "tff-drift[datasets]"'
        ) from error
    finally:
        logger.disabled = was_disabled


def describe_prepared(
    data: CentralData, cache_dir: str | None
) -> tuple[str, str, tuple[int, int]] | None:
    """Returns what TensorFlow Datasets has prepared of a data set.

    Args:
      data: The data set.
      cache_dir: As for `load`.

    Returns:
      Its folder, its version, and the numbers of its train and test images; `None`
      if it is not there, or TensorFlow Datasets cannot be imported.
    """
    try:
        tfds = _import_tfds()
    except ImportError:
        return None
    builder = tfds.builder(data.tfds_name, data_dir=cache_dir)
    if not pathlib.Path(builder.data_path).is_dir():
        return None
    train, test = (builder.info.splits[name].num_examples for name in _PARTS)
    return str(builder.data_path), str(builder.version), (train, test)


def _prepared(part: Any, data: CentralData, path: Any, name: str) -> Images:
    images = part["image"]
    if data.transposed:
        images = np.swapaxes(images, 1, 2)
    return _images(images, part["label"], data, str(path), name)


def _draw_stand_in(data: CentralData, seed: int) -> Splits:
    """Returns images that are noise around a pattern of their class."""
    rng = seeds.generator(seed, "stand-in")
    patterns = rng.uniform(64, 192, (data.num_classes, *data.image_shape))

    def draw(count: int) -> Images:
        labels = rng.permutation(np.arange(count, dtype=np.int32) % data.num_classes)
        noise = rng.normal(0, 32, (count, *data.image_shape))
        images = np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8)
        return Images(images, labels)

    return Splits(*(draw(count) for count in _STAND_IN_EXAMPLES.values()))
