"""The settings with which a method was built, which distinguish processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_drift import optimizers
from tff_drift.optimizers.conversion import is_sgd

_PLAIN = (bool, int, float, str, type(None))
_OURS = "tff_drift."


def settings_of(part: Any) -> dict[str, Any]:
    """Returns the class of a part, and the numbers, flags and strings that it holds.

    Of schedules there is a hash of their factors, of TFF's optimizers the class, which
    is one for SGD with momentum and without: their rates are among the hyperparameters.
    Other functions are left out.

    Args:
      part: A client work, a server step, or a factory of a control variate.
    """
    settings: dict[str, Any] = {"class": type(part).__name__}
    held = part._asdict() if hasattr(part, "_asdict") else vars(part)
    for key, value in sorted(held.items()):
        name = key.lstrip("_")
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, _PLAIN):
            settings[name] = value
        elif isinstance(value, optimizers.CheckedSchedule):
            settings[name] = value.digest()
        elif is_sgd(value):
            settings[name] = "_SGD"
        elif _is_ours(value):
            settings[name] = settings_of(value)
        elif isinstance(value, tff.learning.optimizers.Optimizer):
            settings[name] = type(value).__name__
    return settings


def _is_ours(value: Any) -> bool:
    """Whether a value is one of this library's that reports its settings."""
    if not type(value).__module__.startswith(_OURS):
        return False
    return hasattr(value, "__dict__") or hasattr(value, "_asdict")


def digest_of(arrays: Iterable[Any]) -> str:
    """Returns a hash of arrays of numbers or texts."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        # Of texts the array has addresses.
        is_text = array.dtype == object
        digest.update(repr(array.tolist()).encode() if is_text else array.tobytes())
    return digest.hexdigest()
