"""The command `list`: the tasks, the algorithms and the presets."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import errors
from experiments.reports.listing import LISTS


def _run(given: dict[str, Any]) -> None:
    for word in given["lists"]:
        if word not in LISTS:
            raise errors.unknown("list", word, tuple(LISTS))
    shown = [name for name in LISTS if name in given["lists"] or not given["lists"]]
    print("\n\n".join(LISTS[name]() for name in shown))


_ARGUMENT = {
    "nargs": "*",
    "default": (),
    "metavar": "LIST",
    "help": "tasks, algorithms or presets; all if none is named.",
}
COMMAND = Command(
    "list",
    "show the tasks and the algorithms, with their options and defaults",
    """\
Shows the tasks with their options and default settings, the algorithms with their
papers, options and default learning rates, and the presets with their parts.
""",
    _run,
    {"lists": _ARGUMENT},
)
