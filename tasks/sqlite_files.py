"""The SQLite files of TFF's federated data sets: found, checked and read.

A file has the tables `examples` (one serialized `tf.train.Example` per row, with
its client and split) and `client_metadata`, as `tff.simulation.datasets.SqlClientData`
wants them. TFF finds a client's rows by a query, and the official files have no
index for it: each client costs a pass over the whole file. The reader here keeps an
index of its own, see `tasks.row_index`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import example_checks, row_index

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"
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
    folder = pathlib.Path("~/.tff" if cache_dir is None else cache_dir).expanduser()
    path = folder / file_name
    if path.is_file():
        return path
    ways = (
        f"There are three ways to go on: download=True fetches TFF's official file "
        f"into this folder, on a machine with network; cache_dir=FOLDER names a "
        f"folder that holds {file_name} already unpacked; synthetic=True runs on "
        "TFF's small synthetic stand-in."
    )
    if not download:
        raise FileNotFoundError(
            f"Task {task_name!r} needs the file {path}, which does not exist. {ways}"
        )
    try:
        _download(path, load_data)
    except OSError as error:
        raise OSError(
            f"Task {task_name!r} needs the file {path}, and its download failed: "
            f"{error}. {ways}"
        ) from error
    return path


def _download(path: pathlib.Path, load_data: Callable[[str], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # TFF writes to the final name, so that a download cut short would look like
    # the file. It goes to a folder of its own first.
    folder = tempfile.mkdtemp(prefix=".download-", dir=path.parent)
    try:
        load_data(folder)
        os.replace(pathlib.Path(folder) / path.name, path)
    finally:
        shutil.rmtree(folder)


def check_file(path: pathlib.Path, split_names: Sequence[str]) -> None:
    """Raises unless `path` is a whole SQLite file of TFF's format with the splits.

    Args:
      path: The file.
      split_names: The splits that it must have clients of.

    Raises:
      ValueError: If it is not.
    """
    _check_header(path)
    with _reading(path) as connection:
        for table, columns in _TABLES.items():
            found = {
                row[1] for row in connection.execute(f"PRAGMA table_info({table})")
            }
            if not columns <= found:
                lack = f"no column {sorted(columns - found)} in" if found else "no"
                raise ValueError(
                    f"{path} is a SQLite file with {lack} table {table!r}: it is not "
                    "one of TFF's federated data sets. Put TFF's file in its place."
                )
        query = "SELECT DISTINCT split_name FROM client_metadata"
        splits = sorted(str(row[0]) for row in connection.execute(query))
    missing = [name for name in split_names if name not in splits]
    if missing:
        raise ValueError(
            f"{path} has no clients of the splits {missing}; its splits are {splits}: "
            "it is another data set. Put TFF's file in its place."
        )


def _check_header(path: pathlib.Path) -> None:
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise ValueError(
            f"{path} is not a SQLite file. Put TFF's unpacked file in its place; a "
            "file that ends in .lzma must be unpacked first."
        )
    page_bytes = int.from_bytes(header[16:18], "big")
    # The format has no room for 65536 in two bytes and writes 1 for it.
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    # Bytes 28 to 31 count the pages, and hold if the two change counters agree.
    pages = int.from_bytes(header[28:32], "big")
    expected, found = page_bytes * pages, path.stat().st_size
    if header[24:28] == header[92:96] and found < expected:
        raise ValueError(
            f"{path} is truncated: it has {found} bytes of {expected}. Delete it and "
            "fetch it again."
        )


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
    # Errors at opening and at reading alike.
    with contextlib.ExitStack() as stack:
        stack.enter_context(_sqlite_errors(path))
        connection = sqlite3.connect(uri, uri=True)
        stack.callback(connection.close)
        yield connection


@contextlib.contextmanager
def _sqlite_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise example_checks.DataError(
            f"{path} cannot be read as a SQLite file ({error}). It may be damaged: "
            "delete it and fetch it again."
        ) from error


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
      ValueError: If the file is damaged or of another format, or lacks a split.
    """
    check_file(path, split_names)
    query = (
        "SELECT split_name, COUNT(*), SUM(num_examples) FROM client_metadata "
        "GROUP BY split_name"
    )
    with _reading(path) as connection:
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
      ValueError: If the file cannot be read or holds something else.
    """
    with _reading(path) as connection:
        query = "SELECT serialized_example_proto FROM examples LIMIT 1"
        row = connection.execute(query).fetchone()
    try:
        example = tf.train.Example.FromString(row[0])
    # Each implementation of protobuf has an error of its own.
    except Exception as error:
        raise ValueError(
            f"{path} holds no examples in TFF's format ({error}). Check that it is the "
            "right file."
        ) from error
    spec = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        count = len(getattr(feature, kind).value)
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
          ValueError: If the file is damaged or of another format, or its examples
            have other features.
        """
        self._path = path
        self._element_spec = dict(element_spec)
        self._num_classes = dict(num_classes or {})
        self._index: row_index.RowIndex | None = None
        self._lock = threading.Lock()
        check_file(path, split_names)
        with _reading(path) as connection:
            query = "SELECT serialized_example_proto FROM examples LIMIT 1"
            protos = [row[0] for row in connection.execute(query)]
        self._parse(protos, str(path))

    @property
    def _rows(self) -> row_index.RowIndex:
        with self._lock:
            if self._index is None:
                with _sqlite_errors(self._path):
                    self._index = row_index.RowIndex(self._path)
            return self._index

    def client_ids(self, split_name: str) -> list[str]:
        """Returns the ids of a split's clients, sorted.

        Args:
          split_name: One of the reader's splits.

        Returns:
          The ids.

        Raises:
          ValueError: If the file cannot be read.
        """
        return self._rows.client_ids(split_name)

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
            label that is none. The message names file, client and field.
        """
        query = (
            "SELECT serialized_example_proto FROM examples "
            "WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
        )
        protos: list[bytes] = []
        runs = self._rows.runs(split_name, client_id)
        with _reading(self._path) as connection:
            for run in runs:
                protos.extend(row[0] for row in connection.execute(query, run))
        where = f"{self._path}: client {client_id!r} of split {split_name!r}"
        features = self._parse(protos, where)
        example_checks.check_features(features, where, self._num_classes)
        return features

    def _parse(self, protos: Sequence[bytes], where: str) -> dict[str, np.ndarray]:
        wanted = {
            # A tf.train.Example knows no integers but 64-bit ones.
            name: tf.io.FixedLenFeature(
                spec.shape, tf.int64 if spec.dtype.is_integer else spec.dtype
            )
            for name, spec in self._element_spec.items()
        }
        try:
            serialized = tf.constant(protos, tf.string, shape=(len(protos),))
            parsed = tf.io.parse_example(serialized, wanted)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise example_checks.DataError(
                f"{where} has examples of another data set: expected the features "
                f"{sorted(wanted)}{_bad_field(error)} ({_plain(error)}). Check that it "
                "is the right file."
            ) from error
        return {
            name: _cast(parsed[name].numpy(), spec.dtype, f"{where}, field {name!r}")
            for name, spec in self._element_spec.items()
        }


def _bad_field(error: Exception) -> str:
    """Returns the field that TensorFlow's message complains of, if it names one."""
    match = re.search(r"(?:Feature|Key): (\w+)", str(error))
    return f", but field {match[1]!r} does not fit" if match else ""


def _plain(error: Exception) -> str:
    """Returns TensorFlow's message without what is TensorFlow's own business."""
    return re.sub(r"\{\{.*?\}\} ?|Name: <unknown>, | ?\[Op:\w+\]", "", str(error))


def _cast(array: np.ndarray, dtype: tf.DType, where: str) -> np.ndarray:
    if dtype.is_integer and array.size:
        limits = np.iinfo(dtype.as_numpy_dtype)
        low, high = array.min(), array.max()
        if low < limits.min or high > limits.max:
            raise example_checks.DataError(
                f"{where}: found {low if low < limits.min else high}, which is no "
                f"{dtype.name}. Check that it is the right file."
            )
    return array.astype(dtype.as_numpy_dtype, copy=False)
