"""Imports of TensorFlow and TensorFlow Federated, without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from tff_drift import system


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """A context for imports, in which Python collects no garbage.

    Modules of TensorFlow make a million objects, and nearly all of them live to the
    program's end. The collector would look at them again and again, for a quarter of
    the time that the imports take, and once more for two thirds of a second while a
    program builds its second process: it does not look at what came with TensorFlow.
    """
    if not gc.isenabled():
        yield
        return
    came_before = "tensorflow" in sys.modules
    if not came_before:
        gc.collect()  # What is frozen below is the garbage of the imports alone.
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            if came_before or "tensorflow" not in sys.modules:
                # A program may have made garbage since. There and back, objects come to
                # the oldest ones, and are not looked at once more as new ones.
                gc.unfreeze()
        gc.enable()


@contextlib.contextmanager
def on_first_use() -> Iterator[None]:
    """A context for the import of what needs TFF, which says where TFF is missing.

    Raises:
      ImportError: If there is no TFF, with how to install it.
    """
    try:
        with without_collection():
            yield
    except ImportError as error:
        if not system.lacks_tff(error):
            raise
        raise ImportError(system.MISSING_TFF, name=error.name) from error
