"""TFF's Stack Overflow: sentences of questions and answers, a client is a user.

The words and the tags that the tasks know are the most frequent ones, by the number
of users: TFF distributes both counts as archives beside the data. Texts come from
Stack Exchange under CC BY-SA.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, seeds
from tasks.sources import example_checks, missing_data, official_data
from tff_drift import checks, files
from tff_drift.simulation import ClientDatasets

_source = tff.simulation.datasets.stackoverflow


def load_clients(
    fields: Collection[str],
    preprocess: Callable[[Mapping[str, Any]], Any],
    *,
    task_name: str,
    cache_dir: str | None,
    seed: int,
    options: Mapping[str, Any],
) -> definitions.Clients:
    """Returns the users; few are read yet.

    Args:
      fields: The text fields of an example to read, such as "tokens".
      preprocess: Turns the stacked fields of one user into its examples.
      task_name: The task that needs the data, for messages.
      cache_dir: The folder that holds the file; `None` is TFF's own, `~/.tff`.
      seed: The seed of the shuffles and of the draw of test clients.
      options: The values of the task's options, see `tasks.describe`.

    Returns:
      All training users, a sample of the test users, and a sample of the users
      that TFF holds out, for validation.

    Raises:
      FileNotFoundError: If the file is absent and is not to be downloaded.
      OSError: If the download fails.
      ValueError: If the file is damaged or another data set's.
    """
    data = official_data.OfficialData(
        file_name="stackoverflow.sqlite",
        train_split="train",
        test_split="test",
        validation_split="heldout",
        element_spec={field: tf.TensorSpec((), tf.string) for field in fields},
        load_data=_source.load_data,
        get_synthetic=_source.get_synthetic,
    )
    clients = official_data.load_clients(
        data,
        preprocess,
        task_name=task_name,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
    )
    number = options["test_clients"]
    validation = clients.validation and _sample(clients.validation, number, seed)
    return definitions.Clients(
        clients.train, _sample(clients.test, number, seed), validation
    )


def _sample(clients: ClientDatasets, number: int | None, seed: int) -> ClientDatasets:
    if number is None or number >= len(clients):
        return clients
    draw = seeds.generator(seed, "test clients")
    drawn = sorted(draw.choice(len(clients), number, replace=False).tolist())
    return clients.subset([clients.client_ids[index] for index in drawn])


def load_words(
    task_name: str, cache_dir: str | None, options: Mapping[str, Any]
) -> list[str]:
    """Returns the most frequent words, the most frequent first.

    Args:
      task_name: The task that needs them, for messages.
      cache_dir: The folder that holds the data.
      options: The values of the task's options.

    Returns:
      As many words as `vocabulary_size` says; of the stand-in all it has.

    Raises:
      FileNotFoundError: If the counts are absent and not to be downloaded.
      OSError: If the download fails.
      ValueError: If the file holds something else, or too few words.
    """
    return _most_frequent("word", "vocabulary_size", task_name, cache_dir, options)


def load_tags(
    task_name: str, cache_dir: str | None, options: Mapping[str, Any]
) -> list[str]:
    """Returns the most frequent tags, the most frequent first.

    Args:
      task_name: The task that needs them, for messages.
      cache_dir: The folder that holds the data.
      options: The values of the task's options.

    Returns:
      As many tags as `num_tags` says; of the stand-in all it has.

    Raises:
      FileNotFoundError: If the counts are absent and not to be downloaded.
      OSError: If the download fails.
      ValueError: If the file holds something else, or too few tags.
    """
    return _most_frequent("tag", "num_tags", task_name, cache_dir, options)


def _most_frequent(
    kind: str,
    option: str,
    task_name: str,
    cache_dir: str | None,
    options: Mapping[str, Any],
) -> list[str]:
    """Returns the most frequent words or tags, as many as an option says."""
    size = options[option]
    if options["synthetic"]:
        stand_ins = {
            "word": _source.get_synthetic_word_counts,
            "tag": _source.get_synthetic_tag_counts,
        }
        return list(stand_ins[kind]())[:size]
    path = _find_counts(kind, task_name, cache_dir, options["download"])
    found = list(itertools.islice(_entries(path), size))
    if len(found) < size:
        raise ValueError(
            f"{option} is {size}, but {path} has only {len(found)} {kind}s. Ask for "
            "fewer."
        )
    return found


def count_entries(path: pathlib.Path) -> int:
    """Returns the number of words or tags in an unpacked file of counts.

    Args:
      path: The file.

    Returns:
      The number of entries.

    Raises:
      ValueError: If the file holds something else.
    """
    return sum(1 for _ in _entries(path))


def _entries(path: pathlib.Path) -> Iterable[str]:
    """Returns the words or the tags of a file of counts, the most frequent first."""
    is_of_tags = path.name.endswith("tag_count")
    return _read_tags(path) if is_of_tags else _read_words(path)


def _read_words(path: pathlib.Path) -> Iterator[str]:
    for number, line in enumerate(_lines(path), start=1):
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdecimal():
            raise example_checks.DataError(
                f"{path}, line {number}: expected a word and a number, found "
                f"{checks.shown(line)}. Check that it is TFF's file of word counts."
            )
        yield parts[0]


def _read_tags(path: pathlib.Path) -> list[str]:
    """Returns the tags, the most frequent first."""
    try:
        counts = json.loads("".join(_lines(path)))
        if not isinstance(counts, dict):
            raise TypeError(f"it is a {type(counts).__name__}")
        # Tags with equal counts stay in the order of the file, as in TFF.
        return sorted(counts, key=lambda tag: -int(counts[tag]))
    except example_checks.DataError:
        raise
    # Brackets in brackets may be too many to parse.
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise example_checks.DataError(
            f"{path}: expected a JSON object of tags and numbers ({error}). Check that "
            "it is TFF's file of tag counts."
        ) from error


def _lines(path: pathlib.Path) -> Iterator[str]:
    with files.open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise example_checks.DataError(
                    f"{path}, line {number}: the text is not UTF-8 ({error}). Check "
                    "that it is TFF's file of counts."
                ) from error


def find_unpacked_counts(file_name: str, cache_dir: str | None) -> pathlib.Path | None:
    """Returns the path of a file of counts, if it is there unpacked.

    TFF's loaders keep archives and files in the folder `datasets` of the folder
    they are given, or of `~/.keras`. They take only the official archives: files
    that are there unpacked are read without them.

    Args:
      file_name: "stackoverflow.word_count" or "stackoverflow.tag_count".
      cache_dir: The folder that holds the data.

    Returns:
      The path, or `None`.
    """
    folder = missing_data.folder(cache_dir)
    places = [folder / "datasets"]
    if cache_dir is None:
        places.append(pathlib.Path("~/.keras/datasets").expanduser())
    paths = (place / file_name for place in places)
    return next((path for path in paths if path.is_file()), None)


def _find_counts(
    kind: str, task_name: str, cache_dir: str | None, download: bool
) -> pathlib.Path:
    """Returns the path of a file of counts, unpacked by TFF's loader if necessary."""
    file_name = f"stackoverflow.{kind}_count"
    found = find_unpacked_counts(file_name, cache_dir)
    if found is not None:
        return found
    folder = missing_data.folder(cache_dir)
    archive = f"{file_name}.tar.bz2"
    path = folder / "datasets" / file_name
    ways = missing_data.ways_to_go_on(
        "TFF's official archive into this folder",
        f"whose subfolder datasets holds {file_name} or {archive}",
        "TFF's small synthetic stand-in",
    )
    if not download and not path.with_name(archive).is_file():
        raise missing_data.absent(task_name, path, ways)
    loaders = {"word": _source.load_word_counts, "tag": _source.load_tag_counts}
    try:
        loaders[kind](cache_dir=str(folder))
    except Exception as error:
        # Keras raises plain exceptions for failed downloads and wrong checksums.
        raise OSError(
            f"Task {checks.shown(task_name)} needs the file {path}, and TFF's loader "
            f"failed: {error}. {ways}"
        ) from error
    return path
