"""Functions of vectorized clients, kept in a folder for later programs.

Building one takes most of a second, loading it a twentieth of that. A file holds the
graph, the names of what it takes and returns, and their digest; its name is a digest of
all that the graph is made of: the client's program, the size of the group, the limits,
TensorFlow's version and the sources of the local context.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tff_drift import files
from tff_drift.execution.local.graphs import functions, import_graph

_MOST_FILES, _MOST_BYTES = 256, 2**23
_SUFFIX = ".function"
_DIGEST_BYTES = hashlib.sha256().digest_size
_RUN = "run"


class SavedFunctions:
    """Functions in a folder, the least recently used of which go.

    Args:
      folder: The folder, which is made with the first function.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._is_usable = True

    def get(
        self,
        content: Sequence[Any],
        specs: Sequence[tf.TensorSpec],
        trace: Callable[[], Any],
    ) -> Any:
        """Returns a function, loaded or else traced and saved.

        Args:
          content: All that it is made of, in values whose `repr` says all of them.
          specs: Those of what it takes.
          trace: Returns it, as `tf.compat.v1.wrap_function` does.
        """
        digest = hashlib.sha256(repr((*content, _version())).encode())
        path = self._folder / f"{digest.hexdigest()}{_SUFFIX}"
        function = _load(path, specs)
        if function is None:
            function = trace()
            self._save(path, function)
        return function

    def _save(self, path: pathlib.Path, function: Any) -> None:
        """Writes a function to a file; if that fails, no more are written."""
        if not self._is_usable:
            return
        saved = tf.compat.v1.MetaGraphDef(graph_def=function.graph.as_graph_def())
        # The names of functions are the process'.
        import_graph.name_functions_by_content(saved.graph_def)
        signature = saved.signature_def[_RUN]
        for named, tensors in (
            (signature.inputs, function.inputs),
            (signature.outputs, function.outputs),
        ):
            for number, tensor in enumerate(tensors):
                named[str(number)].name = tensor.name
        message = saved.SerializeToString()
        if len(message) + _DIGEST_BYTES > _MOST_BYTES:
            return
        content = hashlib.sha256(message).digest() + message
        try:
            files.make_folder(self._folder)
            files.replace_file(path, lambda file: file.write(content))
            self._remove_oldest()
        except OSError as error:
            self._is_usable = False
            logging.warning(
                "functions_folder keeps no functions from now on: %s.", error
            )

    def _remove_oldest(self) -> None:
        found = list(self._folder.glob(f"*{_SUFFIX}"))
        if len(found) > _MOST_FILES:
            found.sort(key=lambda path: path.stat().st_mtime)
            for path in found[:-_MOST_FILES]:
                path.unlink(missing_ok=True)


def _load(path: pathlib.Path, specs: Sequence[tf.TensorSpec]) -> Any | None:
    """Returns the function of a file; None if there is none, or it is damaged."""
    try:
        content = files.read_bytes(path, _MOST_BYTES, follow_links=False)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    digest, message = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(message).digest() != digest:
        return None
    saved = tf.compat.v1.MetaGraphDef.FromString(message)
    (signature,) = saved.signature_def.values()
    takes, returns = (
        tuple(given[str(k)].name for k in range(len(given)))
        for given in (signature.inputs, signature.outputs)
    )
    graph = import_graph.PreparedGraph(saved.graph_def, takes, returns, False)
    return functions.trace(lambda *tensors: graph(tensors), specs)


@functools.cache
def _version() -> str:
    """Returns what a graph depends on besides the program: who builds it."""
    digest = hashlib.sha256(f"{tf.version.VERSION} {tf.version.GIT_VERSION}".encode())
    folder = pathlib.Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
