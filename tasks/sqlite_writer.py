"""Writing of clients' data as a SQLite file that TFF's loaders read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import example_checks

# One client: its id and its examples, stacked feature by feature.
Client = tuple[str, Mapping[str, Any]]

_TABLES = """
    CREATE TABLE examples (
        split_name TEXT NOT NULL,
        client_id TEXT NOT NULL,
        serialized_example_proto BLOB NOT NULL
    );
    CREATE TABLE client_metadata (
        client_id TEXT NOT NULL,
        split_name TEXT NOT NULL,
        num_examples INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX every_client_once ON client_metadata (client_id, split_name);
"""


def write_sqlite(
    path: str | os.PathLike[str],
    splits: Mapping[str, Iterable[Client]],
    *,
    overwrite: bool = False,
) -> None:
    """Writes clients' data as a SQLite file of TFF's format.

    Clients are taken from their iterables one by one and forgotten once they are
    written, so that there may be millions of them. `tasks.from_sqlite` makes a task
    of the file; TFF reads it with
    `tff.simulation.datasets.load_and_parse_sql_client_data(path, element_spec,
    split_name)`.

    For instance:

        def read_clients():
            for folder in pathlib.Path("records").iterdir():
                yield folder.name, {"x": np.load(folder / "x.npy"), "label": ...}

        tasks.write_sqlite("records.sqlite", {"train": read_clients()})

    Args:
      path: The file to write. It appears when it is complete.
      splits: The clients of each split by the split's name, such as "train". A
        client is its id and its examples: by the features' names, arrays with one
        row per example. Integers are stored as 64-bit integers, floats as 32-bit
        ones, strings as UTF-8. Shapes are stored flat.
      overwrite: Whether a file that is there may be replaced.

    Raises:
      FileExistsError: If the file is there and not to be overwritten.
      TypeError: If a feature is of a type that cannot be stored.
      ValueError: If there is no client, a client comes twice in a split or has no
        examples, features differ between clients in name, type or shape, arrays of
        a client in length, a number is not finite, or bytes are not UTF-8. The
        message names file, client and field.
    """
    path = pathlib.Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Pass overwrite=True to replace it.")
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(name)) as connection:
            _write(connection, splits, path)
        # A temporary file is its owner's alone; this one is like any other file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)


def _write(
    connection: sqlite3.Connection,
    splits: Mapping[str, Iterable[Client]],
    path: pathlib.Path,
) -> None:
    # The file is not there before it is complete: nothing to recover.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(_TABLES)
    kinds: dict[str, tuple[str, tuple[int, ...]]] | None = None
    for split_name, clients in splits.items():
        for client_id, features in clients:
            where = f"{path}: client {client_id!r} of split {split_name!r}"
            arrays = {
                name: _storable(value, f"{where}, field {name!r}")
                for name, value in features.items()
            }
            example_checks.check_features(arrays, where)
            found = {
                name: (array.dtype.kind, array.shape[1:])
                for name, array in arrays.items()
            }
            kinds = kinds or found
            _check_alike(arrays, found, kinds, where)
            count = len(next(iter(arrays.values())))
            try:
                connection.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)",
                    (client_id, split_name, count),
                )
            except sqlite3.IntegrityError as error:
                raise ValueError(
                    f"{where} comes twice. Give all its examples at once."
                ) from error
            connection.executemany(
                "INSERT INTO examples VALUES (?, ?, ?)",
                ((split_name, client_id, proto) for proto in _serialize(arrays)),
            )
    if kinds is None:
        raise ValueError(f"{path}: there is no client to write. Give at least one.")
    connection.execute("DROP INDEX every_client_once")
    connection.commit()


def _storable(value: Any, where: str) -> np.ndarray:
    """Returns an array of 64-bit integers, 32-bit floats, or bytes."""
    array = np.asarray(value)
    if array.ndim == 0:
        raise ValueError(f"{where} is no array. Give one row per example.")
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind in "OSU":
        texts = [
            text.encode() if isinstance(text, str) else text for text in array.ravel()
        ]
        if all(isinstance(text, bytes) for text in texts):
            stored = np.empty(len(texts), object)
            stored[:] = texts
            return stored.reshape(array.shape)
    raise TypeError(
        f"{where} is an array of {array.dtype}. Give integers, floats or strings."
    )


def _check_alike(
    arrays: Mapping[str, np.ndarray],
    found: Mapping[str, tuple[str, tuple[int, ...]]],
    kinds: Mapping[str, tuple[str, tuple[int, ...]]],
    where: str,
) -> None:
    if found.keys() != kinds.keys():
        raise ValueError(
            f"{where} has the fields {sorted(found)}, but the first client has "
            f"{sorted(kinds)}. Give all clients the same."
        )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"{where} has fields of different lengths: {lengths}. Give every field one "
            "row per example."
        )
    for name, kind in kinds.items():
        if found[name] != kind:
            raise ValueError(
                f"{where}, field {name!r}: the first client has type and shape {kind}, "
                f"found {found[name]}. Give all clients the same."
            )


def _serialize(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    makers = {"i": _int64_feature, "f": _float_feature, "O": _bytes_feature}
    fields = [
        (name, array.reshape(len(array), -1), makers[array.dtype.kind])
        for name, array in arrays.items()
    ]
    for number in range(len(fields[0][1])):
        feature = {name: make(rows[number]) for name, rows, make in fields}
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        yield example.SerializeToString()


def _int64_feature(values: np.ndarray) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _float_feature(values: np.ndarray) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _bytes_feature(values: np.ndarray) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values.tolist()))
