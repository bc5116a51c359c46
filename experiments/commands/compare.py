"""The command `compare`."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import declarations, settings
from experiments.terminal import importing


def _run(given: dict[str, Any]) -> None:
    runs = settings.resolve_comparison(given)
    with importing():
        from experiments.training import comparison, log

    log.show()
    # Of <folder>/<algorithm>/seed_<seed>.
    folder = runs[0].folder.parent.parent
    values = declarations.values(declarations.flags_of("compare"), given)
    comparison.run(folder, values, runs)
    print(
        f"Files in {folder}: table.md, table.csv, curves.png, config.json, "
        "summary.json",
    )


COMMAND = Command(
    "compare",
    "train several algorithms with several seeds; makes a table and a figure",
    """\
Trains several algorithms on one task with several seeds, each run in a folder of its
own, and summarizes them in table.md, table.csv, curves.png, config.json and
summary.json. The same command continues an interrupted comparison; finished runs are
not repeated.

example:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1,2,3
""",
    _run,
)
