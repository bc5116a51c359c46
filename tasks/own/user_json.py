"""Tasks on JSON files in LEAF's layout."""

from __future__ import annotations

import collections
import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks import definitions
from tasks.own import parts, targets, user_folders, user_owners, user_tasks
from tasks.own.parts import Examples, Found
from tasks.own.user_tasks import BuildKerasModel
from tasks.sources import example_checks
from tff_drift import checks, files
from tff_drift.simulation.data import lists

_ENDING = ".json"


@user_tasks.suggest_names
def from_json(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    num_classes: int | None = None,
    test_fraction: float = 0.2,
    class_weight: Mapping[Any, float] | None = None,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of JSON files in the layout of LEAF (https://leaf.cmu.edu).

    A file is `{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...],
    "y": [...]}}}`: of each user features, numbers of any shape, and labels, one of each
    per example. A folder may have many such files, each with users of its own, and
    subfolders `train` and `test`, as LEAF's scripts write them; without these a share
    of each client's examples is held out. All is read once, and kept in RAM.

    Args:
      path: The file or the folder.
      target: As for `from_frame`.
      num_classes: As for `from_frame`.
      test_fraction: As for `from_frame`.
      class_weight: As for `from_frame`.
      build_keras_model: As for `from_frame`; it takes what the files hold.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client.
      seed: As for `from_frame`.

    Returns:
      The task, with options as for `from_frame`.

    Raises:
      DataError: If a file is no JSON, of another layout or at odds with itself, a user
        is in two files or reads like another, features are no numbers or of different
        shapes, or a label is not of the target's kind; the message names file and
        client.
      FileNotFoundError: If there is no file.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed, class_weight
    )
    checks.check_path("path", path)
    targets.check_target(target, num_classes)
    split = parts.Split(test_fraction, seed)
    path = pathlib.Path(path)
    found, owners = [], user_owners.Owners()
    shape: tuple[int, ...] | None = None
    for of_part in _files(path):
        clients, places = read_clients(of_part, shape)
        for owner, place in places.items():
            owners.add_text(owner, str(place))
        shape = next(iter(clients.values()))[0].shape[1:]
        found.append(Found.in_ram(clients, functools.partial(_field, places)))
    return user_tasks.task_of_found(
        path.stem, found, target, num_classes, split, training
    )


def _files(path: pathlib.Path) -> list[list[pathlib.Path]]:
    """Returns the files to train on, and those to test on if there are any."""
    if path.is_dir():
        found = user_folders.in_parts(
            path,
            lambda folder: {
                file.name: file
                for file in sorted(folder.glob(f"*{_ENDING}"))
                if not file.name.startswith(".")
            },
            f"'leaf{_ENDING}'",
        )
        return [list(of_part.values()) for of_part in found.values()]
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file or folder {checks.shortened(path)}. Give one of JSON in "
            "LEAF's layout."
        )
    return [[path]]


def read_clients(
    paths: Sequence[pathlib.Path], expected: tuple[int, ...] | None = None
) -> tuple[dict[str, Examples], dict[str, pathlib.Path]]:
    """Returns clients' features and labels as they are, and whose file is which.

    Args:
      paths: The files.
      expected: The shape of an example's features, if clients were read before; else
        it is that of the first one.

    Raises:
      DataError: If a file or a user is not as it should be.
    """
    clients: dict[str, Examples] = {}
    places: dict[str, pathlib.Path] = {}
    for path in paths:
        for owner, user in _users(path).items():
            where = f"{path}: client {checks.shown(owner)}"
            if owner in clients:
                raise example_checks.DataError(
                    f"{where} is in {places[owner]} too. Give all examples of a user "
                    "in one file."
                )
            clients[owner] = _examples(user, where)
            places[owner] = path
            shape = clients[owner][0].shape[1:]
            expected = shape if expected is None else expected
            if shape != expected:
                raise example_checks.DataError(
                    f"{where}, field 'x': found examples of shape {shape}, but "
                    f"{expected} of the clients before. Give all the same."
                )
    return clients, places


def _users(path: pathlib.Path) -> Mapping[str, Any]:
    """Returns what a file holds of each user."""
    try:
        with files.open_regular(path) as file:
            content = json.loads(file.read(), object_pairs_hook=_without_doubles)
    except OSError as error:
        raise example_checks.unreadable(str(path), error) from error
    except (ValueError, RecursionError) as error:
        raise example_checks.DataError(
            f"{path} cannot be read as JSON ({checks.shortened(str(error))}). Check "
            "that it is whole, and UTF-8."
        ) from error
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict) or not users:
        raise example_checks.DataError(
            f"{path} is not in LEAF's layout: expected "
            '{"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}, found '
            f"{checks.shown(list(content) if isinstance(content, dict) else content)}."
        )
    named = content.get("users", list(users))
    if not isinstance(named, list) or sorted(map(str, named)) != sorted(users):
        raise example_checks.DataError(
            f"{path}: 'users' names others than 'user_data' has examples of"
            f"{_first_difference(named, users)}. Write both anew."
        )
    _check_sizes(path, content, users)
    return users


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON, of which Python would keep the last of a name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"it has {checks.shown(name)} twice in one object")
    return found


def _first_difference(named: Any, users: Mapping[str, Any]) -> str:
    """Returns, after a colon, a user that the names and the examples differ in."""
    if not isinstance(named, list):
        return f": it is {checks.shown(named)}, and no list"
    counts = collections.Counter(map(str, named))
    if twice := [name for name, count in counts.items() if count > 1]:
        return f": {checks.shown(twice[0])} is named more than once"
    if lacking := [name for name in counts if name not in users]:
        return f": {checks.shown(lacking[0])} has none in 'user_data'"
    unnamed = next(name for name in users if name not in counts)
    return f": {checks.shown(unnamed)} of 'user_data' is not in 'users'"


def _check_sizes(path: pathlib.Path, content: Any, users: Mapping[str, Any]) -> None:
    """Raises unless users have as many labels as a file says, if it does."""
    sizes = content.get("num_samples")
    if sizes is None:
        return
    named = list(map(str, content.get("users", users)))
    if not isinstance(sizes, list) or len(sizes) != len(named):
        raise example_checks.DataError(
            f"{path}: 'num_samples' must have a number for each of {len(named)} users, "
            f"found {checks.shown(sizes)}. Write it anew, or leave it out."
        )
    for owner, size in zip(named, sizes, strict=True):
        labels = users[owner].get("y") if isinstance(users[owner], dict) else None
        if isinstance(labels, list) and len(labels) != size:
            raise example_checks.DataError(
                f"{path}: client {checks.shown(owner)} has {len(labels)} labels, and "
                f"{checks.shown(size)} in 'num_samples'. The file may have been cut: "
                "write it anew."
            )


def _examples(user: Any, where: str) -> Examples:
    """Returns a user's features and its labels as they are."""
    if not isinstance(user, dict) or not {"x", "y"} <= set(user):
        names = checks.shown(list(user) if isinstance(user, dict) else user)
        raise example_checks.DataError(
            f"{where} must have the fields 'x' and 'y', found {names}."
        )
    example_checks.check_no_weights(user, where)
    x, y = (
        _array(user[name], f"{where}, field {checks.shown(name)}")
        for name in ("x", "y")
    )
    if x.dtype == object:
        has_null = [None in np.ravel(example) for example in x]
        example_checks.check_given(np.array(has_null), f"{where}, field 'x'", "number")
    if len(x) and (x.dtype.kind not in "biuf" or not x.size):
        raise example_checks.DataError(
            f"{where}, field 'x': expected numbers, found {x.dtype} such as "
            f"{checks.shown(x[0])}. Number texts, or read images, and give "
            "arrays to ClientDatasets.from_arrays."
        )
    if y.ndim != 1 or len(y) != len(x):
        raise example_checks.DataError(
            f"{where}, field 'y': expected {len(x)} labels, found the shape {y.shape}. "
            "Give one label per example."
        )
    example_checks.check_features({"x": x}, where)
    if y.dtype == object:
        example_checks.check_given(
            np.array([each is None for each in y]), f"{where}, field 'y'"
        )
    x = x[:, np.newaxis] if x.ndim == 1 else x
    return example_checks.to_float32(x, f"{where}, field 'x'"), y


def _array(values: Any, where: str) -> np.ndarray:
    if not isinstance(values, list):
        raise example_checks.DataError(
            f"{where}: expected a list with one entry per example, found "
            f"{checks.shown(values)}."
        )
    try:
        return lists.array_of(values)
    except ValueError as error:
        raise example_checks.DataError(f"{where}: {error}") from error


def _field(places: Mapping[str, pathlib.Path], owner: str) -> str:
    return f"{places[owner]}: client {checks.shown(owner)}, field 'y'"
