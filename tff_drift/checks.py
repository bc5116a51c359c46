"""Checks of arguments: one clear error that names argument, value and remedy."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import os
import reprlib
import sys
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

# Of a client in a round. More take days, and their sizes alone more RAM than there is.
MOST_BATCHES = 10**7
# NumPy's random generators take no larger one everywhere.
LARGEST_SEED = 2**32 - 1
_LARGEST_INTEGER = 2**63 - 1
# Bytes of a path and of a name in it, which no file system of Linux or macOS exceeds.
_LONGEST_PATH, _LONGEST_NAME = 4095, 255
# In float32, what is smaller is 0 to TensorFlow, and what is as large infinite.
_SMALLEST_NUMBER, _INFINITE_NUMBER = 2.0**-126, 2.0**128 - 2.0**103


# Characters of a message, and of what users or other libraries say in it: of two such
# values with what is said of them a reader keeps track.
LONGEST_MESSAGE = 1200
_LONGEST_SHOWN = 400
_LONGEST_LIST = 600

# How users write the names of packages, and how many parts names in them have.
_ABBREVIATIONS = {"tensorflow_federated": "tff", "tensorflow": "tf"}
_DEEPEST_NAME = 3

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


def _is_number(value: Any, kind: type) -> bool:
    """Whether a value is a number: to Python, a duration of NumPy is an integer."""
    is_duration = getattr(getattr(value, "dtype", None), "kind", "") == "m"
    return isinstance(value, kind) and not isinstance(value, bool) and not is_duration


@dataclasses.dataclass(frozen=True)
class NumberCheck:
    """A check that raises unless a value is a number of some range.

    Attributes:
      wanted: What the number must be, for the message.
      lowest: The smallest number that is that.
      highest: The largest.
    """

    wanted: str
    lowest: float = -sys.float_info.max
    highest: float = sys.float_info.max

    def __call__(self, name: str, value: Any, of_model: bool = True) -> None:
        """Checks a value.

        Args:
          name: The argument's name, for the message.
          value: The value to check.
          of_model: Whether float32, in which models are trained, has to hold it: there
            a number may be infinite, or 0.

        Raises:
          TypeError: If `value` is not a real number.
          ValueError: If `value` is out of the range.
        """
        if not _is_number(value, numbers.Real):
            raise TypeError(f"{name} must be a number, found {shown(value)}.")
        # An integer or a fraction may be beyond the largest float.
        if not self.lowest <= value <= self.highest:
            rounded = ", in float32 1" if _ROUNDED_TO_1 <= value < 1 else ""
            raise ValueError(
                f"{name} must be {self.wanted}, found {shown(value)}{rounded}."
            )
        if of_model and value and not _SMALLEST_NUMBER <= abs(value) < _INFINITE_NUMBER:
            there = 0.0 if abs(value) < 1 else math.copysign(math.inf, value)
            raise ValueError(
                f"{name} must be a number that fits float32, in which models are "
                f"trained, found {shown(value)}: there it is {there}."
            )


_ABOVE_0 = math.ulp(0.0)
# In float32 this and more is 1, and of a moment's decay forgets nothing.
_ROUNDED_TO_1 = 1 - 2.0**-25

check_finite = NumberCheck("a finite number")
check_positive = NumberCheck("a finite number greater than 0", _ABOVE_0)
check_non_negative = NumberCheck("a finite number of at least 0", 0)
check_decay = NumberCheck(
    "a number of at least 0, below 1", 0, math.nextafter(_ROUNDED_TO_1, 0)
)
check_probability = NumberCheck("a number from 0 to 1", 0, 1)
check_fraction = NumberCheck("a number above 0, at most 1", _ABOVE_0, 1)


def check_integer(
    name: str, value: Any, at_least: int = 1, at_most: float = _LARGEST_INTEGER
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


# Of all random generators.
check_seed = functools.partial(check_integer, at_least=0, at_most=LARGEST_SEED)


# Of what a client takes in a round, batches or epochs.
check_num_batches = functools.partial(check_integer, at_most=MOST_BATCHES)


def check_one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Raises unless `value` is one of `allowed`.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      allowed: The values allowed.

    Raises:
      ValueError: If `value` is not in `allowed`.
    """
    # An array is equal to nothing in a way that can be asked for.
    if not isinstance(value, Hashable) or value not in allowed:
        choices = listed(map(repr, allowed))
        raise ValueError(f"{name} must be one of {choices}, found {shown(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Raises unless `value` is `True` or `False`.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is neither.
    """
    check_instance(name, value, bool, "True or False")


def check_callable(name: str, value: Any, what: str = "a function") -> None:
    """Raises unless `value` can be called.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      what: What it should be, for the message, such as "a function of a client id".

    Raises:
      TypeError: If `value` cannot be called.
    """
    check_instance(name, value, Callable, what)


def check_instance(
    name: str, value: Any, kind: Any, what: str = "", remedy: str = ""
) -> None:
    """Raises unless `value` is of a class.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      kind: The class, or a tuple of classes.
      what: What it should be, for the message, such as "a list of callbacks"; by
        default the class, by the name under which it is imported.
      remedy: A sentence on what to do, for the message.

    Raises:
      TypeError: If `value` is of another class.
    """
    if not isinstance(value, kind):
        text = f"{name} must be {what or f'a {_imported_name(kind)}'}"
        if isinstance(value, type) and issubclass(value, kind):
            remedy = f"That is the class: call it, {value.__name__}(...)."
        raise TypeError(f"{text}, found {shown(value)}. {remedy}".rstrip())


def _imported_name(kind: type) -> str:
    """Returns the shortest name of a class in its package, as tff.learning.Model."""
    top = kind.__module__.partition(".")[0]
    level = [(_ABBREVIATIONS.get(top, top), sys.modules[top])]
    for _ in range(_DEEPEST_NAME):
        for name, module in level:
            if vars(module).get(kind.__name__) is kind:
                return f"{name}.{kind.__name__}"
        level = [
            (f"{name}.{part}", inner)
            for name, module in level
            for part, inner in vars(module).items()
            if isinstance(inner, types.ModuleType)
            and inner.__name__.startswith(f"{top}.")
            and not part.startswith("_")
        ]
    return kind.__name__


def check_list(
    name: str, value: Any, what: str, kind: Any = Sequence, remedy: str = ""
) -> None:
    """Raises unless `value` is a list or another sequence, but no text.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      what: What it should be, for the message, such as "a list of integers".
      kind: The class that it must have, or a tuple of classes.
      remedy: As for `check_instance`.

    Raises:
      TypeError: If `value` is of another class, or a text.
    """
    is_text = isinstance(value, (str, bytes))
    check_instance(name, value, () if is_text else kind, what, remedy)


def check_text(name: str, value: Any) -> None:
    """Raises unless `value` is a string with a character.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a string.
      ValueError: If `value` is empty.
    """
    check_instance(name, value, str, "a string")
    if not value:
        raise ValueError(f"{name} must not be empty.")


def check_file_name(name: str, value: Any) -> None:
    """Raises unless `value` can name a file or a folder within another.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is not a string.
      ValueError: If `value` is empty, is "." or "..", or holds a separator or a
        character that cannot be printed.
    """
    check_text(name, value)
    if value in (".", "..") or "/" in value or not value.isprintable():
        raise ValueError(
            f"{name} names a folder, found {shown(value)}. Give it neither separators "
            "nor dots alone, as in 'my_name'."
        )


def check_path(name: str, value: Any) -> None:
    """Raises unless `value` can be the path of a file or folder.

    Args:
      name: The argument's name, for the message.
      value: The value to check.

    Raises:
      TypeError: If `value` is neither a string nor an `os.PathLike` of one.
      ValueError: If `value` is empty, longer than paths can be, or holds a character
        that none can hold.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path, found {shown(value)}.")
    if not text or "\0" in text:
        raise ValueError(
            f"{name} must be a path, found {shown(value)}. Give one that is not empty "
            "and holds no NUL character."
        )
    parts = os.fsencode(text).split(os.sep.encode())
    if len(text) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME:
        raise ValueError(
            f"{name} must be a path, found {shown(value)}. Give one of fewer "
            f"characters: no file has a name of more than {_LONGEST_NAME} bytes."
        )


def is_of_keras3(value: Any) -> bool:
    """Returns whether a value is an object, a class or a function of Keras 3.

    Nothing is imported for it: such a value has imported Keras.

    Args:
      value: The value.
    """
    keras = sys.modules.get("keras")
    # Up to TensorFlow 2.15 the package of this name is Keras 2.
    if not str(getattr(keras, "__version__", "")).startswith("3."):
        return False
    if isinstance(value, types.FunctionType):
        owners = [value.__module__]
    else:
        kind = value if isinstance(value, type) else type(value)
        owners = [each.__module__ for each in kind.__mro__]
    return any((owner or "").partition(".")[0] == "keras" for owner in owners)
