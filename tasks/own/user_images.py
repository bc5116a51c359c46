"""Tasks on folders of images."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks.own import parts, user_folders, user_owners, user_tasks
from tasks.own.parts import Examples, Found
from tasks.own.user_tasks import BuildKerasModel
from tasks.sources import example_checks
from tff_drift import checks, files

# Images that TensorFlow's decoder does not read.
_UNREAD = (".webp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".ppm", ".pgm")
_WHITE = np.float32(255)
# Height, width, channels.
Shape = tuple[int, int, int]


@user_tasks.suggest_names
def from_image_folder(
    folder: str | os.PathLike[str],
    *,
    image_shape: Sequence[int] | None = None,
    test_fraction: float = 0.2,
    class_weight: Mapping[Any, float] | None = None,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of a folder of images, `client/class/image`.

    Images are PNG, JPEG, BMP or GIF, of which the first picture counts. The folder may
    have subfolders `train` and `test`, each with clients; without these a share of each
    client's examples is held out. Hidden files, and those that are no images, are left
    out; images of other kinds, such as WebP, or BMP with a table of colours, are
    refused. Pixels are as the file has them: the rotation that EXIF notes of photos is
    not applied, as in Keras.

    All images are decoded once at the start, to check them. Later each is decoded when
    its client's turn comes, so that the data may be larger than RAM. A model takes
    pixels from 0 to 1, `float32[batch, height, width, channels]`.

    Args:
      folder: The folder.
      image_shape: Height, width and channels (1 for shades of grey, 3 for colours) that
        all images are made of, by bilinear interpolation; default: as they are, which
        has to be the same for all.
      test_fraction: As for `from_frame`.
      class_weight: As for `from_frame`.
      build_keras_model: As for `from_frame`; it takes images.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client, in the order of
        classes and files.
      seed: As for `from_frame`.

    Returns:
      The task. `options["classes"]` has the names of the classes, sorted.

    Raises:
      DataError: If an image cannot be decoded, is of a kind that is not read or of
        another shape than the first, folders are of another layout, or two clients
        read alike; the message names the file.
      FileNotFoundError: If the folder has no images.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed, class_weight
    )
    checks.check_path("folder", folder)
    split = parts.Split(test_fraction, seed)
    wanted = _checked_shape(image_shape)
    folder = pathlib.Path(folder)
    images = user_folders.in_parts(folder, _clients_in, "'ann/cat/1.png'")
    first = next(
        path for paths in next(iter(images.values())).values() for path in paths
    )
    shape = _decode(first, wanted).shape
    found, owners = [], user_owners.Owners()
    for clients in images.values():
        read = functools.partial(_read, clients, wanted, shape, first)
        of_part = Found(read, functools.partial(_field, clients))
        for owner, paths in clients.items():
            owners.add_text(owner, str(paths[0].parent.parent))
            of_part.add(owner, read(owner))
        found.append(of_part)
    return user_tasks.task_of_found(
        folder.name, found, "class", None, split, training, _to_unit_range
    )


def _to_unit_range(examples: Examples, _: np.random.Generator | None) -> Examples:
    """Returns examples with pixels from 0 to 1 for bytes."""
    x, y = examples
    return x.astype(np.float32) / _WHITE, y


def _checked_shape(image_shape: Sequence[int] | None) -> Shape | None:
    if image_shape is None:
        return None
    if not isinstance(image_shape, (list, tuple)) or len(image_shape) != 3:
        raise TypeError(
            "image_shape must be height, width and channels, such as (32, 32, 3), "
            f"found {checks.shown(image_shape)}."
        )
    for size in image_shape:
        checks.check_integer("image_shape", size)
    height, width, channels = map(int, image_shape)
    if channels not in (1, 3):
        raise ValueError(
            f"image_shape must end in 1 or 3 channels, found {channels}. Give 1 for "
            "shades of grey, 3 for colours."
        )
    if height * width > 2**26:
        raise ValueError(
            f"image_shape asks for {height} by {width} pixels, found "
            f"{checks.shown(image_shape)}. Give fewer."
        )
    return height, width, channels


def _clients_in(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the images of each client of a folder, in the order of their names."""
    clients: dict[str, list[pathlib.Path]] = {}
    for client in _folders_in(folder):
        if client.name in user_folders.PARTS:
            continue
        if images := _images_in(client):
            raise example_checks.DataError(
                f"{images[0]} is not in a folder of a class: images are in "
                f"{folder / 'client' / 'class'}. If {client} is a class and no client "
                "owns the images yet, deal them out: tasks.partition(classes, 100) "
                "returns an owner for each."
            )
        paths = [path for each in _folders_in(client) for path in _images_in(each)]
        if paths:
            clients[client.name] = paths
    return clients


def _folders_in(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() and not path.name.startswith(".")
    )


def _images_in(folder: pathlib.Path) -> list[pathlib.Path]:
    images = []
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        if name.startswith("."):
            continue
        if name.endswith(_UNREAD):
            raise example_checks.DataError(
                f"{path} is an image of a kind that is not read. Write it as one of "
                f"{', '.join(user_folders.IMAGE_ENDINGS)}, or leave it out of the "
                "folder."
            )
        if name.endswith(user_folders.IMAGE_ENDINGS):
            images.append(path)
    return images


def _where(path: pathlib.Path) -> str:
    return f"{path}: client {checks.shown(path.parent.parent.name)}"


def _field(clients: Mapping[str, Sequence[pathlib.Path]], owner: str) -> str:
    return f"{clients[owner][0].parent.parent}: client {checks.shown(owner)}"


def _read(
    clients: Mapping[str, Sequence[pathlib.Path]],
    wanted: Shape | None,
    shape: Shape,
    first: pathlib.Path,
    owner: str,
) -> Examples:
    """Returns a client's images as bytes, and the names of their classes."""
    paths = clients[owner]
    images = np.empty((len(paths), *shape), np.uint8)
    for number, path in enumerate(paths):
        image = _decode(path, wanted)
        if image.shape != shape:
            # Grey ones, and those with an alpha channel, can be read in colour.
            channels = shape[2] if image.shape[2] == shape[2] else 3
            alike = (*shape[:2], channels)
            raise example_checks.DataError(
                f"{_where(path)}: the image has height, width and channels "
                f"{image.shape}, but {first} has {shape}. Give all one shape, or, in "
                f"a program, from_image_folder(..., image_shape={alike})."
            )
        images[number] = image
    return images, np.array([path.parent.name for path in paths], object)


def _decode(path: pathlib.Path, wanted: Shape | None) -> np.ndarray:
    try:
        with files.open_regular(path) as file:
            data = file.read()
        _check_no_colour_table(data, path)
        channels = wanted[2] if wanted else 0
        image = tf.io.decode_image(
            data, channels=0 if _is_fixed(data) else channels, expand_animations=False
        )
        if channels:
            image = _with_channels(image, channels)
    except OSError as error:
        raise example_checks.unreadable(_where(path), error) from error
    except tf.errors.OpError as error:
        raise example_checks.DataError(
            f"{_where(path)}: the image cannot be decoded. It may be damaged, or of "
            "another kind than its name says: write it again."
        ) from error
    if wanted and image.shape != wanted:
        resized = tf.image.resize(image, wanted[:2], antialias=True)
        image = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
    return image.numpy()


def _check_no_colour_table(data: bytes, path: pathlib.Path) -> None:
    """Raises if an image's pixels are numbers of colours, which TensorFlow leaves out.

    It reads such numbers of a BMP as shades of grey, which they are if colour 7 is 7.
    """
    bits = int.from_bytes(data[28:30], "little")
    if not data.startswith(b"BM") or not 0 < bits <= 8:
        return
    start, end = (int.from_bytes(data[at : at + 4], "little") for at in (14, 10))
    table = data[14 + start : end]
    colours = np.frombuffer(table[: len(table) // 4 * 4], np.uint8).reshape(-1, 4)
    shades = np.arange(len(colours))[:, np.newaxis]
    if bits < 8 or (colours[:, :3] != shades).any():
        raise example_checks.DataError(
            f"{_where(path)}: the image has a table of colours, and TensorFlow reads "
            "none of BMP. Write it as PNG."
        )


def _is_fixed(data: bytes) -> bool:
    """Whether TensorFlow decodes an image with its own channels alone."""
    if data.startswith(b"\xff\xd8"):
        # Of CMYK it makes colours, and no shades of grey.
        return int(tf.io.extract_jpeg_shape(data)[2]) == 4
    return data.startswith((b"BM", b"GIF"))


def _with_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image in shades of grey, or in colours, without transparency."""
    found = image.shape[-1]
    if found == 4:
        image, found = image[..., :3], 3
    if found == channels:
        return image
    convert = tf.image.rgb_to_grayscale if channels == 1 else tf.image.grayscale_to_rgb
    return convert(image)
