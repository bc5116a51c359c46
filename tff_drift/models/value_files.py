"""Large values in TFF's graphs, which are read from files and no part of the graphs.

TFF calls `model_fn` in several graphs, each of which is serialized, parsed, rewritten
and sent. With the weights of a large model as constants in each, building a process
took fifty times their RAM, and a graph may have 2 GB. So a graph names a file of
TensorFlow's format for checkpoints, which is read where the value is needed: in this
process, in TFF's worker, and on another machine once the file was sent there. Where a
model is given its weights anyway, as on clients, it begins with zeros.

The files are in a folder of this process for temporary files, and go with it. What a
program that was killed has left is removed by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import fcntl
import functools
import hashlib
import operator
import os
import pathlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import files
from tff_drift.tensors import eagerly

# As a constant, a value costs less than a file.
LARGEST_CONSTANT = 2**16
_TEXTS = "OSU"
_NAME = "value"
# What TensorFlow writes of a checkpoint; the last one is there when all is.
_ENDINGS = (".data-00000-of-00001", ".index")
_PREFIX = "tff_drift_values_"
# A program locks its folder as soon as it is there.
_SECONDS_TO_LOCK = 60.0

_leaves_out: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "leaves_out", default=False
)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Has models that are built begin with zeros: they are given their weights."""
    token = _leaves_out.set(True)
    try:
        yield
    finally:
        _leaves_out.reset(token)


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
    if _leaves_out.get():
        return tf.zeros(array.shape, array.dtype)
    # With the shape in the form of a slice, the graph knows it.
    sizes = " ".join(map(str, array.shape))
    (tensor,) = tf.raw_ops.RestoreV2(
        prefix=str(_file_of(array)),
        tensor_names=[_NAME],
        shape_and_slices=[f"{sizes} {':'.join('-' * array.ndim)}"],
        dtypes=[tf.as_dtype(array.dtype)],
    )
    return tensor


def values_of(message: bytes) -> dict[str, np.ndarray]:
    """Returns the files of values that a serialized graph of this process names.

    Args:
      message: The graph, or a message with graphs in it.

    Returns:
      What the files hold, by their paths.
    """
    if os.fsencode(_PREFIX) not in message:
        return {}
    folder = os.fsencode(_folder(os.getpid()))
    named = set(re.findall(re.escape(folder) + rb"/[0-9a-f]{32}", message))
    paths = [
        os.fsdecode(name) + ending for name in sorted(named) for ending in _ENDINGS
    ]
    return {path: np.asarray(np.memmap(path, np.uint8, "r")) for path in paths}


def receive(contents: Mapping[str, np.ndarray]) -> None:
    """Writes files of values where graphs of a process on another machine name them.

    Args:
      contents: What `values_of` returned there.

    Raises:
      OSError: If they cannot be written.
    """
    for name, content in contents.items():
        path = pathlib.Path(name)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _claim(path.parent)
            files.replace_file(path, operator.methodcaller("write", content.data))


def _file_of(array: np.ndarray) -> pathlib.Path:
    """Returns the file that holds a value, which is written unless it is there.

    Its name is that of a checkpoint, without the endings.
    """
    content = np.ascontiguousarray(array)
    digest = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    digest.update(content.reshape(-1).view(np.uint8).data)
    path = _folder(os.getpid()) / digest.hexdigest()
    if not _with(path, _ENDINGS[-1]).exists():
        try:
            eagerly(lambda: _write(path, content))
        except (OSError, tf.errors.OpError) as error:
            raise OSError(
                f"{array.nbytes:,} bytes of a model's weights cannot be written to "
                f"{path.parent} ({error}). Set TMPDIR to a folder with space before "
                "Python starts."
            ) from error
    return path


def _write(path: pathlib.Path, content: np.ndarray) -> None:
    """Writes a file; others find it whole or not at all."""
    temporary = _temporary(path)
    try:
        tf.raw_ops.SaveV2(
            prefix=str(temporary),
            tensor_names=[_NAME],
            shape_and_slices=[""],
            tensors=[content],
        )
        for ending in _ENDINGS:
            _with(temporary, ending).replace(_with(path, ending))
    finally:
        for ending in _ENDINGS:
            _with(temporary, ending).unlink(missing_ok=True)


def _with(path: pathlib.Path, ending: str) -> pathlib.Path:
    return path.with_name(path.name + ending)


def _temporary(path: pathlib.Path) -> pathlib.Path:
    return _with(path, f".{os.getpid()}_{threading.get_ident()}")


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
