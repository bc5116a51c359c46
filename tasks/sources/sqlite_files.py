"""The SQLite files of TFF's federated data sets: found, checked and read.

A file has the tables `examples` (one serialized `tf.train.Example` per row, with
its client and split) and `client_metadata`, as `tff.simulation.datasets.SqlClientData`
wants them. TFF finds a client's rows by a query, and the official files have no
index for it: each client costs a pass over the whole file. The reader here keeps an
index of its own, see `tasks.sources.row_index`.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.sources import (
    example_checks,
    missing_data,
    row_index,
    sqlite_access,
    sqlite_checksums,
)
from tff_drift import checks, files

_KINDS = {
    "bytes_list": tf.string,
    "float_list": tf.float32,
    "int64_list": tf.int64,
}
_TABLES = {
    "examples": {"split_name", "client_id", "serialized_example_proto"},
    "client_metadata": {"split_name", "client_id"},
}


def find_file(
    cache_dir: str | os.PathLike[str] | None,
    file_name: str,
    *,
    task_name: str,
    download: bool,
    load_data: Callable[[str], Any],
) -> pathlib.Path:
    """Returns the path of a data set's file, downloaded if that is asked for.

    Args:
      cache_dir: The folder that holds the file; `None` is TFF's own, `~/.tff`.
      file_name: The name of the unpacked file.
      task_name: The task that needs it, for messages.
      download: Whether to download the file if it is absent.
      load_data: TFF's loader, which downloads the file into the folder given.

    Returns:
      The path of an existing file.

    Raises:
      FileNotFoundError: If the file is absent and `download` is false.
      OSError: If the download fails.
    """
    folder = missing_data.folder(cache_dir)
    path = folder / file_name
    if path.is_file():
        return path
    ways = missing_data.ways_to_go_on(
        "TFF's official file into this folder",
        f"that holds {file_name} already unpacked",
        "TFF's small synthetic stand-in",
    )
    if not download:
        raise missing_data.absent(task_name, path, ways)
    fetch(path, load_data, f"Task {checks.shown(task_name)}", ways)
    return path


def fetch(
    path: pathlib.Path, load_data: Callable[[str], Any], what: str, ways: str
) -> None:
    """Downloads a data set's file.

    Args:
      path: The file, which is absent.
      load_data: TFF's loader, which downloads the file into the folder given.
      what: What needs the file, for messages.
      ways: The ways to go on without the download, a sentence.

    Raises:
      OSError: If the download fails.
    """
    try:
        _download(path, load_data)
    except OSError as error:
        raise OSError(
            f"{what} needs the file {path}, and its download failed: {error}. {ways}"
        ) from error


def _download(path: pathlib.Path, load_data: Callable[[str], Any]) -> None:
    files.make_folder(path.parent)
    # TFF writes to the final name, so that a download cut short would look like
    # the file. It goes to a folder of its own first.
    folder = tempfile.mkdtemp(prefix=".download-", dir=path.parent)
    try:
        load_data(folder)
        os.replace(pathlib.Path(folder) / path.name, path)
    finally:
        shutil.rmtree(folder)


def check_file(
    path: pathlib.Path,
    split_names: Sequence[str],
    remedy: str = "It is another data set: put TFF's file in its place.",
) -> None:
    """Raises unless `path` is a whole SQLite file of TFF's format with the splits.

    Args:
      path: The file.
      split_names: The splits that it must have clients of.
      remedy: What to do about one of another format or with other splits.

    Raises:
      DataError: If it is not.
    """
    sqlite_access.check_header(path)
    with sqlite_access.reading(path) as connection:
        for table, columns in _TABLES.items():
            found = {
                row[1] for row in connection.execute(f"PRAGMA table_info({table})")
            }
            if not columns <= found:
                lack = f"no column {sorted(columns - found)} in" if found else "no"
                raise example_checks.DataError(
                    f"{path} is a SQLite file with {lack} table {checks.shown(table)}: "
                    f"it is not one of TFF's federated data sets. {remedy}"
                )
        query = "SELECT DISTINCT split_name FROM client_metadata"
        splits = sorted(str(row[0]) for row in connection.execute(query))
    missing = [name for name in split_names if name not in splits]
    if missing:
        raise example_checks.DataError(
            f"{path} has no clients of the splits {checks.shown(missing)}; its splits "
            f"are {checks.shown(splits)}. {remedy}"
        )


def count_clients(
    path: pathlib.Path, split_names: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Returns the numbers of clients and of examples of splits, as the file has them.

    Args:
      path: The file.
      split_names: The splits.

    Returns:
      Clients and examples by split.

    Raises:
      DataError: If the file is damaged or of another format, or lacks a split.
    """
    check_file(path, split_names)
    query = (
        "SELECT split_name, COUNT(*), SUM(num_examples) FROM client_metadata "
        "GROUP BY split_name"
    )
    with sqlite_access.reading(path) as connection:
        counts = {name: (clients, n) for name, clients, n in connection.execute(query)}
    return {name: counts[name] for name in split_names}


def infer_element_spec(path: pathlib.Path) -> dict[str, tf.TensorSpec]:
    """Returns the name, type and shape of the features of a file's first example.

    Args:
      path: The file, of the format that `check_file` checks.

    Returns:
      A scalar for a feature of one value, a vector for one of several, in the order
      of the names.

    Raises:
      DataError: If the file cannot be read or holds something else.
    """
    with sqlite_access.reading(path) as connection:
        query = "SELECT serialized_example_proto FROM examples LIMIT 1"
        row = connection.execute(query).fetchone()
    try:
        example = tf.train.Example.FromString(row[0])
    # Each implementation of protobuf has an error of its own.
    except Exception as error:
        raise example_checks.DataError(
            f"{path} holds no examples in TFF's format ({error}). Check that it is the "
            "right file."
        ) from error
    spec = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        count = len(getattr(feature, kind).value) if kind else 0
        if not count:
            raise example_checks.DataError(
                f"{path}, field {checks.shown(name)}: the first example has no value. "
                "Name the features to read, with their shapes, by element_spec."
            )
        spec[name] = tf.TensorSpec(() if count == 1 else (count,), _KINDS[kind])
    return spec


class SqliteExamples:
    """Reads clients' examples from a SQLite file of TFF's format.

    The examples and their order are those of `tff.simulation.datasets.SqlClientData`.
    """

    def __init__(
        self,
        path: pathlib.Path,
        split_names: Sequence[str],
        element_spec: Mapping[str, tf.TensorSpec],
        num_classes: Mapping[str, int] | None = None,
    ) -> None:
        """Initializes the reader and checks the file's format.

        Args:
          path: The file.
          split_names: The splits that will be read.
          element_spec: The name, type and shape of the features to read.
          num_classes: The number of classes of those features that are labels.

        Raises:
          DataError: If the file is damaged or of another format, or its examples
            have other features.
        """
        self._path = path
        self._split_names = tuple(split_names)
        self._element_spec = dict(element_spec)
        self._num_classes = dict(num_classes or {})
        self._index: row_index.RowIndex | None = None
        self._lock = threading.Lock()
        check_file(path, split_names)
        with sqlite_access.reading(path) as connection:
            self._has_checksums = sqlite_checksums.check_counts(connection, path)
            query = "SELECT serialized_example_proto FROM examples LIMIT 1"
            protos = [row[0] for row in connection.execute(query)]
        self._parse(protos, str(path))

    def __getstate__(self) -> dict[str, Any]:
        # Another process, which has the file under the same path, opens it anew.
        state = self.__dict__.copy()
        del state["_lock"]
        return {**state, "_index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def _rows(self) -> row_index.RowIndex:
        with self._lock:
            if self._index is None:
                self._index = row_index.RowIndex(self._path)
            return self._index

    def source_sha256(self) -> str | None:
        """Returns a hash of the splits' contents; `None` if there are no checksums."""
        if not self._has_checksums:
            return None
        with sqlite_access.reading(self._path) as connection:
            return sqlite_checksums.sha256(connection, self._split_names)

    def client_ids(self, split_name: str) -> list[str]:
        """Returns the ids of a split's clients, sorted.

        Args:
          split_name: One of the reader's splits.

        Returns:
          The ids.

        Raises:
          DataError: If the file cannot be read, or an id is not valid text.
        """
        client_ids = self._rows.client_ids(split_name)
        wrong = [each for each in client_ids if not isinstance(each, str)]
        if wrong:
            raise example_checks.DataError(
                f"{self._path}: client {checks.shown(wrong[0])} of split "
                f"{checks.shown(split_name)} has an id that is not valid text. It may "
                "be damaged: delete it and fetch it again."
            )
        with sqlite_access.reading(self._path) as connection:
            query = (
                "SELECT COUNT(DISTINCT client_id) FROM client_metadata "
                "WHERE split_name = ?"
            )
            ((count,),) = connection.execute(query, (split_name,))
        if count != len(client_ids):
            raise example_checks.DataError(
                f"{self._path} has {count} clients of split "
                f"{checks.shown(split_name)}, but {len(client_ids)} were found before. "
                f"If there is a file {self._path.name}{row_index.SUFFIX}, delete it; "
                "then load the file anew."
            )
        return client_ids

    def read(self, split_name: str, client_id: str) -> dict[str, np.ndarray]:
        """Returns the examples of one client, stacked feature by feature.

        Args:
          split_name: One of the reader's splits.
          client_id: One of the split's clients.

        Returns:
          One array per feature.

        Raises:
          DataError: If the file is damaged, or the client has no examples, other
            features, a number that is not finite, text that is not UTF-8, or a
            label that is not a class. The message names file, client and field.
        """
        where = (
            f"{self._path}: client {checks.shown(client_id)} of split "
            f"{checks.shown(split_name)}"
        )
        protos: list[bytes] = []
        with sqlite_access.reading(self._path) as connection:
            for run in self._rows.runs(split_name, client_id):
                protos.extend(self._read_run(connection, run, (split_name, client_id)))
            if self._has_checksums:
                found = sqlite_checksums.checksum(protos)
                sqlite_checksums.check(connection, split_name, client_id, found, where)
        features = self._parse(protos, where)
        example_checks.check_features(features, where, self._num_classes)
        return features

    def _read_run(
        self,
        connection: sqlite3.Connection,
        run: tuple[int, int],
        client: tuple[str, str],
    ) -> list[bytes]:
        """Returns the examples of successive rows, all of one client."""
        query = (
            "SELECT serialized_example_proto FROM examples WHERE rowid BETWEEN ? AND ? "
            "AND split_name = ? AND client_id = ? ORDER BY rowid"
        )
        first, last = run
        protos = [row[0] for row in connection.execute(query, (*run, *client))]
        if len(protos) != last - first + 1:
            raise example_checks.DataError(
                f"{self._path}: rows {first} to {last} are not all of client "
                f"{checks.shown(client[1])}. The file has changed: load it anew; if "
                f"there is a file {self._path.name}{row_index.SUFFIX}, delete that "
                "first."
            )
        return protos

    def _parse(self, protos: Sequence[bytes], where: str) -> dict[str, np.ndarray]:
        wanted = {
            # A tf.train.Example knows no integers but 64-bit ones.
            name: tf.io.FixedLenFeature(
                spec.shape, tf.int64 if spec.dtype.is_integer else spec.dtype
            )
            for name, spec in self._element_spec.items()
        }
        try:
            if not all(isinstance(proto, bytes) for proto in protos):
                raise TypeError("an example is not a sequence of bytes")
            serialized = tf.constant(protos, tf.string, shape=(len(protos),))
            parsed = tf.io.parse_example(serialized, wanted)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise example_checks.DataError(
                f"{where} has examples of another data set: expected the features "
                f"{sorted(wanted)}{_bad_field(error)} ({_plain(error)}). Check that it "
                "is the right file."
            ) from error
        return {
            name: _cast(
                parsed[name].numpy(), spec.dtype, f"{where}, field {checks.shown(name)}"
            )
            for name, spec in self._element_spec.items()
        }


def _bad_field(error: Exception) -> str:
    """Returns the field that TensorFlow's message complains of, if it names one."""
    match = re.search(r"(?:Feature|Key): (\w+)", str(error))
    return f", but field {checks.shown(match[1])} does not fit" if match else ""


def _plain(error: Exception) -> str:
    """Returns TensorFlow's message without what is TensorFlow's own business."""
    return re.sub(r"\{\{.*?\}\} ?|Name: <unknown>, | ?\[Op:\w+\]", "", str(error))


def _cast(array: np.ndarray, dtype: tf.DType, where: str) -> np.ndarray:
    if dtype.is_integer and array.size:
        limits = np.iinfo(dtype.as_numpy_dtype)
        low, high = array.min(), array.max()
        if low < limits.min or high > limits.max:
            raise example_checks.DataError(
                f"{where}: found {low if low < limits.min else high}, which is not of "
                f"type {dtype.name}. Check that it is the right file."
            )
    return array.astype(dtype.as_numpy_dtype, copy=False)
