"""The command `report`: what finished runs say, on one page."""

from __future__ import annotations

import functools
from collections.abc import Callable

from experiments.commands.command import Command
from experiments.flags import errors, pages
from experiments.presets.catalogue import PRESETS


def _load() -> Callable[[pages.PageRequest], None]:
    from experiments.reports import report

    about = {name: f"{one.summary} {one.source}" for name, one in PRESETS.items()}
    write = functools.partial(report.write_requested, presets=about)
    return errors.as_user_errors(FileNotFoundError, NotADirectoryError, ValueError)(
        write
    )


_ARGUMENT = {
    "nargs": "+",
    "metavar": "FOLDER",
    "help": "A folder of runs, comparisons, sweeps or presets, or of folders of such.",
}
COMMAND = Command(
    "report",
    "put finished runs on one page: protocol, tables, figures, limits",
    """\
Summarizes the finished runs, comparisons, sweeps and presets in folders and their
subfolders on one HTML page that needs no other file, and in Markdown: data, versions,
machine and duration, what differs between variants and what they share, tables with a
paper's figures where a preset has them, curves, and what the result does not show.
Python programs and notebooks use experiments.reports.report.

example:
  tff-drift report results/compare/digits --thresholds=0.7,0.8 --last=10
""",
    _load,
    pages.request,
    {"folders": _ARGUMENT},
)
