"""The command `list`: the tasks, the algorithms and the presets."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import errors
from experiments.reports import listing


def _run(given: dict[str, Any]) -> None:
    kinds = listing.kinds()
    names = [name for listed in kinds.values() for name in listed]
    for word in given["names"]:
        if word not in (*kinds, *names):
            raise errors.unknown("name", word, (*kinds, *names))
    parts = [
        listing.overview(word) if word in kinds else listing.details(word)
        for word in given["names"]
    ]
    if not parts:
        # On one screen.
        parts = [listing.overview(kind, kind == "presets") for kind in kinds]
        parts += ["`tff-drift list NAME ...` shows options, defaults and papers."]
    print("\n\n".join(parts))


_ARGUMENT = {
    "nargs": "*",
    "default": (),
    "metavar": "NAME",
    "help": "A task, an algorithm or a preset; or tasks, algorithms or presets.",
}
COMMAND = Command(
    "list",
    "show the tasks, the algorithms and the presets, or one of them in full",
    """\
Shows the tasks, the algorithms and the presets on one screen. Of those that are named
it shows the options, the default settings and learning rates, the paper, the parts.

example:
  tff-drift list
  tff-drift list digits scaffold
""",
    lambda: _run,
    arguments={"names": _ARGUMENT},
)
