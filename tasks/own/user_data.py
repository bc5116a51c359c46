"""Tasks on a user's own data: a table, a folder, or a SQLite file of TFF's format.

task = tasks.from_frame(frame, client_id="hospital", label="diagnosis")

Each function returns a task like those of `tasks.load`: of classes, with cross-entropy
and accuracy, or of a number, with the squared and the absolute error, by a net of the
user's or by softmax or linear regression.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks.own import (
    parts,
    targets,
    user_files,
    user_folders,
    user_owners,
    user_tables,
    user_tasks,
)
from tasks.own.parts import Examples, Found
from tasks.own.user_tasks import BuildKerasModel
from tasks.sources import example_checks, sqlite_files
from tff_drift import checks

if TYPE_CHECKING:
    import pandas as pd

_WRITE_OR_NAME = (
    "Write clients to train and to test on as splits 'train' and 'test' by "
    "tasks.write_sqlite, or, in a program, name the splits that there are by "
    "train_split and test_split."
)


@user_tasks.suggest_names
def from_frame(
    frame: pd.DataFrame,
    *,
    client_id: str,
    label: str,
    target: str | None = None,
    features: Sequence[str] | None = None,
    num_classes: int | None = None,
    test: pd.DataFrame | None = None,
    test_fraction: float = 0.2,
    time: str | None = None,
    window: int | None = None,
    class_weight: Mapping[Any, float] | None = None,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of a pandas table with one row per example.

    Args:
      frame: The table.
      client_id: The column that says whose example it is.
      label: The column of what is predicted. Classes are integers from 0, or values
        of any other kind, which are then numbered in sorted order.
      target: Whether labels are each a "class" or a "number"; default: numbers if
        any of them has a fraction, else classes.
      features: The columns of numbers to predict from; default: all others.
      num_classes: The number of classes if they are integers, at most a million;
        default: as many as the largest label needs.
      test: A table like `frame` with the examples to test on.
      test_fraction: Where `test` is `None`, the share of each client's examples
        that is held out to test on: at random, or the last ones if there is `time`.
        Clients with one example, or with examples of one time, only train.
      time: The column of times, dates or numbers, in whose order a client's examples
        are. It is no feature. Rows of one time are not split.
      window: Predict from this many rows of a client at a time, in the order of
        `time`: an example is `float32[window, features]`, with the label of its last
        row. No row is in windows of both training and tests.
      class_weight: The weights of classes in the loss of training, by classes as
        labels name them, such as `{"sick": 20.0}`; all others weigh 1.
      build_keras_model: Builds a model of Keras 2 or 3 from scratch that takes
        `float32[batch, features]` and returns logits of the classes, or one number;
        default: softmax or linear regression. Seed its initializers for equal runs.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client.
      seed: The seed of shuffles, of what is held out, and of initial weights.

    Returns:
      The task. `options["target"]` is what is predicted, and `options["classes"]` has
      the classes in the order of their numbers.

    Raises:
      DataError: If a table has no rows, a column is missing, no number or there
        twice, ids of clients read alike, a number is not finite or a rounded integer,
        a label is not of the target's kind or nobody can say of which it is, or a
        client has too few rows for a window; the message names table, client and
        column.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed, class_weight
    )
    others = {"client_id": client_id, "label": label}
    if time is not None:
        others["time"] = time
    user_tasks.check_columns(features, **others)
    targets.check_target(target, num_classes)
    split = parts.Split(test_fraction, seed, time is not None, window)
    tables = {"frame": frame} if test is None else {"frame": frame, "test": test}
    columns, all_owners = features, user_owners.Owners()
    found = []
    for name, table in tables.items():
        user_tables.check_table(name, table)
        columns = user_tables.feature_columns(
            list(table.columns), others, columns, name
        )
        owners = table[client_id]
        all_owners.add(owners, name)
        for column in columns:
            user_tables.check_no_words(table[column], name, owners)
        if target == targets.NUMBER:
            user_tables.check_no_words(
                table[label], name, owners, targets.NUMBER_REMEDY
            )
        clients = user_tables.client_examples(table, owners, columns, label, name, time)
        field = functools.partial(_field, name, label)
        found.append(Found.in_ram(clients, field))
        if time is not None:
            found[-1].cuts = user_tables.changes(table[time], owners)
    return user_tasks.task_of_found(
        "frame", found, target, num_classes, split, training
    )


def _field(table: str, label: str, owner: str) -> str:
    return f"{table}: client {checks.shown(owner)}, field {checks.shown(label)}"


@user_tasks.suggest_names
def from_folder(
    folder: str | os.PathLike[str],
    *,
    label: str = "label",
    target: str | None = None,
    features: Sequence[str] | None = None,
    num_classes: int | None = None,
    test_fraction: float = 0.2,
    class_weight: Mapping[Any, float] | None = None,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of a folder with one file per client.

    A file is a CSV table in UTF-8, named after its client (`ann.csv`), with a column
    of labels and columns of numbers; the same as Parquet (`ann.parquet`), which
    pyarrow reads; or a file of NumPy arrays (`ann.npz`), with the
    labels under the name of `label` and numbers of any shape, one row per example,
    under `x`. All files are of one kind. Columns count by their names, in the order
    of the first file; all clients have the same. Files in the subfolders `train` and
    `test` are for training and for testing; without these a share of each client's
    examples is held out. Other files, and hidden ones, are left out.

    All files are read once at the start, to check them and to find the labels.
    Later each is read when its client's turn comes, so that the data may be larger
    than RAM. For very many clients see `write_sqlite`.

    Args:
      folder: The folder.
      label: The column, or the array, of what is predicted.
      target: As for `from_frame`.
      features: The columns of numbers to predict from; default: all others.
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
      DataError: If a file cannot be read or is not UTF-8, lacks a column or has
        others than the first file, has no examples, a number that is not finite or a
        label that is not of the target's kind, or two clients read alike; the message
        names file, client and field.
      FileNotFoundError: If the folder has no files of clients.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed, class_weight
    )
    checks.check_path("folder", folder)
    checks.check_text("label", label)
    user_tasks.check_columns(features, label=label)
    targets.check_target(target, num_classes)
    split = parts.Split(test_fraction, seed)
    folder = pathlib.Path(folder)
    files = user_folders.find_files(folder)
    first = next(path for paths in files.values() for path in paths.values())
    layout = user_files.find_layout(first, label, features)
    written = None if target == targets.NUMBER else user_files.WrittenLabels(label)
    found, owners = [], user_owners.Owners()
    for paths in files.values():
        read = functools.partial(_read_file, paths, label, layout)
        of_part = Found(read, functools.partial(_file_field, paths, label))
        for owner, path in paths.items():
            owners.add_text(owner, str(path))
            of_part.add(owner, user_files.read_file(path, label, layout, written))
        found.append(of_part)
    return user_tasks.task_of_found(
        folder.name, found, target, num_classes, split, training
    )


def _read_file(
    paths: Mapping[str, pathlib.Path],
    label: str,
    layout: user_files.Layout,
    owner: str,
) -> Examples:
    return user_files.read_file(paths[owner], label, layout)


def _file_field(paths: Mapping[str, pathlib.Path], label: str, owner: str) -> str:
    return _field(str(paths[owner]), label, owner)


@user_tasks.suggest_names
def from_sqlite(
    path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    label: str = "label",
    target: str | None = None,
    element_spec: Mapping[str, tf.TensorSpec] | None = None,
    train_split: str = "train",
    test_split: str = "test",
    class_weight: Mapping[Any, float] | None = None,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of a SQLite file of TFF's format, such as `write_sqlite` writes.

    A client is read when its turn comes: there may be millions. The first opening
    of a large file passes over it once, see `tasks.sources.row_index`.

    Args:
      path: The file.
      num_classes: The number of classes, which has to be given for these: the file is
        not read for them.
      label: The feature that is predicted: classes, integers from 0, or a number.
      target: Whether labels are each a "class" or a "number"; default: by the
        feature's type, of which integers are classes.
      element_spec: The name, type and shape of the features to read; default: as in
        the file's first example, whose shapes are flat. A single feature besides
        the label is what to predict from; several are joined, flat, in this order.
      train_split: The name of the split to train on.
      test_split: The name of the split to test on.
      class_weight: As for `from_frame`.
      build_keras_model: As for `from_frame`; it takes what the file holds.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client.
      seed: The seed of shuffles and of initial weights.

    Returns:
      The task.

    Raises:
      DataError: If the file is damaged, locked or of another format, or lacks a split
        or a feature. Bad examples are found when their client is read: the message
        names file, client and field.
      FileNotFoundError: If there is no such file.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed, class_weight
    )
    checks.check_path("path", path)
    path = pathlib.Path(path)
    splits = (train_split, test_split)
    for name, value in zip(
        ("label", "train_split", "test_split"), (label, *splits), strict=True
    ):
        checks.check_text(name, value)
    targets.check_target(target, num_classes)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {checks.shortened(path)}. tasks.write_sqlite writes one "
            "of your data."
        )
    sqlite_files.check_file(path, splits, _WRITE_OR_NAME)
    if element_spec is None:
        element_spec = sqlite_files.infer_element_spec(path)
    names = _feature_names(path, label, element_spec)
    predicted = _sqlite_target(path, element_spec[label].dtype, target, num_classes)
    is_class = isinstance(predicted, targets.Classes)
    reader = sqlite_files.SqliteExamples(
        path, splits, element_spec, {label: predicted.outputs} if is_class else None
    )

    def load(split_name: str, owner: str) -> Examples:
        found = reader.read(split_name, owner)
        x = found[names[0]]
        if len(names) > 1:
            flat = [found[name].reshape(len(x), -1) for name in names]
            x = np.concatenate(flat, axis=1)
        where = (
            f"{path}: client {checks.shown(owner)} of split {checks.shown(split_name)}"
        )
        y = predicted.encode(found[label], f"{where}, field {checks.shown(label)}")
        return example_checks.to_float32(x, where), y

    split_parts = [
        parts.Part(reader.client_ids(split_name), functools.partial(load, split_name))
        for split_name in splits
    ]
    return user_tasks.build_task(
        path.stem, split_parts, predicted, training, reader.source_sha256()
    )


def _sqlite_target(
    path: pathlib.Path,
    dtype: tf.DType,
    target: str | None,
    num_classes: int | None,
) -> targets.Target:
    """Returns what is predicted, by the user's word or the type of the labels."""
    by_type = targets.NUMBER if dtype.is_floating else targets.CLASS
    wanted = target or (by_type if num_classes is None else targets.CLASS)
    if wanted == targets.NUMBER:
        return targets.Number()
    if num_classes is None:
        raise ValueError(
            "num_classes must be given for classes in a SQLite file, found None. Give "
            "it, or target='number' (--task=own_numbers) to predict a number."
        )
    if dtype.is_floating:
        raise example_checks.DataError(
            f"{path}: the labels are {dtype.name}, but classes are integers from 0. "
            "Write them as such, or give target='number' (--task=own_numbers) to "
            "predict a number."
        )
    return targets.Classes(range(num_classes))


def _feature_names(
    path: pathlib.Path, label: str, element_spec: Mapping[str, tf.TensorSpec]
) -> list[str]:
    """Returns the features to predict from."""
    if not isinstance(element_spec, Mapping) or not all(
        isinstance(spec, tf.TensorSpec) for spec in element_spec.values()
    ):
        raise TypeError(
            "element_spec must have a tf.TensorSpec for the name of each feature, "
            f"found {checks.shown(element_spec)}."
        )
    names = [name for name in element_spec if name != label]
    example_checks.check_no_weights(names, str(path))
    is_label = label in element_spec and element_spec[label].shape.rank == 0
    are_numbers = all(
        spec.dtype.is_integer or spec.dtype.is_floating
        for spec in element_spec.values()
    )
    if not (is_label and names and are_numbers):
        raise example_checks.DataError(
            f"{path} has the features {checks.shown(dict(element_spec))}. Needed are "
            f"the label {checks.shown(label)} and features of numbers: name them by "
            "label (--label) and, in a program, element_spec. A label is one number "
            "per example."
        )
    return names
