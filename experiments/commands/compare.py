"""The command `compare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.commands.command import Command
from experiments.flags import declarations, settings
from experiments.flags.flag import COMPARE
from experiments.terminal import importing


def _request(given: dict[str, Any]) -> tuple[Any, list[settings.RunSettings]]:
    """Returns the values of all flags, and the runs."""
    runs = settings.resolve_comparison(given)
    return declarations.values(declarations.flags_of(COMPARE), given), runs


def _load() -> Callable[[tuple[Any, list[settings.RunSettings]]], None]:
    with importing():
        from experiments.training import comparison, log

    log.show()

    def run(request: tuple[Any, list[settings.RunSettings]]) -> None:
        flags, runs = request
        # Of <folder>/<algorithm>/seed_<seed>.
        folder = runs[0].folder.parent.parent
        comparison.show(comparison.run(folder, flags, runs))
        print(
            f"Files in {folder}: table.md, table.csv, curves.png, config.json, "
            "summary.json",
        )

    return run


COMMAND = Command(
    "compare",
    "train several algorithms with several seeds; makes a table and a figure",
    """\
Trains several algorithms on one task with several seeds, each run in a folder of its
own, and summarizes them in table.md, table.csv, curves.png, config.json and
summary.json. The same command continues an interrupted comparison; finished runs are
not repeated. The files are of its runs; tff-drift analyze takes all of a folder.

example:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1,2,3
""",
    _load,
    _request,
)
