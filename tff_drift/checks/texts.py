"""Messages, and what users gave as messages show it: on one line, and short."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable
from typing import Any

# Characters of a message, and of what users or other libraries say in it: of two such
# values with what is said of them a reader keeps track.
LONGEST_MESSAGE = 1200
_LONGEST_SHOWN = 400
_LONGEST_LIST = 600

_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxother = _shortener.maxlong = 200
_shortener.maxlist = _shortener.maxtuple = _shortener.maxset = 12


def shown(value: Any) -> str:
    """Returns a value as messages show it: as `repr` does, but on one line, and short.

    Args:
      value: The value.
    """
    return shortened(_shortener.repr(value))


def shortened(text: object, longest: int = _LONGEST_SHOWN) -> str:
    """Returns a text on one line, without its middle if it is long.

    Args:
      text: The text, or what has one, such as a type or an error of another library.
      longest: The characters that are shown of it.
    """
    line = " ".join(str(text).split())
    if len(line) <= longest:
        return line
    half = longest // 2
    return f"{line[:half]} ... {line[-half:]}"


def listed(values: Iterable[object]) -> str:
    """Returns values as messages list them, without those in the middle of many.

    Args:
      values: The values, such as names.
    """
    return shortened(", ".join(map(str, values)), _LONGEST_LIST)


def shown_fields(value: Any) -> str:
    """Returns the `repr` of a dataclass, in which no field is long.

    Args:
      value: The instance of a dataclass.
    """
    fields = ", ".join(
        f"{field.name}={shown(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if field.repr
    )
    return within_limit(f"{type(value).__name__}({fields})")


def within_limit(message: str) -> str:
    """Returns a message, without its middle if it is longer than messages may be.

    Args:
      message: The message.
    """
    if len(message) <= LONGEST_MESSAGE:
        return message
    return shortened(message, LONGEST_MESSAGE - len(" ... "))


class ShortError(ValueError):
    """An error that is short whatever it names: paths may have thousands of characters.

    Args:
      message: The message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(within_limit(message))
