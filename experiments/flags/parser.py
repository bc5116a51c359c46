"""From the words of a command line to the values of flags, by argparse."""

from __future__ import annotations

import argparse
import functools
import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from experiments.flags import declarations, errors
from experiments.flags.flag import LIST, Flag
from tff_drift import value_types

_FILE_FLAG = "--flagfile="
_SWITCH = "flag"
# What the values of some flags are called.
_NOUNS = {"task": "task", "algorithm": "algorithm", "algorithms": "algorithm"}
HELP_ALL = "--help-all"
# A command with more flags than these shows the first ones alone.
_ALL_SHOWN = 25
CLOSING = """\
Brackets hold defaults; `tff-drift list NAME` has those by task and algorithm. Switches
are set by --name and --noname. --flagfile=FILE reads flags from a file, one per line.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are `UserError`s that name what was meant."""

    def __init__(
        self, arguments: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
    ) -> None:
        """Initializes the parser.

        Args:
          arguments: The options of `add_argument` for what is no flag, by name.
          **options: Those of `argparse.ArgumentParser`.
        """
        super().__init__(
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,  # What is not given is left out.
            formatter_class=functools.partial(
                argparse.RawDescriptionHelpFormatter, max_help_position=30, width=88
            ),
            **options,
        )
        self._names: list[str] = []
        self._switches: set[str] = set()
        self._arguments = arguments or {}
        for name, of_argument in self._arguments.items():
            self.add_argument(name, **of_argument)

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError`; called by argparse."""
        raise errors.UserError(f"{message}. See {self.prog} --help.")

    def print_help(self, file: Any = None) -> None:
        """Prints the help; argparse's own hides that it could not be written."""
        print(self.format_help(), end="", file=file)

    def add_flags(self, flags: Mapping[str, Flag], every: bool = False) -> None:
        """Adds flags under their headings.

        Args:
          flags: The flags by name.
          every: Whether help shows all of them, even if they are many.
        """
        self._names = [f"--{name}" for name in flags]
        switches = (each for each in flags.values() if each.value_type == _SWITCH)
        self._switches = {f"--{each.name}" for each in switches}
        shown = flags
        if len(flags) > _ALL_SHOWN and not every:
            shown = {name: flag for name, flag in flags.items() if flag.is_first}
        if len(flags) > _ALL_SHOWN:
            more = sum(not flag.is_first for flag in flags.values())
            about = f"show the other {more} flags too, those of algorithms and tasks"
            self.add_argument(HELP_ALL, action="help", help=about)
        titles = dict.fromkeys(flag.group for flag in shown.values())
        groups = {title: self.add_argument_group(title) for title in titles}
        for flag in flags.values():
            if flag.name in shown:
                _add(groups[flag.group], flag)
            else:
                _add(self, flag, help=argparse.SUPPRESS)

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Returns the values of what was given, by name.

        Args:
          words: The words, those of files in their place, see `with_files`.

        Raises:
          UserError: If a flag or one of its values is unknown or out of range.
        """
        if self._arguments:
            words = self._with_bare_switches(words)
        known, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if not word.startswith("--"):
                self.error(f"unexpected argument {word!r}: flags are --name=value")
            otherwise = f"See {self.prog} --help."
            raise errors.unknown("flag", word.split("=")[0], self._names, otherwise)
        return vars(known)

    def _with_bare_switches(self, words: Sequence[str]) -> list[str]:
        """Returns words in which no switch takes a name after it for its value."""
        return [
            f"{word}=true"
            if word in self._switches and after.lower() not in value_types.BOOLEANS
            else word
            for word, after in itertools.pairwise([*words, ""])
        ]


def plugins(command: str, words: Sequence[str]) -> tuple[str, ...]:
    """Returns the values of `--plugin` among words whose other flags are not known.

    Args:
      command: The command's name.
      words: The words after it, as for `Parser.parse`.
    """
    parser = Parser(prog=f"tff-drift {command}", add_help=False)
    parser.add_flags({"plugin": declarations.flags_of(LIST)["plugin"]})
    return getattr(parser.parse_known_args(words)[0], "plugin", ())


def with_files(
    words: Iterable[str], within: tuple[pathlib.Path, ...] = ()
) -> list[str]:
    """Returns words with those of the files that they name in their place.

    It is called once in a command: a pipe can be read no second time.

    Args:
      words: The words.
      within: The files that they are in.

    Raises:
      UserError: If a file cannot be read, or is in itself.
    """
    found = []
    for word in words:
        if word.startswith(_FILE_FLAG):
            path = pathlib.Path(word[len(_FILE_FLAG) :])
            if path in within:
                raise errors.UserError(f"{word} leads back to itself. Take it out.")
            lines = [line.strip() for line in _read_file(path).splitlines()]
            inside = (line for line in lines if line and not line.startswith("#"))
            found += with_files(inside, (*within, path))
        else:
            found.append(word)
    return found


def _read_file(path: pathlib.Path) -> str:
    """Returns the text of a file of flags; editors may begin it with a byte order mark.

    Raises:
      UserError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.UserError(
            f"--flagfile: {str(path)!r} is not text in UTF-8. Save it as UTF-8."
        ) from error
    except OSError as error:
        raise errors.UserError(
            f"--flagfile: {error}. Give a file of flags, one per line."
        ) from error


def _add(group: argparse._ActionsContainer, flag: Flag, **changed: Any) -> None:
    text = flag.help
    if flag.choices:
        text += f" One of {', '.join(flag.choices)}."
    if flag.default is not None:
        text += f" [{value_types.show(flag.default)}]"
    options: dict[str, Any] = {"metavar": "VALUE"}
    if flag.value_type == _SWITCH:
        options = {"metavar": "true|false", "nargs": "?", "const": True}
        off, hidden = f"--no{flag.name}", argparse.SUPPRESS
        group.add_argument(off, dest=flag.name, action="store_false", help=hidden)
    group.add_argument(
        f"--{flag.name}",
        type=functools.partial(_read_many if flag.many else _read, flag),
        **{"help": text.replace("%", "%%"), **options, **changed},
    )


def _read_many(flag: Flag, text: str) -> tuple[Any, ...]:
    """Returns the values of a flag that a text spells; raises `UserError` if none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    values = tuple(_read(flag, part) for part in parts)
    if not values:
        raise errors.UserError(f"--{flag.name} must name at least one.")
    for value in values:
        if values.count(value) > 1:
            raise errors.UserError(f"--{flag.name} has {value!r} more than once.")
    return values


def _read(flag: Flag, text: str) -> Any:
    """Returns the value of a flag that a text spells; raises `UserError` if none."""
    try:
        return flag.read(text, f"--{flag.name}")
    except ValueError as error:
        if not flag.choices:
            raise errors.UserError(str(error)) from None
        found = errors.unknown(_NOUNS.get(flag.name, "value"), text, flag.choices)
        raise errors.UserError(f"--{flag.name}: {found}") from None
