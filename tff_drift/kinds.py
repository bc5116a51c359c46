"""The kinds of values that options take: read from text, checked and told in words.

The options of tasks, of methods and of the command line name their kind; what a kind
is stands here alone. It knows nothing of TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any

from tff_drift import checks

_BOOLEANS = {
    "true": True,
    "t": True,
    "1": True,
    "false": False,
    "f": False,
    "0": False,
}
# NumPy's random generators take no larger one everywhere.
_LARGEST_SEED = 2**32 - 1
_AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
      wanted: What a value must be, in words.
      read: Turns a text into a value; raises `ValueError` if it spells none.
      check: Raises a `TypeError` or a `ValueError` unless a value is of this kind;
        takes the name of the option and the value.
    """

    wanted: str
    read: Callable[[str], Any]
    check: Callable[[str, Any], None]


def _read_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text.lower()]


def _check_boolean(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {value!r}.")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, found {value!r}.")


def _check_seed(name: str, value: Any) -> None:
    checks.check_integer(name, value, at_least=0)
    if value > _LARGEST_SEED:
        raise ValueError(f"{name} must be at most {_LARGEST_SEED}, found {value!r}.")


def _check_fraction(name: str, value: Any) -> None:
    checks.check_positive(name, value)
    checks.check_probability(name, value)


def _read_number_or_auto(text: str) -> float | str:
    return text if text == _AUTO else float(text)


def _check_number_or_auto(name: str, value: Any) -> None:
    if value != _AUTO:
        checks.check_finite(name, value)


_check_whole = functools.partial(checks.check_integer, at_least=0)

KINDS: dict[str, Kind] = {
    "text": Kind("a text", str, _check_text),
    "flag": Kind("true or false", _read_boolean, _check_boolean),
    "count": Kind("an integer of at least 1", int, checks.check_integer),
    "whole": Kind("an integer of at least 0", int, _check_whole),
    "seed": Kind(f"an integer from 0 to {_LARGEST_SEED}", int, _check_seed),
    "number": Kind("a finite number", float, checks.check_finite),
    "number or auto": Kind(
        "a finite number, or auto", _read_number_or_auto, _check_number_or_auto
    ),
    "positive": Kind("a finite number greater than 0", float, checks.check_positive),
    "non_negative": Kind(
        "a finite number of at least 0", float, checks.check_non_negative
    ),
    "rate": Kind("a number of at least 0, below 1", float, checks.check_decay),
    "fraction": Kind("a number above 0, at most 1", float, _check_fraction),
    "probability": Kind("a number from 0 to 1", float, checks.check_probability),
}


def check(
    name: str,
    value: Any,
    kind: str,
    choices: Collection[Any] = (),
    may_be_none: bool = False,
) -> None:
    """Raises unless a value is one that an option takes.

    Args:
      name: The option's name, for the message.
      value: The value.
      kind: What values the option takes: one of `KINDS`, or "choice".
      choices: The values of the kind "choice".
      may_be_none: Whether `None` is a value too.

    Raises:
      TypeError: If the value has the wrong type.
      ValueError: If it is out of range.
    """
    if value is None and may_be_none:
        return
    if kind == "choice":
        checks.check_one_of(name, value, choices)
    else:
        KINDS[kind].check(name, value)
