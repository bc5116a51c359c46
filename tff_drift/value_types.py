"""Options, and the types of the values that they take.

The options of tasks, of methods and of the command line name the type of their values;
how these are read from text, checked and described stands here alone. It knows nothing
of TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from tff_drift import checks

BOOLEANS = {
    "true": True,
    "t": True,
    "1": True,
    "false": False,
    "f": False,
    "0": False,
}
_AUTO = "auto"
# What no integer of 64 bits reaches.
_BEYOND = "2**63"


@dataclasses.dataclass(frozen=True)
class ValueType:
    """A type of values.

    Attributes:
      wanted: What a value must be, in words.
      read: Turns a text into a value; raises `ValueError` if it spells none.
      check: Raises a `TypeError` or a `ValueError` unless a value is of this type;
        takes the name of the option and the value.
    """

    wanted: str
    read: Callable[[str], Any]
    check: Callable[[str, Any], None]


def _read_boolean(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError(text)
    return BOOLEANS[text.lower()]


def _read_number_or_auto(text: str) -> float | str:
    return text if text == _AUTO else float(text)


def _check_number_or_auto(name: str, value: Any) -> None:
    if value != _AUTO:
        checks.check_finite(name, value)


_check_text = functools.partial(checks.check_instance, kind=str, what="a string")


def _check_path(name: str, value: Any) -> None:
    # A `pathlib.Path` would not stand in the JSON of a run's configuration.
    _check_text(name, value)
    checks.check_path(name, value)


_check_whole = functools.partial(checks.check_integer, at_least=0)

VALUE_TYPES: dict[str, ValueType] = {
    "text": ValueType("a string", str, _check_text),
    "path": ValueType("the path of a file or a folder", str, _check_path),
    "flag": ValueType("true or false", _read_boolean, checks.check_flag),
    "count": ValueType(
        f"an integer of at least 1, below {_BEYOND}", int, checks.check_integer
    ),
    "batches": ValueType(
        f"an integer from 1 to {checks.MOST_BATCHES:,}", int, checks.check_num_batches
    ),
    "whole": ValueType(f"an integer of at least 0, below {_BEYOND}", int, _check_whole),
    "seed": ValueType(
        f"an integer from 0 to {checks.LARGEST_SEED}", int, checks.check_seed
    ),
    **{
        name: ValueType(check.wanted, float, check)
        for name, check in (
            ("number", checks.check_finite),
            ("positive", checks.check_positive),
            ("non_negative", checks.check_non_negative),
            ("rate", checks.check_decay),
            ("fraction", checks.check_fraction),
            ("probability", checks.check_probability),
        )
    },
    "number or auto": ValueType(
        "a finite number, or auto", _read_number_or_auto, _check_number_or_auto
    ),
}


def show(value: Any) -> str:
    """Returns a value, or several of them, as text that stands for no other."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(show, value))
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


@dataclasses.dataclass(frozen=True)
class Option:
    """Something that users may choose: of a task, of a method, of a run.

    Attributes:
      name: The keyword of `tasks.load`, or of a method's builder.
      value_type: What values it takes: one of `VALUE_TYPES`, or "choice".
      help: One sentence on what it is.
      default: The value if it is not given. A method's option has that of the
        builder's signature, whatever stands here.
      may_be_none: Whether `None` is a value too.
      choices: The values of the type "choice".
      flag: Its name on the command line, where the options of all methods and tasks
        meet: options of one flag mean the same. By default `name`.

    Raises:
      ValueError: If `name` or `flag` is no identifier, `value_type` is unknown, or
        `choices` are not given with the type "choice" alone.
    """

    name: str
    value_type: str
    help: str
    default: Any = None
    may_be_none: bool = False
    choices: tuple[str, ...] = ()
    flag: str = ""

    def __post_init__(self) -> None:
        checks.check_one_of("value_type", self.value_type, (*VALUE_TYPES, "choice"))
        if bool(self.choices) != (self.value_type == "choice"):
            raise ValueError(
                "choices must be given exactly with value_type 'choice', found "
                f"{checks.shown(self.choices)} with value_type "
                f"{checks.shown(self.value_type)} of option {checks.shown(self.name)}."
            )
        if not self.flag:
            object.__setattr__(self, "flag", self.name)
        for which in ("name", "flag"):
            value = getattr(self, which)
            checks.check_text(f"{which} of an option", value)
            if not value.isidentifier():
                raise ValueError(
                    f"{which} of an option must be an identifier such as 'num_layers', "
                    f"found {checks.shown(value)}."
                )

    def read(self, text: str, name: str = "") -> Any:
        """Returns the value that a text spells; "none" spells `None` where it may be.

        Args:
          text: The text.
          name: What to call the option in the message, by default `name`.

        Raises:
          ValueError: If it spells no value of this option.
        """
        name = name or self.name
        if text.lower() == "none" and self.may_be_none:
            return None
        if self.value_type == "choice":
            checks.check_one_of(name, text, self.choices)
            return text
        value_type = VALUE_TYPES[self.value_type]
        try:
            value = value_type.read(text)
            value_type.check(name, value)
        except ValueError:
            wanted = value_type.wanted + (", or none" if self.may_be_none else "")
            raise ValueError(
                f"{name} must be {wanted}, found {checks.shown(text)}."
            ) from None
        return value

    def check(self, value: Any, name: str = "") -> None:
        """Raises unless `value` is a value of this option.

        Args:
          value: The value to check.
          name: What to call the option in the message, by default `name`.

        Raises:
          TypeError: If it has the wrong type.
          ValueError: If it is out of range.
        """
        name = name or self.name
        if value is None and self.may_be_none:
            return
        if self.value_type == "choice":
            checks.check_one_of(name, value, self.choices)
        else:
            VALUE_TYPES[self.value_type].check(name, value)
