"""EMNIST letters made of TFF's EMNIST, where the set itself is not available.

TFF's federated EMNIST (Caldas et al., 2018, LEAF, https://arxiv.org/abs/1812.01097) has
the characters of each writer in 62 classes, digits, capitals and small letters. With
capitals and small letters taken together and the digits left out it has the classes of
EMNIST letters, of other images: the writers' order, not the set's.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.sources import missing_data, sqlite_files
from tff_drift import files

_DIGITS, _LETTERS = 10, 26
FILE_NAME, _SOURCE = "emnist_letters.npz", "emnist_all.sqlite"


def write(cache_dir: str | None) -> tuple[pathlib.Path, dict[str, int]]:
    """Writes the letters of TFF's EMNIST writers as `emnist_letters.npz`.

    Writers come in the order of their ids, a writer's images in that of the file. The
    file is there whole or not at all.

    Args:
      cache_dir: The folder with TFF's EMNIST, and for the file; `None` is TFF's own.

    Returns:
      The file, and the number of images by part, "train" and "test".

    Raises:
      FileExistsError: If the file is there already.
      OSError: If TFF's EMNIST is not available, or the file cannot be written.
    """
    folder = missing_data.folder(cache_dir)
    path = folder / FILE_NAME
    if path.exists():
        raise FileExistsError(
            f"{path} exists already. Move it away to make it of TFF's writers."
        )
    source = folder / _SOURCE
    if not source.is_file():
        sqlite_files.fetch(
            source,
            _load_data,
            FILE_NAME,
            "Try again on a machine with network, or give cache_dir=FOLDER "
            f"(--cache_dir), a folder that holds {_SOURCE} already unpacked.",
        )
    parts = _load_data(str(folder))
    arrays, counts = {}, {}
    for name, part in zip(("train", "test"), parts, strict=True):
        images, labels = _letters(part)
        arrays[f"x_{name}"], arrays[f"y_{name}"] = images, labels
        counts[name] = len(labels)
    files.make_folder(folder)
    files.replace_file(path, lambda file: np.savez_compressed(file, **arrays))
    return path, counts


def _load_data(folder: str) -> Sequence[tff.simulation.datasets.ClientData]:
    """Returns the parts of TFF's EMNIST, whose file is downloaded if it is absent."""
    return tff.simulation.datasets.emnist.load_data(only_digits=False, cache_dir=folder)


def _letters(
    part: tff.simulation.datasets.ClientData,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a part's letters, `uint8`, white on black, and their classes from 1."""
    images, labels = [], []
    for client_id in part.client_ids:
        for example in part.create_tf_dataset_for_client(client_id).batch(512):
            letters = tf.cast(example["label"], tf.int32).numpy() - _DIGITS
            kept = letters >= 0
            # TFF has black on white, from 0 to 1.
            ink = 255.0 * (1.0 - example["pixels"].numpy()[kept])
            images.append(np.round(ink).astype(np.uint8))
            labels.append((letters[kept] % _LETTERS + 1).astype(np.uint8))
    return np.concatenate(images), np.concatenate(labels)
