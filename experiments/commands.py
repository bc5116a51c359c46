"""The commands that train: `train` and `compare`."""

from __future__ import annotations

import logging
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tff_drift
from experiments import comparison, preflight, texts
from experiments.command_line import Arguments
from experiments.results import Result
from experiments.runs import Runs
from experiments.settings import RunSettings

_PERCENTILES = (5, 25, 50, 75, 95)
_FULL_TABLE_WIDTH = 162


def train(run: RunSettings) -> None:
    """Trains one run and tells how it ended.

    Args:
      run: The run.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    show_log()
    result = Runs([run]).execute(run)
    print(_describe(result))
    _print_files(run.folder, "config.json, metrics.csv, summary.json, curves.png")


def compare(arguments: Arguments, runs: Sequence[RunSettings]) -> None:
    """Trains all runs of a comparison and tells how they compare.

    Args:
      arguments: The command's flags.
      runs: The runs that they ask for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    show_log()
    # Of <folder>/<algorithm>/seed_<seed>.
    folder = runs[0].folder.parent.parent
    run_comparison(folder, arguments.values, runs)
    _print_files(folder, "table.md, table.csv, curves.png, config.json, summary.json")


def run_comparison(
    folder: pathlib.Path, flags: Mapping[str, Any], runs: Sequence[RunSettings]
) -> list[Result]:
    """Trains all runs of a comparison, writes its files and prints its table.

    Args:
      folder: The folder of the comparison.
      flags: The flags that made the runs, for config.json.
      runs: The runs, in the order to train them.

    Returns:
      Their results, in the same order.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    preflight.check_comparison_folder(folder)
    checked = Runs(runs)
    comparison.write_configuration(folder, flags, runs)
    # On a terminal each run has a bar; elsewhere the line that announces it will do.
    progress = sys.stderr.isatty()
    done = []
    for number, run in enumerate(runs, start=1):
        name = f"[{number}/{len(runs)}] {run.label}, seed {run.seed}"
        note = ": finished before" if checked.is_finished(run) else ""
        print(f"{name}{note}", file=sys.stderr)
        done.append(checked.execute(run, progress))
    comparison.write(folder, done)
    table = comparison.tabulate(done)
    print(f"\n{comparison.describe(done)}:")
    metric = done[0].headline.removeprefix("test_")
    # A narrow terminal gets the main columns; the file has all of them.
    short = texts.terminal_width() < _FULL_TABLE_WIDTH
    texts.print_table(*comparison.readable(table, metric, short=short))
    return done


def _print_files(folder: pathlib.Path, names: str) -> None:
    print(f"Files in {folder}: {names}")


def _describe(result: Result) -> str:
    """Returns how a run ended, in a few lines."""
    settings, summary = result.settings, result.summary
    final, best, totals = summary["final"], summary["best"], summary["totals"]
    metric = result.headline.removeprefix("test_")
    lines = [
        f"\n{settings.algorithm} on {settings.task}, seed {settings.seed}: "
        f"{settings.rounds} rounds, {summary['clients_per_round']} of "
        f"{summary['clients']} clients per round"
    ]

    def add(label: str, text: str) -> None:
        lines.append(f"  {label:22}{text}")

    for name in (metric, "loss"):
        text = texts.metric(name, final[f"test_{name}"])
        if f"test_{name}" in best:
            at = best[f"test_{name}"]
            text += f" (best {texts.metric(name, at['value'])} in round {at['round']})"
        add(f"test {name}", text)
    percentiles = []
    for percent in _PERCENTILES:
        value = final[f"{result.headline}_client_p{percent}"]
        percentiles.append(f"{percent} %: {texts.metric(metric, value)}")
    add("clients' percentiles", "   ".join(percentiles))
    add("examples processed", f"{totals['examples']:,}")
    add(
        "traffic",
        f"{texts.size(totals['bytes_down'])} to clients, "
        f"{texts.size(totals['bytes_up'])} from clients",
    )
    add(
        "time",
        f"{texts.duration(totals['seconds'])} training, "
        f"{texts.duration(totals['seconds_evaluation'])} evaluation",
    )
    # A run of an earlier version has none.
    work = summary.get("arithmetic")
    if work is not None:
        add(
            "work beyond SGD",
            f"{texts.units(sum(work['client'].values()))} operations of a client per "
            "round, n being the trainable weights",
        )
    failures = summary["failures"]
    if failures:
        rounds = ", ".join(str(failure["round"]) for failure in failures[:10])
        add("breakdowns", f"{len(failures)}, in rounds {rounds}")
    return "\n".join(lines)


class _LogHandler(logging.Handler):
    """Shows our own notes, and everybody's warnings, as plain lines.

    `sys.stderr` is looked up at every line: a progress bar redirects it while it is
    drawn, so that lines appear above the bar.
    """

    _OUR_FOLDER = str(pathlib.Path(tff_drift.__file__).parent)

    def filter(self, record: logging.LogRecord) -> bool:
        ours = record.pathname.startswith(self._OUR_FOLDER)
        return ours or record.levelno >= logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


def show_log() -> None:
    """Shows absl's log, in which a run tells of its progress and its failures."""
    logger = logging.getLogger("absl")
    logger.handlers = [_LogHandler()]
    logger.setLevel(logging.INFO)
    logger.propagate = False
