"""The command `sweep`: a search over flags, scored on clients held out."""

from __future__ import annotations

from collections.abc import Callable

from experiments.commands.command import Command
from experiments.flags import sweeps


def _load() -> Callable[[sweeps.Sweep], None]:
    from experiments.reports import sweeps as report
    from experiments.training import sweeps as training

    def run(sweep: sweeps.Sweep) -> None:
        report.write_protocol(sweep)
        report.write(sweep, training.run(sweep), training.given_up)
        names = ["points.md", "points.csv", "best.json"]
        if (sweep.folder / report.HEAT_MAP).exists():  # Of grids of two axes.
            names.append(report.HEAT_MAP)
        print(f"Files in {sweep.folder}: {', '.join(names)}")

    return run


_ARGUMENT = {
    "nargs": "+",
    "metavar": "FLAG=VALUES",
    "help": "A flag of train with values: 0.1,0.3,1 or lin:LOW:HIGH:COUNT or "
    "log:LOW:HIGH:COUNT.",
}
COMMAND = Command(
    "sweep",
    "search for the best values of flags, on held-out clients",
    """\
Trains every point of a grid, or --points chosen at random or by TPE, with every seed,
in separate processes, and measures on clients used for neither training nor testing:
those that the task holds out, or a fifth of the training clients. Points that diverge
are given up, and with --prune also those that are worse than the median of the others.
The same command continues an interrupted search, and may add values or points.
Optuna's journal is optuna.log. The best point is a file for --settings of train,
compare and preset.

example:
  tff-drift sweep server_learning_rate=0.01,0.03,0.1 client_learning_rate=log:0.1:1:3 \\
    --task=digits --algorithm=fed_adam --rounds=20
""",
    _load,
    sweeps.request,
    {"axes": _ARGUMENT},
)
