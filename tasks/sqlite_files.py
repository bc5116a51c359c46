"""The SQLite files of TFF's federated data sets: found, checked and read.

A file has the tables `examples` (one serialized `tf.train.Example` per row, with
its client and split) and `client_metadata`, as `tff.simulation.datasets.SqlClientData`
wants them. TFF finds a client's rows by a query, and the official files have no
index for it: each client costs a pass over the whole file. The reader here passes
over the file once and remembers where every client's rows are.
"""

from __future__ import annotations

import array
import contextlib
import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"
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
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise ValueError(
            f"{path} cannot be read as a SQLite file ({error}). It may be damaged: "
            "delete it and fetch it again."
        ) from error


class SqliteExamples:
    """Reads clients' examples from a SQLite file of TFF's format.

    The examples and their order are those of `tff.simulation.datasets.SqlClientData`.
    """

    def __init__(
        self,
        path: pathlib.Path,
        split_names: Sequence[str],
        element_spec: Mapping[str, tf.TensorSpec],
    ) -> None:
        """Initializes the reader and checks the file's format.

        Args:
          path: The file.
          split_names: The splits that will be read.
          element_spec: The name, type and shape of every feature of an example.

        Raises:
          ValueError: If the file is damaged or of another format, or its examples
            have other features.
        """
        self._path = path
        self._split_names = tuple(split_names)
        self._element_spec = dict(element_spec)
        self._rows: dict[tuple[str, str], array.array[int]] = {}
        self._lock = threading.Lock()
        check_file(path, split_names)
        with _reading(path) as connection:
            query = "SELECT serialized_example_proto FROM examples LIMIT 1"
            self._parse([row[0] for row in connection.execute(query)])

    def client_ids(self, split_name: str) -> list[str]:
        """Returns the ids of a split's clients, sorted.

        Args:
          split_name: One of the reader's splits.

        Returns:
          The ids.

        Raises:
          ValueError: If the file cannot be read.
        """
        query = "SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?"
        with _reading(self._path) as connection:
            return sorted(row[0] for row in connection.execute(query, (split_name,)))

    def read(self, split_name: str, client_id: str) -> dict[str, np.ndarray]:
        """Returns the examples of one client, stacked feature by feature.

        Args:
          split_name: One of the reader's splits.
          client_id: One of the split's clients.

        Returns:
          One array per feature, without rows if the client has no examples.

        Raises:
          ValueError: If the file is damaged, or its examples have other features.
        """
        with self._lock:
            if not self._rows:
                self._rows = self._find_rows()
        bounds = self._rows.get((split_name, client_id), array.array("q"))
        query = (
            "SELECT serialized_example_proto FROM examples "
            "WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
        )
        protos: list[bytes] = []
        with _reading(self._path) as connection:
            for first, last in zip(bounds[::2], bounds[1::2]):
                protos.extend(
                    row[0] for row in connection.execute(query, (first, last))
                )
        return self._parse(protos)

    def _find_rows(self) -> dict[tuple[str, str], array.array[int]]:
        """Returns for each client the first and last row of every run of its rows."""
        marks = ", ".join("?" for _ in self._split_names)
        query = (
            "SELECT rowid, split_name, client_id FROM examples "
            f"WHERE split_name IN ({marks})"
        )
        runs: dict[tuple[str, str], array.array[int]] = {}
        with _reading(self._path) as connection:
            for row, split_name, client_id in connection.execute(
                query, self._split_names
            ):
                bounds = runs.setdefault((split_name, client_id), array.array("q"))
                if bounds and bounds[-1] == row - 1:
                    bounds[-1] = row
                else:
                    bounds.extend((row, row))
        return runs

    def _parse(self, protos: Sequence[bytes]) -> dict[str, np.ndarray]:
        features = {
            # A tf.train.Example knows no integers but 64-bit ones.
            name: tf.io.FixedLenFeature(
                spec.shape, tf.int64 if spec.dtype.is_integer else spec.dtype
            )
            for name, spec in self._element_spec.items()
        }
        try:
            serialized = tf.constant(protos, tf.string, shape=(len(protos),))
            parsed = tf.io.parse_example(serialized, features)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._path} holds examples of another data set: expected the "
                f"features {sorted(features)} ({error}). Put TFF's file in its place."
            ) from error
        return {
            name: parsed[name].numpy().astype(spec.dtype.as_numpy_dtype, copy=False)
            for name, spec in self._element_spec.items()
        }
