"""Errors that the user of the command line can mend."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterator

# How the tasks' messages write the arguments that are flags here.
_ARGUMENT = re.compile(r"\b(?:(download|synthetic)=True|cache_dir=FOLDER)\b")


class UserError(Exception):
    """A mistake in what was asked for, told in one line and without a traceback."""


def unknown(
    kind: str, name: str, known: Collection[str], otherwise: str = ""
) -> UserError:
    """Returns the error for a name that does not exist.

    Args:
      kind: What the name should name, such as "task".
      name: The name.
      known: The names that exist.
      otherwise: What to say if none of them is near; by default all of them.

    Returns:
      An error that says the nearest known names.
    """
    nearest = difflib.get_close_matches(name, known, n=3)
    advice = otherwise or f"Known are {', '.join(known)}."
    if nearest:
        advice = f"Did you mean {_any_of(nearest)}?"
    return UserError(f"unknown {kind} {name!r}. {advice}")


def _any_of(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


@contextlib.contextmanager
def as_user_errors(*kinds: type[BaseException]) -> Iterator[None]:
    """Turns errors of some kinds, raised inside, into `UserError`s.

    Args:
      *kinds: The classes of errors whose message is meant for the user.

    Yields:
      Nothing.

    Raises:
      UserError: In place of an error of one of the kinds, on one line, in which the
        tasks' arguments for finding data are written as flags.
    """
    try:
        yield
    except kinds as error:
        text = _ARGUMENT.sub(_as_flag, str(error))
        raise UserError(" ".join(text.split())) from error


def _as_flag(match: re.Match[str]) -> str:
    return f"--{match[1] or match[0]}"
