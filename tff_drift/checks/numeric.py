"""Checks of arguments that are numbers."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Callable
from typing import Any

from tff_drift.checks.texts import shown

# Of a client in a round. More take days, and their sizes alone more RAM than there is.
MOST_BATCHES = 10**7
# NumPy's random generators take no larger one everywhere.
LARGEST_SEED = 2**32 - 1
_LARGEST_INTEGER = 2**63 - 1
# TensorFlow takes what is smaller, in float32, for 0.
_SMALLEST_NUMBER = 2.0**-126


def _is_number(value: Any, kind: type) -> bool:
    """Whether a value is a number: to Python, a duration of NumPy is an integer."""
    is_duration = getattr(getattr(value, "dtype", None), "kind", "") == "m"
    return isinstance(value, kind) and not isinstance(value, bool) and not is_duration


def _real(name: str, value: Any) -> float:
    if not _is_number(value, numbers.Real):
        raise TypeError(f"{name} must be a number, found {shown(value)}.")
    try:
        return float(value)
    except OverflowError:
        # An integer or a fraction beyond the largest float is as good as infinite.
        return math.inf if value > 0 else -math.inf


def _in_float32(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _check_number(
    name: str,
    value: Any,
    wanted: str,
    fits: Callable[[float], bool],
    of_model: bool = True,
) -> None:
    """Raises unless `value` is a number that `fits`, in float32 as well if `of_model`.

    There a number may be infinite, or 0.
    """
    number = _real(name, value)
    if not fits(number):
        raise ValueError(f"{name} must be {wanted}, found {shown(value)}.")
    there = _in_float32(number)
    if of_model and (math.isinf(there) or 0 < abs(number) < _SMALLEST_NUMBER):
        raise ValueError(
            f"{name} must be a number that fits float32, in which models are trained, "
            f"found {shown(value)}: there it is {there if math.isinf(there) else 0.0}."
        )


def check_finite(name: str, value: Any) -> None:
    """Raises unless `value` is a finite number.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not finite, in float32 as well.
    """
    _check_number(name, value, "a finite number", math.isfinite)


def check_positive(name: str, value: Any, of_model: bool = True) -> None:
    """Raises unless `value` is a finite number greater than 0.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      of_model: Whether float32, in which models are trained, has to hold it.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not finite or not greater than 0.
    """
    wanted = "a finite number greater than 0"
    _check_number(name, value, wanted, lambda number: 0 < number < math.inf, of_model)


def check_non_negative(name: str, value: Any, of_model: bool = True) -> None:
    """Raises unless `value` is a finite number of at least 0.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      of_model: As for `check_positive`.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not finite or below 0.
    """
    wanted = "a finite number of at least 0"
    _check_number(name, value, wanted, lambda number: 0 <= number < math.inf, of_model)


def check_decay(name: str, value: Any) -> None:
    """Raises unless `value` is in [0, 1), as a moment's decay rate must be.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not in [0, 1), in float32 as well.
    """
    # In float32 0.999999999 is 1: a moment that forgets nothing.
    wanted = "at least 0 and below 1"
    _check_number(name, value, wanted, lambda x: 0 <= x < 1 and _in_float32(x) < 1)


def check_probability(name: str, value: Any) -> None:
    """Raises unless `value` is in [0, 1].

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not in [0, 1].
    """
    _check_number(name, value, "between 0 and 1", lambda number: 0 <= number <= 1)


def check_fraction(name: str, value: Any) -> None:
    """Raises unless `value` is above 0, and at most 1.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a real number.
      ValueError: If `value` is not in (0, 1].
    """
    check_positive(name, value)
    check_probability(name, value)


def check_integer(
    name: str, value: Any, at_least: int = 1, at_most: int = _LARGEST_INTEGER
) -> None:
    """Raises unless `value` is an integer in a range.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      at_least: The smallest value allowed.
      at_most: The largest value allowed, by default that of 64 bits.

    Raises:
      TypeError: If `value` is not an integer.
      ValueError: If `value` is out of the range.
    """
    if not _is_number(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, found {shown(value)}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, found {shown(value)}.")
    if value > at_most:
        raise ValueError(f"{name} must be at most {at_most}, found {shown(value)}.")


def check_seed(name: str, value: Any) -> None:
    """Raises unless `value` can be the seed of all random generators.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not an integer.
      ValueError: If `value` is below 0, or above `LARGEST_SEED`.
    """
    check_integer(name, value, at_least=0, at_most=LARGEST_SEED)


def check_num_batches(name: str, value: Any) -> None:
    """Raises unless a client can take so many batches, or epochs, in a round.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not an integer.
      ValueError: If `value` is below 1, or above `MOST_BATCHES`.
    """
    check_integer(name, value)
    if value > MOST_BATCHES:
        raise ValueError(
            f"{name} is {value:,}: a client would train on more than "
            f"{MOST_BATCHES:,} batches in a round. Take fewer."
        )
