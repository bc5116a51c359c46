"""Rows of numbers: one flat mapping per round.

A row's columns are named after where a number comes from:

* `train_<name>`: the model's training metrics, averaged over the cohort's
  examples (`client_work/train/<name>` of the process);
* `client_work/...`, `distributor/...`, `aggregator/...`, `finalizer/...`: what
  else the parts of the process measure, under their own paths;
* `test_<name>`: what the evaluation returns;
* `seconds...`: wall-clock times, the only columns that differ between two equal
  runs;
* the driver's own columns, see `training.run_training`.
"""

from __future__ import annotations

import math
import pickle
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_drift import checks

Number = int | float
MetricsRecord = dict[str, Number]

ROUND = "round"
TRAIN_PREFIX = "train_"
TEST_PREFIX = "test_"
SECONDS = "seconds"
SECONDS_EVALUATION = "seconds_evaluation"

# What `run_training` itself puts into the row of a round.
_OF_DRIVER = (
    ROUND,
    SECONDS,
    "cohort_size",
    "bytes_down",
    "bytes_up",
    "total_examples",
    "total_bytes",
)
_TRAINING_METRICS = "client_work/train/"
# A longer vector is data to plot by itself rather than numbers of a table.
_MAX_VECTOR_SIZE = 16
_MOST_COLUMNS = 1000
# Of a value in a message.
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_./@-]+")


def is_timing(column: str) -> bool:
    """Returns whether a column holds wall-clock time.

    Args:
      column: The column's name.

    Raises:
      TypeError: If it is not a string.
    """
    checks.check_instance("column", column, str, "the name of a column")
    return column.startswith(SECONDS)


def without_timing(row: Mapping[str, Number]) -> MetricsRecord:
    """Returns a row without its wall-clock times, to compare two runs.

    Args:
      row: Numbers by column.

    Raises:
      TypeError: If it is not a mapping.
    """
    checks.check_instance("row", row, Mapping, "a mapping of numbers by column")
    return {name: value for name, value in row.items() if not is_timing(name)}


def seconds_since(start: float) -> float:
    """Returns the wall-clock time since `start`, a time of `time.perf_counter`."""
    return round(time.perf_counter() - start, 6)


def plain_number(value: Any) -> Number:
    """Returns a number as the Python number that prints as it does.

    A float32 becomes the float that its shortest decimal form names, 0.1 rather
    than 0.10000000149011612, so that rows read back from a file equal those that
    were written.

    Args:
      value: A NumPy or Python number or boolean; a boolean becomes 0 or 1.

    Returns:
      An `int` or a `float`.
    """
    scalar: Any = np.asarray(value)[()]
    if scalar.dtype.kind in "biu":
        return int(scalar)
    # As it prints by default, whatever NumPy's print options are.
    return float(np.format_float_scientific(scalar))


def _leaves(structure: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a structure and their paths, in the structure's order."""
    if hasattr(structure, "_asdict"):
        structure = structure._asdict()
    elif isinstance(structure, (list, tuple)):
        structure = dict(enumerate(structure))
    if not isinstance(structure, Mapping):
        yield "/".join(path), structure
        return
    for name, value in structure.items():
        yield from _leaves(value, (*path, str(name)))


def flatten_metrics(structure: Any) -> MetricsRecord:
    """Returns the numbers of a structure by their paths.

    Args:
      structure: Mappings, sequences and named tuples of numbers and arrays. A
        vector of up to 16 elements becomes a number per element; longer arrays,
        strings and `None` are left out.

    Returns:
      The numbers by paths such as `"aggregator/clipping_norm"`.
    """
    row: MetricsRecord = {}
    for path, leaf in _leaves(structure):
        row.update(_columns(_UNSAFE_CHARACTERS.sub("_", path), leaf) or {})
    return row


def columns_of(who: str, structure: Any) -> MetricsRecord:
    """Returns what somebody gives as columns, of which nothing may be lost.

    Args:
      who: Who gives it, for messages.
      structure: As for `flatten_metrics`.

    Returns:
      The numbers by paths.

    Raises:
      TypeError: If a value is not a number, or an array of more than 16.
      ValueError: If two names become one, as `a b` and `a_b` do, one is empty, or
        there are more than 1,000.
    """
    found: list[tuple[str, MetricsRecord]] = []
    for path, leaf in _leaves(structure):
        name = _UNSAFE_CHARACTERS.sub("_", path)
        if not name:
            raise ValueError(
                f"{who} returned {checks.shown(leaf)} without a name. Name each column."
            )
        columns = _columns(name, leaf)
        if columns is None:
            shape = np.shape(leaf)
            shown = f"an array of shape {shape}" if shape else checks.shown(leaf)
            raise TypeError(
                f"{who} returned {shown} for {checks.shown(path)}. Return a number for "
                f"each column, or up to {_MAX_VECTOR_SIZE} of them in a vector."
            )
        found.append((path, columns))
    row, _ = _joined(who, found)
    if len(row) > _MOST_COLUMNS:
        raise ValueError(
            f"{who} returned more than {_MOST_COLUMNS} columns. Return what a table "
            "can show, and write the rest to a file of your own."
        )
    return row


def _joined(
    who: str, found: Iterable[tuple[str, MetricsRecord]]
) -> tuple[MetricsRecord, dict[str, str]]:
    """Returns a row of columns that came by paths, and the path of each column."""
    row: MetricsRecord = {}
    paths: dict[str, str] = {}
    for path, columns in found:
        for column, value in columns.items():
            if column in row:
                both = f"{checks.shown(paths[column])} and {checks.shown(path)}"
                raise ValueError(
                    f"{who} returned {both}, which are both the column "
                    f"{checks.shown(column)}. Choose names that differ in letters."
                )
            row[column], paths[column] = value, path
    return row, paths


def _columns(name: str, leaf: Any) -> MetricsRecord | None:
    """Returns the numbers of a leaf by their columns, None if it is none."""
    # NumPy reads no bfloat16 tensor itself, and has no kind for its numbers.
    array = np.asarray(leaf.numpy() if hasattr(leaf, "numpy") else leaf)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        return None
    if array.ndim == 0:
        return {name: plain_number(array)}
    if array.ndim > 1 or array.size > _MAX_VECTOR_SIZE:
        return None
    return {f"{name}/{k}": plain_number(element) for k, element in enumerate(array)}


def training_columns(metrics: Any) -> MetricsRecord:
    """Returns the columns of a learning process's metrics.

    Args:
      metrics: The `metrics` of `tff.learning.templates.LearningProcessOutput`.

    Returns:
      The numbers by their column names, training metrics first.

    Raises:
      ValueError: If two names become one column, or one is a column of the driver.
    """
    leaves = sorted(
        _leaves(metrics), key=lambda leaf: not leaf[0].startswith(_TRAINING_METRICS)
    )
    found: list[tuple[str, MetricsRecord]] = []
    for path, leaf in leaves:
        name = _UNSAFE_CHARACTERS.sub("_", path)
        if name.startswith(_TRAINING_METRICS):
            name = TRAIN_PREFIX + name[len(_TRAINING_METRICS) :]
        found.append((path, _columns(name, leaf) or {}))
    row, paths = _joined("process", found)
    for column in _OF_DRIVER:
        if column in row:
            raise ValueError(
                f"process returned the metric {checks.shown(paths[column])}, but "
                f"{checks.shown(column)} is a column of run_training. Rename it."
            )
    return row


def of_nobody(row: Mapping[str, Number]) -> MetricsRecord:
    """Returns a row whose training metrics are those of no example.

    A mean over nothing is not a number: neither a loss of 0 nor an accuracy of 0.

    Args:
      row: The row.

    Returns:
      The row with NaN for training metrics; numbers of examples and the like stay.
    """
    return {
        name: math.nan
        if name.startswith(TRAIN_PREFIX) and isinstance(value, float)
        else value
        for name, value in row.items()
    }


class MetricsTable(Sequence[MetricsRecord]):
    """A growing sequence of metrics records, whose column names are kept once.

    As dictionaries the records of a run take some 5 KB each, most of it for names,
    which are the same in every record. Here a number takes 9 bytes. Records come out
    as new dictionaries that equal those that went in.
    """

    def __init__(self, records: Iterable[MetricsRecord] = ()) -> None:
        """Makes a table.

        Args:
          records: The records to begin with.
        """
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._records: list[tuple[tuple[str, ...], bytes]] = []
        for record in records:
            self.append(record)

    def append(self, record: MetricsRecord) -> None:
        """Adds a record.

        Args:
          record: Numbers by column name.
        """
        names = tuple(record)
        names = self._names.setdefault(names, names)
        self._records.append((names, pickle.dumps(tuple(record.values()))))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        names, packed = self._records[index]
        return dict(zip(names, pickle.loads(packed), strict=True))
