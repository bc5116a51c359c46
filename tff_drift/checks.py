"""Checks of arguments: one clear error that names argument, value and remedy."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from typing import Any


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, found {value!r}.")
    return float(value)


def check_positive(name: str, value: Any) -> None:
    """Raises unless `value` is a finite number greater than 0.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not finite or not greater than 0.
    """
    number = _real(name, value)
    if not math.isfinite(number) or number <= 0:
        raise ValueError(
            f"{name} must be a finite number greater than 0, found {value!r}."
        )


def check_non_negative(name: str, value: Any) -> None:
    """Raises unless `value` is a finite number of at least 0.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not finite or below 0.
    """
    number = _real(name, value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(
            f"{name} must be a finite number of at least 0, found {value!r}."
        )


def check_decay(name: str, value: Any) -> None:
    """Raises unless `value` is in [0, 1), as a moment's decay rate must be.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not in [0, 1).
    """
    number = _real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, found {value!r}.")


def check_probability(name: str, value: Any) -> None:
    """Raises unless `value` is in [0, 1].

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not in [0, 1].
    """
    number = _real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be between 0 and 1, found {value!r}.")


def check_integer(name: str, value: Any, at_least: int = 1) -> None:
    """Raises unless `value` is an integer of at least `at_least`.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      at_least: The smallest value allowed.

    Raises:
      TypeError: If `value` is not an integer.
      ValueError: If `value` is below `at_least`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, found {value!r}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, found {value!r}.")


def check_one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Raises unless `value` is one of `allowed`.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      allowed: The values allowed.

    Raises:
      ValueError: If `value` is not in `allowed`.
    """
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name} must be one of {choices}, found {value!r}.")
