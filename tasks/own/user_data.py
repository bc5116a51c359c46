"""Tasks on a user's own data: a table, a folder, or a SQLite file of TFF's format.

task = tasks.from_frame(frame, client_id="hospital", label="diagnosis")

Each function returns a task like those of `tasks.load`: classification with
cross-entropy and accuracy, by a net of the user's or by softmax regression.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks.own import class_numbers, user_files, user_tables, user_tasks
from tasks.own.user_tasks import BuildKerasModel, Examples, Part
from tasks.sources import example_checks, sqlite_files
from tff_drift import checks

if TYPE_CHECKING:
    import pandas as pd

# What users of other libraries call some of the arguments.
_suggest_names = checks.suggesting_names(
    client="client_id",
    group="client_id",
    keras_model="build_keras_model",
    model_fn="build_keras_model",
    num_epochs="epochs",
    target="label",
)


@_suggest_names
def from_frame(
    frame: pd.DataFrame,
    *,
    client_id: str,
    label: str,
    features: Sequence[str] | None = None,
    num_classes: int | None = None,
    test: pd.DataFrame | None = None,
    test_fraction: float = 0.2,
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
      label: The column of classes: integers from 0, or values of any other kind,
        which are then numbered in sorted order.
      features: The columns of numbers to predict from; default: all others.
      num_classes: The number of classes if they are integers, at most a million;
        default: as many as the largest label needs.
      test: A table like `frame` with the examples to test on.
      test_fraction: Where `test` is `None`, the share of each client's examples
        that is held out to test on, at random. Clients with one example only train.
      build_keras_model: Builds a Keras model from scratch that takes
        `float32[batch, features]` and returns logits of the classes; default:
        softmax regression. Seed its initializers for equal runs.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client.
      seed: The seed of shuffles, of what is held out, and of initial weights.

    Returns:
      The task. `options["classes"]` has the classes in the order of their numbers.

    Raises:
      DataError: If a table has no rows, a column is missing, no number or there
        twice, ids of clients read alike, a number is not finite, or a label is not a
        class; the message names table, client and column.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed
    )
    user_tasks.check_columns(features, client_id=client_id, label=label)
    user_tasks.check_num_classes(num_classes)
    user_tasks.check_test_fraction(test_fraction)
    tables = {"frame": frame} if test is None else {"frame": frame, "test": test}
    columns = features
    clients: dict[str, dict[str, Examples]] = {}
    for name, table in tables.items():
        user_tables.check_table(name, table)
        columns = user_tables.feature_columns(
            list(table.columns), [client_id, label], columns, name
        )
        owners = table[client_id]
        user_tables.check_owners(owners, name)
        clients[name] = {
            str(owner): user_tables.table_examples(
                rows, columns, label, f"{name}: client {str(owner)!r}"
            )
            for owner, rows in table.groupby(owners, sort=True, observed=True)
        }

    def field(name: str, owner: str) -> str:
        return f"{name}: client {owner!r}, field {label!r}"

    labels = {
        field(name, owner): y
        for name, of_table in clients.items()
        for owner, (_, y) in of_table.items()
    }
    classes = class_numbers.find_classes(labels, num_classes)
    parts = []
    for name, of_table in clients.items():
        numbered = {
            owner: (x, class_numbers.number_labels(y, classes, field(name, owner)))
            for owner, (x, y) in of_table.items()
        }
        parts.append(Part(numbered, numbered.__getitem__))
    if test is None:
        sizes = {owner: len(y) for owner, (_, y) in clients["frame"].items()}
        parts = user_tasks.hold_out(parts[0], sizes, test_fraction, seed)
    return user_tasks.build_task("frame", parts, classes, training)


@_suggest_names
def from_folder(
    folder: str | os.PathLike[str],
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    num_classes: int | None = None,
    test_fraction: float = 0.2,
    build_keras_model: BuildKerasModel | None = None,
    batch_size: int = 20,
    epochs: int = 1,
    max_examples: int | None = None,
    seed: int = 0,
) -> definitions.Task:
    """Makes a task of a folder with one file per client.

    A file is a CSV table in UTF-8, named after its client (`ann.csv`), with a column
    of classes and columns of numbers; the same as Parquet (`ann.parquet`), which
    pyarrow reads; or a file of NumPy arrays (`ann.npz`), with the
    classes under the name of `label` and numbers of any shape, one row per example,
    under `x`. All files are of one kind. Columns count by their names, in the order
    of the first file; all clients have the same. Files in the subfolders `train` and
    `test` are for training and for testing; without these a share of each client's
    examples is held out. Other files, and hidden ones, are left out.

    All files are read once at the start, to check them and to find the classes.
    Later each is read when its client's turn comes, so that the data may be larger
    than RAM. For very many clients see `write_sqlite`.

    Args:
      folder: The folder.
      label: The column, or the array, of classes: integers from 0, or values of any
        other kind, which are then numbered in sorted order.
      features: The columns of numbers to predict from; default: all others.
      num_classes: As for `from_frame`.
      test_fraction: As for `from_frame`.
      build_keras_model: As for `from_frame`; it takes what the files hold.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: Keep only the first examples of a training client.
      seed: As for `from_frame`.

    Returns:
      The task. `options["classes"]` has the classes in the order of their numbers.

    Raises:
      DataError: If a file cannot be read or is not UTF-8, lacks a column or has
        others than the first file, has no examples, a number that is not finite or a
        label that is not a class; the message names file, client and field.
      FileNotFoundError: If the folder has no files of clients.
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or the net does not fit.
    """
    training = user_tasks.Training(
        build_keras_model, batch_size, epochs, max_examples, seed
    )
    checks.check_path("folder", folder)
    checks.check_text("label", label)
    user_tasks.check_columns(features, label=label)
    user_tasks.check_num_classes(num_classes)
    user_tasks.check_test_fraction(test_fraction)
    folder = pathlib.Path(folder)
    files = user_files.find_files(folder)
    first = next(path for paths in files.values() for path in paths.values())
    layout = user_files.find_layout(first, label, features)
    sizes: dict[str, int] = {}
    labels: dict[str, np.ndarray] = {}

    def field(path: pathlib.Path) -> str:
        return f"{path}: client {path.stem!r}, field {label!r}"

    for paths in files.values():
        for owner, path in paths.items():
            _, found = user_files.read_file(path, label, layout)
            sizes[owner] = len(found)
            labels[field(path)] = class_numbers.distinct(found, field(path))
    classes = class_numbers.find_classes(labels, num_classes)

    def load(paths: Mapping[str, pathlib.Path], owner: str) -> Examples:
        x, y = user_files.read_file(paths[owner], label, layout)
        return x, class_numbers.number_labels(y, classes, field(paths[owner]))

    for paths in files.values():
        for owner, path in paths.items():
            if not class_numbers.are_known(labels[field(path)], classes):
                # Fails, and names the example.
                load(paths, owner)
    parts = [Part(paths, functools.partial(load, paths)) for paths in files.values()]
    if len(parts) == 1:
        parts = user_tasks.hold_out(parts[0], sizes, test_fraction, seed)
    return user_tasks.build_task(folder.name, parts, classes, training)


@_suggest_names
def from_sqlite(
    path: str | os.PathLike[str],
    *,
    num_classes: int,
    label: str = "label",
    element_spec: Mapping[str, tf.TensorSpec] | None = None,
    train_split: str = "train",
    test_split: str = "test",
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
      num_classes: The number of classes.
      label: The feature with the classes, integers from 0.
      element_spec: The name, type and shape of the features to read; default: as in
        the file's first example, whose shapes are flat. A single feature besides
        the label is what to predict from; several are joined, flat, in this order.
      train_split: The name of the split to train on.
      test_split: The name of the split to test on.
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
        build_keras_model, batch_size, epochs, max_examples, seed
    )
    checks.check_path("path", path)
    path = pathlib.Path(path)
    splits = (train_split, test_split)
    for name, value in zip(("label", "train_split", "test_split"), (label, *splits)):
        checks.check_text(name, value)
    checks.check_integer("num_classes", num_classes)
    user_tasks.check_num_classes(num_classes)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. tasks.write_sqlite writes one of your data."
        )
    if element_spec is None:
        sqlite_files.check_file(path, splits)
        element_spec = sqlite_files.infer_element_spec(path)
    names = _feature_names(path, label, element_spec)
    reader = sqlite_files.SqliteExamples(
        path, splits, element_spec, {label: num_classes}
    )

    def load(split_name: str, owner: str) -> Examples:
        found = reader.read(split_name, owner)
        x = found[names[0]]
        if len(names) > 1:
            flat = [found[name].reshape(len(x), -1) for name in names]
            x = np.concatenate(flat, axis=1)
        where = f"{path}: client {owner!r} of split {split_name!r}"
        return example_checks.to_float32(x, where), found[label].astype(np.int32)

    parts = [
        Part(reader.client_ids(split_name), functools.partial(load, split_name))
        for split_name in splits
    ]
    return user_tasks.build_task(path.stem, parts, range(num_classes), training)


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
    spec = element_spec.get(label)
    is_label = spec is not None and spec.dtype.is_integer and spec.shape.rank == 0
    are_numbers = all(
        element_spec[name].dtype.is_integer or element_spec[name].dtype.is_floating
        for name in names
    )
    if not (is_label and names and are_numbers):
        raise example_checks.DataError(
            f"{path} has the features {dict(element_spec)}. Needed are the label "
            f"{label!r} and features of numbers: name them by label and element_spec. "
            "A label is one integer per example."
        )
    return names
