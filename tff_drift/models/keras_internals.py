"""Parts of Keras 3 that have no public name."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any


def function_loss(function: Callable[..., Any]) -> Any:
    """Makes a `keras.losses.Loss` of a function, as `compile` of Keras does.

    It matches the ranks of labels and predictions, casts both to Keras' `floatx`,
    applies the mask of the predictions and takes the mean.

    Args:
      function: A function of labels and predictions.
    """
    from keras.src.losses.losses import LossFunctionWrapper

    return LossFunctionWrapper(function, name="loss")


def class_name(value: Any) -> str:
    """Returns what Keras calls an object of this class that got no name.

    Args:
      value: A metric, for example.
    """
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", type(value).__name__)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def may_be_automatic(name: str, kind: str) -> bool:
    """Returns whether Keras may have made a name, as it does for what has none.

    Keras counts the names that it makes of a class through the process, so that a
    higher number than its own is the user's.

    Args:
      name: The name.
      kind: What `class_name` returns.
    """
    from keras.src.backend.common.global_state import get_global_attribute

    if name == kind:
        return True
    number = re.fullmatch(rf"{re.escape(kind)}_([1-9]\d*)", name)
    counts = get_global_attribute("object_name_uids", default={})
    return number is not None and int(number[1]) < counts.get(kind, 0)


@contextlib.contextmanager
def name_scopes_closed() -> Iterator[None]:
    """Closes the name scopes that an error leaves open.

    Keras goes on with a name that TensorFlow has refused: the weights that are made
    later in the process would have it in their paths.
    """
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state is None:
        yield
        return
    scopes = state.get_global_attribute("name_scope_stack", [], set_to_default=True)
    before = list(scopes)
    try:
        yield
    except Exception:
        scopes[:] = before
        raise
