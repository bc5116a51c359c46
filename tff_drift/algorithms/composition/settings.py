"""What the parts of a method were built with, to tell one process from another."""

from __future__ import annotations

from typing import Any

_PLAIN = (bool, int, float, str, type(None))
_OURS = "tff_drift."


def settings_of(part: Any) -> dict[str, Any]:
    """Returns the class of a part, and the numbers, flags and strings that it holds.

    Functions and optimizers are left out: TFF's hyperparameters hold their rates.

    Args:
      part: A client work or a server step.
    """
    settings: dict[str, Any] = {"class": type(part).__name__}
    for name, value in sorted(getattr(part, "__dict__", {}).items()):
        if isinstance(value, _PLAIN):
            settings[name.lstrip("_")] = value
        elif type(value).__module__.startswith(_OURS) and hasattr(value, "__dict__"):
            settings[name.lstrip("_")] = settings_of(value)
    return settings
