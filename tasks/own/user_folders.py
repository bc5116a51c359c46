"""Finding of the files of clients in a user's folder."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from tasks.sources import example_checks
from tff_drift import checks

PARTS = ("train", "test")
ARRAYS = ".npz"
PARQUET = ".parquet"
# Of the images that TensorFlow's decoder reads.
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
_SUFFIXES = (".csv", ".csv.gz", PARQUET, ARRAYS)
_EXAMPLE = "'ann.csv' or 'ann.npz'"

_Found = TypeVar("_Found")


def find_files(folder: pathlib.Path) -> dict[str, dict[str, pathlib.Path]]:
    """Returns the files of a folder's clients by part and client.

    Args:
      folder: The folder. Files of other kinds, and hidden ones, are left out.

    Returns:
      As `in_parts`.

    Raises:
      DataError: If a client has two files; and as in `in_parts`.
      FileNotFoundError: As in `in_parts`.
    """
    return in_parts(folder, files_in, _EXAMPLE)


def _of_images(place: pathlib.Path, example: str) -> str:
    """Returns how images are laid out, if a folder has some where tables go."""
    is_of_tables = example == _EXAMPLE
    has_images = any(
        path.name.lower().endswith(IMAGE_ENDINGS) and not path.name.startswith(".")
        for pattern in ("*", "*/*")
        for path in place.glob(pattern)
    )
    if not is_of_tables or not has_images:
        return ""
    return (
        " Of images, put each into a folder of its client and class: "
        "'ann/cat/1.png'. If no client owns them yet, tasks.partition(classes, 100) "
        "deals them out."
    )


def in_parts(
    folder: pathlib.Path,
    find: Callable[[pathlib.Path], dict[str, _Found]],
    example: str,
) -> dict[str, dict[str, _Found]]:
    """Returns what a folder has to train and to test on.

    Args:
      folder: The folder.
      find: Returns what a folder has of clients, empty if it has nothing.
      example: What it may have, in quotes, for messages.

    Returns:
      What is in the subfolders "train" and "test", or, if there are none, what is in
      the folder itself as "train".

    Raises:
      DataError: If something is both in the folder and in a subfolder.
      FileNotFoundError: If there is no folder, nothing to train on, or nothing in a
        subfolder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {checks.shown(str(folder))}. Give another."
        )
    parts = [part for part in PARTS if (folder / part).is_dir()]
    if parts == ["test"]:
        raise FileNotFoundError(
            f"{checks.shortened(folder)} has a subfolder 'test', but none 'train'. Put "
            "the files of clients to train on there."
        )
    own = find(folder)
    if parts and own:
        raise example_checks.DataError(
            f"There are files of clients both in {folder}, such as "
            f"{_name(next(iter(own.items())))}, and in its subfolder "
            f"{checks.shown(parts[0])}. Put each in a subfolder 'train' or 'test'."
        )
    found = {part: find(folder / part) for part in parts} or {"train": own}
    for part, clients in found.items():
        if not clients:
            place = folder / part if parts else folder
            raise FileNotFoundError(
                f"{checks.shortened(place)} has no files of clients. Put one there for "
                f"each, such as {example}.{_of_images(place, example)}"
            )
    return found


def _name(item: tuple[str, Any]) -> str:
    client, place = item
    return place.name if isinstance(place, pathlib.Path) else client


def files_in(place: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the files of clients in a folder, by client; none if there is no folder.

    Args:
      place: The folder.

    Raises:
      DataError: If a client has two files.
    """
    paths: dict[str, pathlib.Path] = {}
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        client = client_of(path)
        if client == path.name or path.name.startswith("."):
            continue
        if client in paths:
            raise example_checks.DataError(
                f"Client {checks.shown(client)} has two files, {paths[client]} and "
                f"{path}. Leave one."
            )
        paths[client] = path
    return paths


def client_of(path: pathlib.Path) -> str:
    """Returns whose file it is, the whole name if it is of another kind.

    Args:
      path: The file.
    """
    name = path.name.lower()
    endings = [ending for ending in _SUFFIXES if name.endswith(ending)]
    return path.name[: -len(max(endings, key=len))] if endings else path.name
