"""Parsing of a command's flags, by absl, without TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from experiments import errors
from experiments.flag_table import Flag, flags_of

# Of each kind of number: how to read one, which are allowed, and how to say it.
_NUMBERS: dict[str, tuple[Callable[[str], Any], Callable[[Any], bool], str]] = {
    "integer": (int, lambda value: True, "an integer"),
    "whole": (int, lambda value: value >= 0, "an integer of at least 0"),
    "count": (int, lambda value: value >= 1, "an integer of at least 1"),
    "number": (float, lambda value: True, "a finite number"),
    "positive": (float, lambda value: value > 0, "a finite number greater than 0"),
    "non_negative": (float, lambda value: value >= 0, "a finite number of at least 0"),
    "rate": (float, lambda value: 0 <= value < 1, "a number of at least 0, below 1"),
    "fraction": (float, lambda value: 0 < value <= 1, "a number above 0, at most 1"),
    "probability": (float, lambda value: 0 <= value <= 1, "a number from 0 to 1"),
}
# What the values of these flags are called.
_NAMED_KINDS = {"task": "task", "algorithm": "algorithm", "algorithms": "algorithm"}
_ILLEGAL_VALUE = re.compile(
    r"flag --(?P<name>\w+)=(?P<value>.*?): (?P<reason>.*)", re.S
)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The flags of a command as they were given.

    Attributes:
      command: "train", "compare", "data" or "preset".
      values: The value of every flag of the command: the one given, or the flag's
        fixed default, which is `None` where the default depends on other flags.
      given: The names of the flags that were given.
    """

    command: str
    values: Mapping[str, Any]
    given: frozenset[str]


class _Parser(flags.ArgumentParser):
    """Reads a flag's value as its kind says."""

    def __init__(self, flag: Flag) -> None:
        self._flag = flag
        self.syntactic_help = ""

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument  # A default, which has its value already.
        if self._flag.may_be_none and argument.lower() == "none":
            return None
        if self._flag.kind.endswith("s"):
            return self._parse_all(argument)
        return self._parse_one(self._flag.kind, argument)

    def _parse_all(self, argument: str) -> tuple[Any, ...]:
        parts = [part.strip() for part in argument.split(",") if part.strip()]
        if not parts:
            raise ValueError("must name at least one.")
        values = [self._parse_one(self._flag.kind[:-1], part) for part in parts]
        for value in values:
            if values.count(value) > 1:
                raise ValueError(f"has {value!r} more than once.")
        return tuple(values)

    def _parse_one(self, kind: str, text: str) -> Any:
        if kind == "text":
            return text
        if kind == "choice":
            if text not in self._flag.choices:
                what = _NAMED_KINDS.get(
                    self._flag.name, f"value of --{self._flag.name}"
                )
                raise errors.unknown(what, text, self._flag.choices)
            return text
        number, _, word = kind.partition(" or ")
        if word and text == word:
            return word
        read, is_allowed, wanted = _NUMBERS[number]
        try:
            value = read(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and is_allowed(value)):
            words = [word, "none" if self._flag.may_be_none else ""]
            alternatives = "".join(f", or {word}" for word in words if word)
            raise ValueError(f"must be {wanted}{alternatives}, found {text!r}.")
        return value


def _define(flag_values: flags.FlagValues, flag: Flag) -> None:
    if flag.kind == "flag":
        flags.DEFINE_boolean(
            flag.name, flag.default, flag.help, flag_values=flag_values
        )
    else:
        flags.DEFINE(
            _Parser(flag), flag.name, flag.default, flag.help, flag_values=flag_values
        )


def parse(command: str, arguments: Sequence[str]) -> Arguments:
    """Parses the flags of a command.

    Args:
      command: "train", "compare", "data" or "preset".
      arguments: The words after the command, such as `["--rounds=5"]`. A
        `--flagfile=FILE` stands for the flags in the file, one per line.

    Returns:
      The arguments.

    Raises:
      UserError: If a flag or one of its values is unknown or out of range.
    """
    known = flags_of(command)
    flag_values = flags.FlagValues()
    flag_values.set_gnu_getopt()
    for flag in known.values():
        _define(flag_values, flag)
    try:
        rest = flag_values([command, *arguments])
    except flags.UnrecognizedFlagError as error:
        raise errors.unknown(
            "flag",
            f"--{error.flagname}",
            [f"--{name}" for name in known],
            otherwise=f"See tff-drift {command} --help.",
        ) from None
    except flags.Error as error:
        raise errors.UserError(_reword(error, known)) from None
    if rest[1:]:
        raise errors.UserError(
            f"unexpected argument {rest[1]!r}. Flags are written --name=value; see "
            f"tff-drift {command} --help."
        )
    return Arguments(
        command=command,
        values={name: flag_values[name].value for name in known},
        given=frozenset(name for name in known if flag_values[name].present),
    )


def _reword(error: flags.Error, known: Mapping[str, Flag]) -> str:
    """Returns absl's message with the flag first."""
    message = str(error)
    match = _ILLEGAL_VALUE.fullmatch(message)
    if match is None:
        return " ".join(message.replace("ERROR:: ", "").split())
    name, reason = match["name"], match["reason"]
    if known[name].kind == "flag":
        reason = f"must be true or false, found {match['value']!r}."
    return f"--{name} {reason}"
