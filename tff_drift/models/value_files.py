"""Large values in TFF's graphs, which are read from files and no part of the graphs.

TFF calls `model_fn` in several graphs, each of which is serialized, parsed, rewritten
and sent. With the weights of a large model as constants in each, building a process
took fifty times their RAM, and a graph may have 2 GB. So a graph names a file, which
TensorFlow maps into memory where the value is needed: in this process, in TFF's
worker, and on another machine once the value was sent there.

The files are in a folder of this process for temporary files, and go with it. What a
program that was killed has left is removed by the next one.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# As a constant, a value costs less than a file.
LARGEST_CONSTANT = 2**16
_TEXTS = "OSU"
_PREFIX = "tff_drift_values_"
# A program locks its folder as soon as it is there.
_SECONDS_TO_LOCK = 60.0


def constant(value: Any) -> tf.Tensor:
    """Returns a value as a tensor of the current graph, or eagerly.

    Args:
      value: An array, or what is made one.

    Raises:
      OSError: If it is large and cannot be written to a file.
    """
    array = np.asarray(value)
    is_small = array.nbytes <= LARGEST_CONSTANT
    if is_small or array.dtype.kind in _TEXTS or tf.executing_eagerly():
        return tf.constant(value)
    mapped = tf.raw_ops.ImmutableConst(
        dtype=tf.as_dtype(array.dtype),
        shape=array.shape,
        memory_region_name=str(_file_of(array)),
    )
    # A copy, for operations write their results into what nothing else needs, and
    # the file is mapped to be read.
    return tf.gather(mapped, tf.range(array.shape[0]))


def values_of(message: bytes) -> dict[str, np.ndarray]:
    """Returns the values that a serialized graph of this process names, by their files.

    Args:
      message: The graph, or a message with graphs in it.
    """
    if os.fsencode(_PREFIX) not in message:
        return {}
    folder = os.fsencode(_folder(os.getpid()))
    named = re.findall(re.escape(folder) + rb"/[0-9a-f]{32}", message)
    return {
        os.fsdecode(name): np.asarray(np.memmap(os.fsdecode(name), np.uint8, "r"))
        for name in sorted(set(named))
    }


def receive(values: Mapping[str, np.ndarray]) -> None:
    """Writes the values of graphs of a process on another machine where they name them.

    Args:
      values: What `values_of` returned there.

    Raises:
      OSError: If they cannot be written.
    """
    for name, content in values.items():
        path = pathlib.Path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _claim(path.parent)
        _write(path, content)


def _file_of(array: np.ndarray) -> pathlib.Path:
    """Returns the file that holds a value; it is written unless it is there."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    # A folder is of this process alone: whoever could change its files is trusted.
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    path = _folder(os.getpid()) / digest
    _write(path, content)
    return path


def _write(path: pathlib.Path, content: np.ndarray) -> None:
    """Writes a file unless it is there; others find it whole or not at all."""
    if path.exists():
        return
    temporary = path.with_suffix(f".{os.getpid()}_{threading.get_ident()}")
    try:
        content.tofile(temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"{content.nbytes:,} bytes of a model's weights cannot be written to "
            f"{path.parent} ({error}). Set TMPDIR to a folder with space before Python "
            "starts",
        ) from error


@functools.lru_cache(maxsize=1)
def _folder(pid: int) -> pathlib.Path:
    """Makes the folder of this process, which goes with it."""
    _remove_left_behind()
    path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX))
    _claim(path)
    atexit.register(_remove_if_of, pid, path)
    return path


@functools.cache
def _claim(path: pathlib.Path) -> None:
    """Locks a folder as long as this process lives; others may share the lock."""
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)


def _remove_if_of(pid: int, path: pathlib.Path) -> None:
    """Removes a folder, unless this process is a fork of its own."""
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


def _remove_left_behind() -> None:
    """Removes the folders of programs that were killed."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError:
            continue  # Somebody else's, or gone.
        try:
            is_new = time.time() - os.fstat(descriptor).st_mtime < _SECONDS_TO_LOCK
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_new:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # In use.
        finally:
            os.close(descriptor)
