"""Imports of TensorFlow and TensorFlow Federated, without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """A context for imports, in which Python collects no garbage.

    Modules of TensorFlow make a million objects, and nearly all of them live to the
    program's end. The collector would look at them again and again, for a quarter of
    the time that the imports take.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # There and back, objects come to the oldest ones, and are not looked at
            # once more as new ones.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
