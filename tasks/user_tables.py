"""Reading and checking of a user's tables and files, client by client."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks import array_files, example_checks

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("train", "test")
_SUFFIXES = (".csv", ".npz")
_INPUTS = "x"


def feature_columns(
    table: pd.DataFrame,
    others: Sequence[str],
    features: Sequence[str] | None,
    where: str,
) -> list[str]:
    """Returns the columns of features.

    Args:
      table: The table.
      others: The columns that are none: the label's, and the client's if it has one.
      features: The columns wanted; `None` takes all that are left.
      where: The table, for messages.

    Returns:
      The columns, in the order of `features` or of the table.

    Raises:
      ValueError: If a column is missing, or none is left.
    """
    columns = features
    if columns is None:
        columns = [name for name in table.columns if name not in others]
    missing = [name for name in (*others, *columns) if name not in table.columns]
    if missing or not columns:
        lack = f"no column {missing}" if missing else "no column of features"
        raise ValueError(
            f"{where} has {lack}; its columns are {list(table.columns)}. Name the "
            "columns to use."
        )
    return list(columns)


def table_examples(
    rows: pd.DataFrame, columns: Sequence[str], label: str, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's features and labels, checked but for the labels' range.

    Args:
      rows: The client's part of the table.
      columns: The columns of features.
      label: The column of labels.
      where: The table and the client, for messages.

    Returns:
      The features, `float32[examples, columns]`, and the labels as they are.

    Raises:
      ValueError: If there is no row, a feature is no number or not finite, or a
        label is missing.
    """
    arrays: dict[str, np.ndarray] = {}
    if rows.empty:
        # A table without rows has columns of no type.
        example_checks.check_features(arrays, where)
    for name in columns:
        column = rows[name]
        if column.dtype.kind not in "biuf":
            raise ValueError(
                f"{where}, field {name!r}: expected numbers, found {column.dtype} such "
                f"as {column.iloc[0]!r}. Turn it into numbers or leave it out."
            )
        arrays[name] = column.to_numpy(np.float32, na_value=np.nan)
    example_checks.check_features(arrays, where)
    labels = rows[label]
    missing = labels.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"{where}, field {label!r}, example {int(np.argmax(missing))}: there is no "
            "label. Fill it in or leave the example out."
        )
    return np.stack(list(arrays.values()), axis=1), labels.to_numpy()


def find_classes(
    labels: Iterable[np.ndarray], num_classes: int | None
) -> tuple[Any, ...]:
    """Returns the classes in the order of their numbers.

    Args:
      labels: Arrays of labels.
      num_classes: The number of classes; `None` takes as many as the labels need.

    Returns:
      0, 1, ... if all labels are integers, otherwise the values in sorted order.
    """
    values: set[Any] = set()
    are_integers = True
    for array in labels:
        are_integers &= array.dtype.kind in "iu"
        values.update(np.unique(array).tolist())
    if are_integers:
        # A negative label is found when it is numbered.
        return tuple(range(num_classes or max(0, *values) + 1))
    return tuple(sorted(values))


def number_labels(labels: np.ndarray, classes: Sequence[Any], where: str) -> np.ndarray:
    """Returns the numbers of labels' classes, as `int32`.

    Args:
      labels: The labels.
      classes: The classes.
      where: The file, client and field, for messages.

    Returns:
      One number per label.

    Raises:
      ValueError: If a label is none of the classes.
    """
    numbers = {value: number for number, value in enumerate(classes)}
    found = [numbers.get(value, -1) for value in labels.tolist()]
    if -1 in found:
        example = found.index(-1)
        label = labels.tolist()[example]
        raise ValueError(
            f"{where}, example {example}: found the label {label!r}, but the "
            f"{len(classes)} classes are {classes[0]!r} to {classes[-1]!r}."
        )
    return np.array(found, np.int32)


def find_files(folder: pathlib.Path) -> dict[str, dict[str, pathlib.Path]]:
    """Returns the files of a folder's clients by part and client.

    Args:
      folder: The folder.

    Returns:
      The files in the subfolders "train" and "test", or, if there are none such,
      those in the folder itself as "train".

    Raises:
      FileNotFoundError: If there are no files.
      ValueError: If a client has two.
    """
    parts = [part for part in PARTS if (folder / part).is_dir()]
    places = {part: folder / part for part in parts} or {"train": folder}
    files: dict[str, dict[str, pathlib.Path]] = {}
    for part, place in places.items():
        paths: dict[str, pathlib.Path] = {}
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if path.suffix not in _SUFFIXES:
                continue
            if path.stem in paths:
                raise ValueError(
                    f"Client {path.stem!r} has two files, {paths[path.stem]} and "
                    f"{path}. Leave one."
                )
            paths[path.stem] = path
        if not paths:
            raise FileNotFoundError(
                f"{place} has no files of clients. Put one there for each, such as "
                f"{place / 'ann.csv'} or {place / 'ann.npz'}."
            )
        files[part] = paths
    return files


def read_file(
    path: pathlib.Path, label: str, features: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a client's features and labels, checked but for the labels' range.

    Args:
      path: The client's file.
      label: The column or array of labels.
      features: The columns of features of a CSV table; `None` takes all others.

    Returns:
      The features, `float32` with one row per example, and the labels as they are.

    Raises:
      ValueError: If the file cannot be read, is not UTF-8, lacks a column or an
        array, has no examples, a feature that is no number or not finite, or a
        label is missing.
    """
    where = f"{path}: client {path.stem!r}"
    if path.suffix == ".npz":
        return _read_arrays(path, label, where)
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    try:
        table = pd.read_csv(io.StringIO(_decode(path, where)))
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(
            f"{where} cannot be read as a CSV table ({error}). Write a line of column "
            "names and a line per example."
        ) from error
    columns = feature_columns(table, [label], features, where)
    return table_examples(table, columns, label, where)


def _decode(path: pathlib.Path, where: str) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = data[: error.start].decode("latin-1").splitlines() or [""]
        # The header is UTF-8 if the error is below it; the fields in front of the
        # bad byte count the columns.
        header, row = (next(csv.reader([line]), [""]) for line in (lines[0], lines[-1]))
        field = f", field {header[len(row) - 1]!r}" if len(row) <= len(header) else ""
        raise ValueError(
            f"{where}{field}, line {len(lines)}: the text is not UTF-8 ({error}). "
            "Convert the file."
        ) from error


def _read_arrays(
    path: pathlib.Path, label: str, where: str
) -> tuple[np.ndarray, np.ndarray]:
    arrays = array_files.read_arrays(path, (_INPUTS, label), where)
    inputs, labels = arrays[_INPUTS], arrays[label]
    if inputs.dtype.kind not in "biuf" or inputs.ndim < 2:
        raise ValueError(
            f"{where}, field {_INPUTS!r}: expected numbers with one row per example, "
            f"found {inputs.dtype} of shape {inputs.shape}."
        )
    if labels.shape != inputs.shape[:1]:
        raise ValueError(
            f"{where}, field {label!r}: expected {len(inputs)} labels, found the shape "
            f"{labels.shape}. Give one label per example."
        )
    inputs = inputs.astype(np.float32)
    checked: Mapping[str, np.ndarray] = {_INPUTS: inputs, label: labels}
    example_checks.check_features(checked, where)
    return inputs, labels
