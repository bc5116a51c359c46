"""Tasks on a user's own data: a table, a folder, or a SQLite file of TFF's format.

task = tasks.from_frame(frame, client_id="hospital", label="diagnosis")

Each function returns a task like those of `tasks.load`: classification with
cross-entropy and accuracy, by a net of the user's or by softmax regression.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tasks import classification, definitions, seeds, sqlite_files, user_tables
from tff_drift import checks
from tff_drift.simulation import ClientDatasets

if TYPE_CHECKING:
    import pandas as pd

Examples = tuple[np.ndarray, np.ndarray]
BuildKerasModel = Callable[[], tf.keras.Model]


class _Part(NamedTuple):
    """Clients, and how to read one."""

    client_ids: Iterable[str]
    load: Callable[[str], Examples]


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
      num_classes: The number of classes if they are integers; default: as many as
        the largest label needs.
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
      TypeError: If an argument has the wrong type.
      ValueError: If a column is missing or no number, a number is not finite, or a
        label is none; the message names table, client and column.
    """
    tables = {"frame": frame} if test is None else {"frame": frame, "test": test}
    columns = features
    clients: dict[str, dict[str, Examples]] = {}
    for name, table in tables.items():
        columns = user_tables.feature_columns(table, [client_id, label], columns, name)
        owners = table[client_id]
        if owners.isna().any():
            raise ValueError(
                f"{name} has no client in column {client_id!r} of row "
                f"{owners.index[owners.isna()][0]!r}. Fill it in or leave the row out."
            )
        clients[name] = {
            str(owner): user_tables.table_examples(
                rows, columns, label, f"{name}: client {str(owner)!r}"
            )
            for owner, rows in table.groupby(client_id, sort=True, observed=True)
        }
    labels = [table[label].to_numpy() for table in tables.values()]
    classes = user_tables.find_classes(labels, num_classes)

    def numbered(name: str, owner: str) -> Examples:
        x, y = clients[name][owner]
        where = f"{name}: client {owner!r}, field {label!r}"
        return x, user_tables.number_labels(y, classes, where)

    arrays = {
        name: {owner: numbered(name, owner) for owner in of_table}
        for name, of_table in clients.items()
    }
    train, *others = (
        _Part(of_table, of_table.__getitem__) for of_table in arrays.values()
    )
    sizes = {owner: len(y) for owner, (_, y) in arrays["frame"].items()}
    train, test_part = (
        (train, others[0]) if others else _hold_out(train, sizes, test_fraction, seed)
    )
    batching = {"batch_size": batch_size, "epochs": epochs, "seed": seed}
    return _build_task(
        "frame", train, test_part, classes, build_keras_model, max_examples, batching
    )


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

    A file is a CSV table, named after its client (`ann.csv`), with a column of
    classes and columns of numbers; or a file of NumPy arrays (`ann.npz`), with the
    classes under the name of `label` and numbers of any shape, one row per example,
    under `x`. Files in the subfolders `train` and `test` are for the one and the
    other; without these a share of each client's examples is held out.

    All files are read once at the start, to check them and to find the classes.
    Later each is read when its client's turn comes, so that the data may be larger
    than the memory. For very many clients see `write_sqlite`.

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
      FileNotFoundError: If the folder has no files of clients.
      TypeError: If an argument has the wrong type.
      ValueError: If a file cannot be read or is not UTF-8, lacks a column, has no
        examples, a number that is not finite or a label that is none; the message
        names file, client and field.
    """
    folder = pathlib.Path(folder)
    files = user_tables.find_files(folder)
    sizes: dict[str, int] = {}
    labels: dict[pathlib.Path, np.ndarray] = {}
    for paths in files.values():
        for owner, path in paths.items():
            _, found = user_tables.read_file(path, label, features)
            sizes[owner] = len(found)
            labels[path] = np.unique(found)
    classes = user_tables.find_classes(labels.values(), num_classes)

    def number(path: pathlib.Path, found: np.ndarray) -> np.ndarray:
        where = f"{path}: client {path.stem!r}, field {label!r}"
        return user_tables.number_labels(found, classes, where)

    for path, found in labels.items():
        number(path, found)

    def load(paths: Mapping[str, pathlib.Path], owner: str) -> Examples:
        x, y = user_tables.read_file(paths[owner], label, features)
        return x, number(paths[owner], y)

    train, *others = (
        _Part(paths, functools.partial(load, paths)) for paths in files.values()
    )
    train, test_part = (
        (train, others[0]) if others else _hold_out(train, sizes, test_fraction, seed)
    )
    batching = {"batch_size": batch_size, "epochs": epochs, "seed": seed}
    return _build_task(
        folder.name,
        train,
        test_part,
        classes,
        build_keras_model,
        max_examples,
        batching,
    )


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
    of a large file passes over it once, see `tasks.row_index`.

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
      FileNotFoundError: If there is no such file.
      TypeError: If an argument has the wrong type.
      ValueError: If the file is damaged or of another format, or lacks a split or a
        feature. Bad examples are found when their client is read: the message names
        file, client and field.
    """
    path = pathlib.Path(path)
    checks.check_integer("num_classes", num_classes)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. tasks.write_sqlite writes one of your data."
        )
    splits = (train_split, test_split)
    if element_spec is None:
        sqlite_files.check_file(path, splits)
        element_spec = sqlite_files.infer_element_spec(path)
    names = [name for name in element_spec if name != label]
    texts = [name for name in names if element_spec[name].dtype == tf.string]
    if label not in element_spec or not names or texts:
        raise ValueError(
            f"{path} has the features {dict(element_spec)}. Needed are the label "
            f"{label!r} and features of numbers: name them by label and element_spec."
        )
    reader = sqlite_files.SqliteExamples(
        path, splits, element_spec, {label: num_classes}
    )

    def load(split_name: str, owner: str) -> Examples:
        found = reader.read(split_name, owner)
        x = found[names[0]]
        if len(names) > 1:
            flat = [found[name].reshape(len(x), -1) for name in names]
            x = np.concatenate(flat, axis=1)
        return x.astype(np.float32), found[label].astype(np.int32)

    train, test_part = (
        _Part(reader.client_ids(split_name), functools.partial(load, split_name))
        for split_name in splits
    )
    batching = {"batch_size": batch_size, "epochs": epochs, "seed": seed}
    return _build_task(
        path.stem,
        train,
        test_part,
        tuple(range(num_classes)),
        build_keras_model,
        max_examples,
        batching,
    )


def _hold_out(
    part: _Part, sizes: Mapping[str, int], fraction: float, seed: int
) -> tuple[_Part, _Part]:
    """Splits each client's examples into those to train and those to test on."""
    checks.check_integer("seed", seed, at_least=0)
    if not 0 < fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1, found {fraction!r}.")
    testing = [owner for owner in part.client_ids if sizes[owner] > 1]
    if not testing:
        raise ValueError(
            "No client has more than one example, so that none can be held out to test "
            "on. Give examples to test on."
        )

    def load(held_out: bool, owner: str) -> Examples:
        x, y = part.load(owner)
        draw = seeds.generator(seed, f"held-out examples of {owner}")
        order = draw.permutation(len(y))
        count = min(max(1, round(fraction * len(y))), len(y) - 1)
        # In the order of the file, which `max_examples` may refer to.
        rows = np.sort(order[:count] if held_out else order[count:])
        return x[rows], y[rows]

    return (
        _Part(part.client_ids, functools.partial(load, False)),
        _Part(testing, functools.partial(load, True)),
    )


def _build_task(
    name: str,
    train_part: _Part,
    test_part: _Part,
    classes: tuple[Any, ...],
    build_keras_model: BuildKerasModel | None,
    max_examples: int | None,
    batching: Mapping[str, Any],
) -> definitions.Task:
    train = ClientDatasets(
        tuple(train_part.client_ids),
        train_part.load,
        max_examples=max_examples,
        **batching,
    )
    test = ClientDatasets(tuple(test_part.client_ids), test_part.load, **batching)
    input_shape = train.element_spec[0].shape[1:]
    return definitions.Task(
        name=name,
        description=f"Your own data: {len(train)} clients, {len(classes)} classes.",
        train=train,
        test=test,
        validation=None,
        model_fn=classification.build_model_fn(
            build_keras_model
            or functools.partial(
                _softmax_regression, input_shape, len(classes), batching["seed"]
            ),
            train.element_spec,
        ),
        accuracy_metric="accuracy",
        higher_is_better=True,
        seed=batching["seed"],
        options={
            "batch_size": train.batch_size,
            "epochs": train.epochs,
            "max_examples": max_examples,
            "classes": classes,
        },
    )


def _softmax_regression(
    input_shape: Sequence[int], num_classes: int, seed: int
) -> tf.keras.Model:
    (layer_seed,) = seeds.initializer_seeds(seed, 1)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=tuple(input_shape)),
            tf.keras.layers.Dense(
                num_classes,
                kernel_initializer=tf.keras.initializers.GlorotUniform(layer_seed),
            ),
        ]
    )
