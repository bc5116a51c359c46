"""The tasks' data on this machine, and whether it is whole."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable

from tasks import registry
from tasks.papers import cifar10, cifar100, emnist_letters
from tasks.sources import central_data, missing_data, sqlite_files, stackoverflow_data

# Clients and examples of each split, as the texts of TFF's loaders give them.
_OFFICIAL_COUNTS: dict[str, dict[str, tuple[int, int]]] = {
    "emnist_all.sqlite": {
        "all_train": (3_400, 671_585),
        "all_test": (3_400, 77_483),
        "digits_only_train": (3_383, 341_873),
        "digits_only_test": (3_383, 40_832),
    },
    "cifar100.sqlite": {"train": (500, 50_000), "test": (100, 10_000)},
    "shakespeare.sqlite": {"train": (715, 16_068), "test": (715, 2_356)},
    "stackoverflow.sqlite": {
        "train": (342_477, 135_818_730),
        "heldout": (38_758, 16_491_230),
        "test": (204_088, 16_586_035),
    },
}
# By task, its images and the official numbers of those to train and to test on.
_OFFICIAL_IMAGES = {
    "cifar10": (cifar10.DATA, (50_000, 10_000)),
    "cifar100": (cifar100.CENTRAL, (50_000, 10_000)),
    "emnist_letters": (emnist_letters.DATA, (88_800, 14_800)),
}
# The entries of each that the papers' tasks need.
_COUNT_FILES = {"stackoverflow.word_count": 10_000, "stackoverflow.tag_count": 500}

COMPLETE = "complete"
PART = "a part"
MISSING = "missing"
DAMAGED = "damaged"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The state of a file or a data set.

    Attributes:
      name: The name of the file or the set.
      tasks: The tasks that use it.
      state: "complete" if it has the official counts, "a part" if it has others,
        "missing" or "damaged".
      contents: What it holds, where it lies or what is wrong, in short lines.
      source: Where it comes from.
    """

    name: str
    tasks: tuple[str, ...]
    state: str
    contents: tuple[str, ...]
    source: str


def inspect(cache_dir: str | None) -> list[Finding]:
    """Looks at all data of the tasks.

    Args:
      cache_dir: The folder that `tasks.load` would look into.

    Returns:
      One finding per file or set.
    """
    folder = missing_data.folder(cache_dir)
    findings = [
        _look(name, folder / name, _tasks_with(name), "TFF", _read_sqlite)
        for name in _OFFICIAL_COUNTS
    ]
    for name in _COUNT_FILES:
        path = stackoverflow_data.find_unpacked_counts(name, cache_dir)
        findings.append(
            _look(
                f"datasets/{name}",
                path or folder / "datasets" / name,
                _tasks_with(name),
                "TFF",
                _read_counts,
            )
        )
    for task, (data, official) in _OFFICIAL_IMAGES.items():
        findings.append(_look_at_images(task, data, official, folder, cache_dir))
    return findings


def _tasks_with(file: str) -> tuple[str, ...]:
    """Returns the tasks that need a file."""
    known = registry.names()
    return tuple(name for name in known if file in registry.describe(name).files)


def _look(
    name: str,
    path: pathlib.Path,
    of_tasks: tuple[str, ...],
    source: str,
    read: Callable[[pathlib.Path], tuple[str, list[str]]],
) -> Finding:
    if not path.is_file():
        return Finding(name, of_tasks, MISSING, (f"not in {path.parent}",), source)
    try:
        state, contents = read(path)
    except (OSError, ValueError) as error:
        return Finding(name, of_tasks, DAMAGED, (str(error),), source)
    return Finding(name, of_tasks, state, (str(path), *contents), source)


def _read_sqlite(path: pathlib.Path) -> tuple[str, list[str]]:
    official = _OFFICIAL_COUNTS[path.name]
    found = sqlite_files.count_clients(path, list(official))
    contents = [
        f"{split}: {clients:,} clients, {examples:,} examples"
        + ("" if (clients, examples) == official[split] else _of(*official[split]))
        for split, (clients, examples) in found.items()
    ]
    return (COMPLETE if found == official else PART), contents


def _of(clients: int, examples: int) -> str:
    return f" (of {clients:,} and {examples:,})"


def _read_counts(path: pathlib.Path) -> tuple[str, list[str]]:
    count, needed = stackoverflow_data.count_entries(path), _COUNT_FILES[path.name]
    # The official numbers are not documented; a task needs so many.
    contents = f"{count:,} entries; the papers' tasks need {needed:,}"
    return (COMPLETE if count >= needed else PART), [contents]


def _look_at_images(
    task: str,
    data: central_data.CentralData,
    official: tuple[int, int],
    folder: pathlib.Path,
    cache_dir: str | None,
) -> Finding:
    read = functools.partial(_read_images, data=data, official=official)
    for name in data.file_names:
        if (folder / name).is_file():
            return _look(name, folder / name, (task,), "a local file", read)
    source = "TensorFlow Datasets"
    prepared = central_data.describe_prepared(data, cache_dir)
    if prepared is None:
        return Finding(
            data.file_names[0],
            (task,),
            MISSING,
            (f"not in {folder}, and not prepared by TensorFlow Datasets",),
            source,
        )
    place, version, counts = prepared
    contents = (place, f"version {version}", *_describe_images(counts, official))
    state = COMPLETE if counts == official else PART
    return Finding(data.tfds_name, (task,), state, contents, source)


def _read_images(
    path: pathlib.Path, *, data: central_data.CentralData, official: tuple[int, int]
) -> tuple[str, list[str]]:
    splits = central_data.read_file(path, data)
    counts = (len(splits.train.labels), len(splits.test.labels))
    return (COMPLETE if counts == official else PART), _describe_images(
        counts, official
    )


def _describe_images(counts: tuple[int, int], official: tuple[int, int]) -> list[str]:
    return [
        f"{part}: {count:,} images" + ("" if count == whole else f" (of {whole:,})")
        for part, count, whole in zip(("train", "test"), counts, official, strict=True)
    ]
