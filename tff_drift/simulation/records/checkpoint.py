"""One file that holds a run at the end of a round.

A checkpoint is a NumPy archive (`.npz`, read without pickle) of every leaf of the
run's structures, bit for bit, and of a header in JSON: the file's format, the number
of rounds completed, the run's description, and the path, dtype and shape of every
leaf. Each member carries a checksum, so a damaged file is distinguished from a whole
one.

The server's non-trainable weights, which no round changes, such as those of a frozen
backbone, are in an archive of their own beside it, if they are large: it is written
once, before the first checkpoint that names it with a digest of what it holds. Such
checkpoints have their small arrays compressed: adapters are many small leaves, whose
names take more than a hundredth of the bytes, and beside a round of a large model the
milliseconds do not count.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import tree

from tff_drift import checks, files
from tff_drift.simulation.records.output_dir import FROZEN_FILE

FORMAT = "tff_drift checkpoint"
FORMAT_VERSION = 1
# Of a checkpoint that names a file of frozen weights.
_VERSION_WITH_FROZEN = 2

_FROZEN_FORMAT = "tff_drift frozen weights"
# The structure and the paths of what no round changes.
_SERVER_STATE, _FROZEN_PATHS = "server_state", "global_model_weights/non_trainable/"
# A smaller file would not be worth another one to look after.
_LEAST_FROZEN_BYTES = 2**20

_HEADER = "header"
# What a compressed member may hold. Without a limit, a small archive from elsewhere
# could fill the RAM.
_MOST_COMPRESSED_BYTES = 2**18
# A member has a header of NumPy's before the values, of 128 bytes or a little more.
_MOST_HEADER_BYTES = 2**10
# Booleans, integers, unsigned integers, floats, complex numbers.
_SAVED_KINDS = "biufc"
# NumPy drops NULs at the end of texts of a fixed length, unless something follows.
_END_OF_TEXT = b"."


class CheckpointError(checks.ShortError):
    """A checkpoint that cannot be written, read, or used for this process."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a round.

    Attributes:
      rounds_completed: The number of rounds trained; 0 is the initial state.
      description: What the run is, in JSON values, to compare with the run that
        wants to go on.
      leaves: The leaves of each structure by their paths, for instance
        `{"server_state": {"global_model_weights/trainable/0": array}}`. Those of
        `tf.string` are arrays of `bytes` objects.
    """

    rounds_completed: int
    description: Mapping[str, Any]
    leaves: Mapping[str, Mapping[str, np.ndarray]]

    def restore(self, name: str, like: Any) -> Any:
        """Returns a saved structure in the containers of another one.

        Args:
          name: The structure's name, such as `"server_state"`.
          like: A structure of the same containers, shapes and dtypes, for
            instance the process's initial state.

        Returns:
          The structure `like` with the saved leaves; leaves without dimensions
          are NumPy scalars.

        Raises:
          CheckpointError: If paths, shapes or dtypes differ.
        """
        saved, expected = self.leaves.get(name, {}), _named_leaves(name, like)
        for path in [*expected, *saved]:
            was, now = (
                f"shape {leaves[path].shape} and dtype {leaves[path].dtype}"
                if path in leaves
                else "no value"
                for leaves in (saved, expected)
            )
            if was != now:
                raise CheckpointError(
                    f"The checkpoint does not fit the process: {checks.shown(path)} of "
                    f"{name} has {was} in the checkpoint and {now} in the process. "
                    "Take the process of the run, or choose another output_dir."
                )
        # `array[()]` is the scalar of an array without dimensions and leaves any
        # other array as it is.
        return tree.unflatten_as(like, [saved[path][()] for path in expected])


def _named_leaves(name: str, structure: Any) -> dict[str, np.ndarray]:
    """Returns the leaves of `structure` as arrays, by their paths."""
    leaves = {}
    for path, leaf in tree.flatten_with_path(structure):
        path_name = "/".join(str(part) for part in path)
        array = np.asarray(leaf)
        if isinstance(leaf, bytes) or array.dtype.kind == "S":
            array = np.asarray(leaf, object)
        if array.dtype.kind not in _SAVED_KINDS and not _is_text(array):
            raise CheckpointError(
                f"{checks.shown(path_name)} of {name} has dtype {array.dtype}, which "
                "no checkpoint holds. Keep it out of the state, or train without one."
            )
        leaves[path_name] = array
    return leaves


def _is_text(array: np.ndarray) -> bool:
    """Returns whether these are values of a `tf.string`, as in TFF's DpEvents."""
    return array.dtype == object and all(isinstance(each, bytes) for each in array.flat)


def _without_pickle(leaf: np.ndarray) -> np.ndarray:
    """Returns a leaf in a dtype that NumPy writes as it is: texts in a fixed length."""
    if leaf.dtype != object:
        return leaf
    texts = [text + _END_OF_TEXT for text in leaf.flat]
    return np.array(texts, np.bytes_).reshape(leaf.shape)


def _as_it_was(saved: np.ndarray) -> np.ndarray:
    """Undoes `_without_pickle`."""
    if saved.dtype.kind != "S":
        return saved
    leaf = np.empty(saved.shape, object)
    for index, text in np.ndenumerate(saved):
        if not text.endswith(_END_OF_TEXT):
            raise ValueError("a text has no end")
        leaf[index] = text[: -len(_END_OF_TEXT)]
    return leaf


def save_checkpoint(
    path: pathlib.Path,
    rounds_completed: int,
    description: Mapping[str, Any],
    structures: Mapping[str, Any],
) -> None:
    """Writes a checkpoint in place of the file's old content, in one step.

    Args:
      path: The file. Frozen weights are kept in `FROZEN_FILE` beside it; if it holds
        other ones, the checkpoint has those of the state itself.
      rounds_completed: The number of rounds trained.
      description: What the run is, in JSON values.
      structures: Named structures of tensors, such as
        `{"server_state": state}`.

    Raises:
      CheckpointError: If a leaf is neither a number nor a boolean nor `bytes`.
      OSError: If the file cannot be written; the old one is untouched.
    """
    leaves = {name: _named_leaves(name, each) for name, each in structures.items()}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "rounds_completed": rounds_completed,
        "description": description,
    }
    frozen = _frozen(leaves.get(_SERVER_STATE, {}))
    digest = _keep_frozen(path.with_name(FROZEN_FILE), frozen)
    if digest:
        header.update(format_version=_VERSION_WITH_FROZEN, frozen_sha256=digest)
        for name in frozen:
            del leaves[_SERVER_STATE][name]
    _write_leaves(path, header, leaves, compress=bool(digest))


def _frozen(leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what no round changes of a server state, if it is large."""
    found = {
        name: leaf for name, leaf in leaves.items() if name.startswith(_FROZEN_PATHS)
    }
    is_large = sum(leaf.nbytes for leaf in found.values()) >= _LEAST_FROZEN_BYTES
    return found if is_large else {}


def _keep_frozen(path: pathlib.Path, leaves: Mapping[str, np.ndarray]) -> str:
    """Has a file hold frozen weights.

    Args:
      path: The file, which is written if it is not there. An earlier checkpoint may
        name it, so that it is never replaced.
      leaves: The weights.

    Returns:
      The digest of what the file holds; empty if it holds something else.
    """
    if not leaves:
        return ""
    digest = _digest(leaves)
    if not path.exists():
        header = {"format": _FROZEN_FORMAT, "format_version": 1, "sha256": digest}
        _write_leaves(path, header, {_SERVER_STATE: leaves})
    try:
        with files.open_regular(path) as file, np.load(file) as archive:
            return digest if _header(archive)["sha256"] == digest else ""
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return ""


def _digest(leaves: Mapping[str, np.ndarray]) -> str:
    """Returns a digest of arrays and their paths."""
    digest = hashlib.sha256()
    for path, leaf in leaves.items():
        saved = _without_pickle(leaf)
        digest.update(f"{path} {saved.dtype} {saved.shape}".encode())
        digest.update(np.ascontiguousarray(saved).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _write_leaves(
    path: pathlib.Path,
    header: Mapping[str, Any],
    leaves: Mapping[str, Mapping[str, np.ndarray]],
    compress: bool = False,
) -> None:
    """Writes leaves of structures with a header."""
    arrays = {
        f"{name}/{index}": _without_pickle(leaf)
        for name, each in leaves.items()
        for index, leaf in enumerate(each.values())
    }
    paths = {name: list(each) for name, each in leaves.items()}
    encoded = json.dumps({**header, "paths": paths}).encode()
    arrays[_HEADER] = np.frombuffer(encoded, np.uint8)
    files.replace_file(path, lambda file: _write_arrays(file, arrays, compress))


def _write_arrays(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], compress: bool
) -> None:
    """Writes an archive as `np.savez` does, with small arrays compressed if need be.

    NumPy leaves the archive open where the disk is full, and Python complains in the
    archive's destructor.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            if compress and array.nbytes <= _MOST_COMPRESSED_BYTES - _MOST_HEADER_BYTES:
                info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array))


def load_checkpoint(path: pathlib.Path) -> Checkpoint:
    """Reads a checkpoint.

    Args:
      path: The file.

    Returns:
      The checkpoint.

    Raises:
      CheckpointError: If the file is damaged, is not a checkpoint of this
        library, is of a format that this version does not read, or if there is too
        little RAM for it.
      OSError: If there is no such file, or it cannot be read.
    """
    with _reported(path):
        header, leaves = _read_leaves(path, lambda header: _check_format(path, header))
        if header["format_version"] == _VERSION_WITH_FROZEN:
            frozen = _load_frozen(path.with_name(FROZEN_FILE), header["frozen_sha256"])
            leaves[_SERVER_STATE].update(frozen)
        return Checkpoint(header["rounds_completed"], header["description"], leaves)


@contextlib.contextmanager
def _reported(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of reading a checkpoint into a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except MemoryError as error:
        raise CheckpointError(
            f"There is too little RAM to read {path}, a file of "
            f"{path.stat().st_size} bytes. Free RAM and try again."
        ) from error
    # A damaged archive fails in many ways: as a zip file, as an array, as JSON, or by
    # sending the reader to a place before the file's beginning.
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise CheckpointError(
            f"{path} is not a whole checkpoint of tff_drift ({error}). It was left "
            "unchanged: move it away, or choose another output_dir."
        ) from error


def saved_names(path: pathlib.Path) -> list[str]:
    """Returns the names of a checkpoint's structures, whose arrays are not read.

    Args:
      path: A file that `load_checkpoint` takes.

    Raises:
      CheckpointError: If the file is damaged, or is not a checkpoint.
      OSError: If it cannot be read.
    """
    with _reported(path), files.open_regular(path) as file, np.load(file) as archive:
        return list(_header(archive)["paths"])


def _header(archive: Any) -> Any:
    return json.loads(archive[_HEADER].tobytes().decode())


def _read_leaves(
    path: pathlib.Path, check: Callable[[Any], None]
) -> tuple[Any, dict[str, dict[str, np.ndarray]]]:
    """Returns the header of an archive, once it is checked, and the leaves."""
    with (
        files.open_regular(path) as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        _check_members(archive)
        header = _header(archive)
        check(header)
        return header, {
            name: {
                leaf_path: _as_it_was(archive[f"{name}/{index}"])
                for index, leaf_path in enumerate(paths)
            }
            for name, paths in header["paths"].items()
        }


def _load_frozen(path: pathlib.Path, digest: str) -> dict[str, np.ndarray]:
    """Returns the frozen weights that a checkpoint names."""
    reason = "it holds other weights"
    try:
        _, leaves = _read_leaves(path, lambda header: None)
        if _digest(leaves[_SERVER_STATE]) == digest:
            return leaves[_SERVER_STATE]
    except MemoryError:
        raise
    except Exception as error:
        reason = str(error)
    raise CheckpointError(
        f"The checkpoint needs the frozen weights in {path}, which cannot be used "
        f"({reason}). Put the run's own file back, or choose another output_dir."
    )


def _check_members(archive: Any) -> None:
    """Raises unless members are compressed as `_write_arrays` does, or not at all."""
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("it is not an archive of arrays")
    for member in archive.zip.infolist():
        is_small = member.file_size <= _MOST_COMPRESSED_BYTES
        allowed = zipfile.ZIP_DEFLATED if is_small else zipfile.ZIP_STORED
        if member.compress_type not in (allowed, zipfile.ZIP_STORED):
            name = checks.shown(member.filename)
            raise ValueError(f"its member {name} is compressed in another way")


def _check_format(path: pathlib.Path, header: Mapping[str, Any]) -> None:
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {checks.shown(header['format'])}")
    if header["format_version"] not in (FORMAT_VERSION, _VERSION_WITH_FROZEN):
        raise CheckpointError(
            f"{path} has format {checks.shown(header['format_version'])}; this version "
            f"of tff_drift reads formats {FORMAT_VERSION} and {_VERSION_WITH_FROZEN}. "
            "Use the version that wrote it, or choose another output_dir."
        )
    rounds, description = header["rounds_completed"], header["description"]
    if type(rounds) is not int or rounds < 0:
        raise ValueError(f"it has {checks.shown(str(rounds)[:40])} completed rounds")
    for section in ("configuration", "training", "hyperparameters"):
        if not isinstance(description.get(section, {}), dict):
            raise ValueError(f"its {section} is not a mapping")
