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

from tasks.sources import example_checks, sqlite_checksums
from tff_drift import checks
from tff_drift.simulation.data import lists

# One client: its id and its examples, stacked feature by feature.
Client = tuple[str, Mapping[str, Any]]

# Type and shape of a row, by the features' names.
Kinds = Mapping[str, tuple[str, tuple[int, ...]]]

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

        def read_clients(part):
            for folder in pathlib.Path("records", part).iterdir():
                x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
                yield folder.name, {"x": x, "label": y}

        splits = {part: read_clients(part) for part in ("train", "test")}
        tasks.write_sqlite("records.sqlite", splits)
        task = tasks.from_sqlite("records.sqlite", num_classes=10)

    Args:
      path: The file to write. It appears when it is complete.
      splits: The clients of each split by the split's name: "train" and "test", unless
        `tasks.from_sqlite` is given other names. A client is its id and its examples:
        by the features' names, arrays with one row per example. Integers are stored as
        64-bit integers, floats as 32-bit ones, strings as UTF-8. Shapes are stored
        flat. A checksum of each client's examples is stored too, by which
        `tasks.from_sqlite` notices damage.
      overwrite: Whether a file that is there may be replaced.

    Raises:
      DataError: If there is no client, a client appears twice in a split or has no
        examples, features differ between clients in name, type or shape, arrays of
        a client in length, a number is not finite or has no room, or bytes are not
        UTF-8. The message names file, client and field.
      FileExistsError: If the file is there and not to be overwritten.
      OSError: If the file cannot be written, for instance because the disk is full.
      TypeError: If an argument has the wrong type, or a feature one that cannot be
        stored.
      ValueError: If an argument is out of its range.
    """
    checks.check_path("path", path)
    checks.check_flag("overwrite", overwrite)
    if not isinstance(splits, Mapping):
        raise TypeError(
            "splits must have the clients of each split by its name, such as "
            f'{{"train": clients}}, found {type(splits).__name__}.'
        )
    path = pathlib.Path(path)
    if path.is_dir() or (path.exists() and not overwrite):
        raise FileExistsError(
            f"{path} is a folder. Name a file in it."
            if path.is_dir()
            else f"{path} exists. Pass overwrite=True to replace it."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write to.")
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(name)) as connection:
            try:
                _write(connection, splits, path)
            except sqlite3.Error as error:
                raise OSError(
                    f"{path} cannot be written ({error}). Make room, or write it "
                    "elsewhere."
                ) from error
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
    connection.executescript(_TABLES + sqlite_checksums.TABLE)
    kinds: Kinds | None = None
    for split_name, clients in splits.items():
        checks.check_text("the name of a split", split_name)
        if isinstance(clients, (str, Mapping)) or not isinstance(clients, Iterable):
            raise TypeError(
                f"splits[{checks.shown(split_name)}] must be pairs of a client's id "
                f"and its features, found {type(clients).__name__}."
            )
        for client in clients:
            client_id, arrays = _check_client(client, split_name, path)
            where = (
                f"{path}: client {checks.shown(client_id)} of split "
                f"{checks.shown(split_name)}"
            )
            found = {
                name: (array.dtype.kind, array.shape[1:])
                for name, array in arrays.items()
            }
            kinds = kinds or found
            _check_alike(arrays, found, kinds, where)
            _insert(connection, split_name, client_id, arrays, where)
    if kinds is None:
        raise example_checks.DataError(
            f"{path}: there is no client to write. Give at least one."
        )
    connection.commit()


def _insert(
    connection: sqlite3.Connection,
    split_name: str,
    client_id: str,
    arrays: Mapping[str, np.ndarray],
    where: str,
) -> None:
    protos = list(_serialize(arrays))
    try:
        connection.execute(
            "INSERT INTO client_checksums VALUES (?, ?, ?)",
            (split_name, client_id, sqlite_checksums.checksum(protos)),
        )
    except sqlite3.IntegrityError as error:
        raise example_checks.DataError(
            f"{where} appears twice. Give all its examples at once."
        ) from error
    connection.execute(
        "INSERT INTO client_metadata VALUES (?, ?, ?)",
        (client_id, split_name, len(protos)),
    )
    connection.executemany(
        "INSERT INTO examples VALUES (?, ?, ?)",
        ((split_name, client_id, proto) for proto in protos),
    )


def _check_client(
    client: Any, split_name: str, path: pathlib.Path
) -> tuple[str, dict[str, np.ndarray]]:
    """Returns a client's id and its features, ready to store."""
    if not isinstance(client, (tuple, list)) or len(client) != 2:
        raise TypeError(
            f"splits[{checks.shown(split_name)}] must be pairs of a client's id and "
            f"its features, found {checks.shown(client)}."
        )
    client_id, features = client
    checks.check_text(
        f"{path}: the id of a client of split {checks.shown(split_name)}", client_id
    )
    where = (
        f"{path}: client {checks.shown(client_id)} of split {checks.shown(split_name)}"
    )
    if not isinstance(features, Mapping) or not all(
        isinstance(name, str) for name in features
    ):
        raise TypeError(
            f"{where} must have arrays by the names of its features, found "
            f"{checks.shown(features)}."
        )
    arrays = {
        name: _storable(value, f"{where}, field {checks.shown(name)}")
        for name, value in features.items()
    }
    example_checks.check_features(arrays, where)
    return client_id, arrays


def _storable(value: Any, where: str) -> np.ndarray:
    """Returns an array of 64-bit integers, 32-bit floats, or bytes."""
    try:
        array = lists.array_of(value) if isinstance(value, list) else np.asarray(value)
    except ValueError as error:
        raise example_checks.DataError(f"{where}: {error}") from error
    if array.ndim == 0:
        raise example_checks.DataError(
            f"{where} is not an array. Give one row per example."
        )
    if 0 in array.shape[1:]:
        raise example_checks.DataError(
            f"{where} has rows of shape {array.shape[1:]}, without a value. Leave the "
            "field out."
        )
    if array.dtype.kind in "biu":
        return _to_int64(array, where)
    if array.dtype.kind == "f":
        return example_checks.to_float32(array, where) if len(array) else array
    if array.dtype.kind in "OSU":
        try:
            texts = [
                text.encode() if isinstance(text, str) else text
                for text in array.ravel()
            ]
        except UnicodeEncodeError as error:
            raise example_checks.DataError(
                f"{where} is not valid text ({error}). Remove what is not a character."
            ) from error
        if all(isinstance(text, bytes) for text in texts):
            stored = np.empty(len(texts), object)
            stored[:] = texts
            return stored.reshape(array.shape)
    raise TypeError(
        f"{where} is an array of {array.dtype}. Give integers, floats or strings."
    )


def _to_int64(array: np.ndarray, where: str) -> np.ndarray:
    limit = np.iinfo(np.int64).max
    if array.dtype.kind == "u" and array.size and array.max() > limit:
        rows = (array > limit).reshape(len(array), -1).any(axis=1)
        example = int(np.argmax(rows))
        raise example_checks.DataError(
            f"{where}, example {example}: found {array[example].max()}, but the "
            f"largest integer that can be stored is {limit}. Store it as a float or a "
            "text."
        )
    return array.astype(np.int64)


def _check_alike(
    arrays: Mapping[str, np.ndarray],
    found: Kinds,
    kinds: Kinds,
    where: str,
) -> None:
    if found.keys() != kinds.keys():
        raise example_checks.DataError(
            f"{where} has the fields {sorted(found)}, but the first client has "
            f"{sorted(kinds)}. Give all clients the same."
        )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise example_checks.DataError(
            f"{where} has fields of different lengths: {lengths}. Give every field one "
            "row per example."
        )
    for name, kind in kinds.items():
        if found[name] != kind:
            raise example_checks.DataError(
                f"{where}, field {checks.shown(name)}: the first client has type and "
                f"shape {kind}, found {found[name]}. Give all clients the same."
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
