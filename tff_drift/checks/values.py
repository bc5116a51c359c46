"""Checks of arguments that are no numbers."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from tff_drift.checks.texts import listed, shown

# Bytes of a path and of a name in it, which no file system of Linux or macOS exceeds.
_LONGEST_PATH, _LONGEST_NAME = 4095, 255


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
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {shown(value)}.")


def check_callable(name: str, value: Any, what: str = "a function") -> None:
    """Raises unless `value` can be called.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      what: What it should be, for the message, such as "a function of a client id".

    Raises:
      TypeError: If `value` cannot be called.
    """
    if not callable(value):
        raise TypeError(f"{name} must be {what}, found {shown(value)}.")


def check_instance(
    name: str, value: Any, kind: Any, what: str = "", remedy: str = ""
) -> None:
    """Raises unless `value` is of a class.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      kind: The class, or a tuple of classes.
      what: What it should be, for the message, such as "a list of callbacks"; by
        default the class, one of those that a package of `tff_drift` has.
      remedy: A sentence on what to do, for the message.

    Raises:
      TypeError: If `value` is of another class.
    """
    if not isinstance(value, kind):
        package = ".".join(getattr(kind, "__module__", "").split(".")[:2])
        what = what or f"a {package}.{kind.__name__}"
        text = f"{name} must be {what}, found {shown(value)}."
        raise TypeError(f"{text} {remedy}".rstrip())


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
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, found {shown(value)}.")
    if not value:
        raise ValueError(f"{name} must not be empty.")


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
