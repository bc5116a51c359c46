"""The command `analyze`: what finished runs say, without training."""

from __future__ import annotations

from collections.abc import Callable

from experiments.commands.command import Command
from experiments.flags import analyses, errors


def _load() -> Callable[[analyses.Analysis], None]:
    from experiments.reports import analysis

    return errors.as_user_errors(FileNotFoundError, NotADirectoryError, ValueError)(
        analysis.write
    )


_ARGUMENT = {
    "nargs": "+",
    "metavar": "FOLDER",
    "help": "A folder of runs, or of folders of runs.",
}
COMMAND = Command(
    "analyze",
    "make tables and figures of finished runs, without training",
    """\
Reads the finished runs in folders of `tff-drift train`, compare, sweep or preset, and
their subfolders. Reports final means and standard deviations over seeds, percentiles
of test clients, the share of runs that broke down, and the cost of reaching thresholds;
draws curves, box plots of clients, and bars of training and test metrics. Python
programs and notebooks use experiments.analysis.

example:
  tff-drift analyze results/compare/digits --thresholds=0.7,0.8 --last=10
""",
    _load,
    analyses.request,
    {"folders": _ARGUMENT},
)
