"""The runs of a comparison, from their settings to its files."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

from experiments import escape
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.placement import IN_THIS_PROCESS, Placement
from experiments.flags.settings import RunSettings
from experiments.reports import comparison, results, texts, writing
from experiments.reports.results import Result
from experiments.training import pool
from experiments.training.run_folders import read_finished
from experiments.training.runs import Runs
from tff_drift import files
from tff_drift.simulation.records import run_directory, run_folder

_FULL_TABLE_WIDTH = 162


def run(
    folder: pathlib.Path,
    flags: Mapping[str, Any],
    runs: Sequence[RunSettings],
    placement: Placement = IN_THIS_PROCESS,
) -> list[Result]:
    """Trains all runs of a comparison and writes its files.

    Args:
      folder: The folder of the comparison.
      flags: The flags that made the runs, for config.json.
      runs: The runs, in the order to train them.
      placement: Where to train several at a time; by default one after the other in
        this process.

    Returns:
      Their results, in the same order.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for is not available.
    """
    check_folder(folder, flags, runs)
    told: Sequence[RunSettings] = ()
    if placement.on_ray or pool.size(placement) > 1:
        comparison.write_configuration(folder, flags, runs)
        told = _train_side_by_side(runs, placement)
    checked = Runs(runs)
    comparison.write_configuration(folder, flags, runs)
    # On a terminal each run has a bar; elsewhere the line that announces it will do.
    progress = sys.stderr.isatty()
    done = []
    for number, run in enumerate(runs, start=1):
        name = f"[{number}/{len(runs)}] {run.label}, seed {run.seed}"
        note = checked.finished_before(run)
        if not note or run not in told:
            print(f"{name}: {note}" if note else name, file=sys.stderr)
        done.append(checked.execute(run, progress))
    comparison.write(folder, done)
    _tell_of_others(folder, runs)
    return done


def show(done: Sequence[Result], part: str = "") -> None:
    """Prints the table of a comparison.

    Args:
      done: The results of its runs.
      part: The part of a preset that it is, if it is one.
    """
    table = comparison.tabulate(done)
    of_part = f"part {part}: " if part else ""
    print(f"\n{of_part}{comparison.describe(done)}:")
    metric = done[0].headline.removeprefix("test_")
    # A narrow terminal gets the main columns; the file has all of them.
    short = texts.terminal_width() < _FULL_TABLE_WIDTH
    texts.print_table(*comparison.readable(table, metric, short=short))


def _tell_of_others(folder: pathlib.Path, runs: Sequence[RunSettings]) -> None:
    """Says which runs of a folder its table is not of: those of other commands."""
    own = {run.folder for run in runs}
    found = {path.parent for path in folder.glob(f"*/seed_*/{results.SUMMARY_FILE}")}
    if others := sorted(str(each.relative_to(folder)) for each in found - own):
        shown = escape.terminal(", ".join(others))
        print(
            f"Left out, not of this command: {shown}. A table of all: tff-drift "
            f"analyze {folder}",
            file=sys.stderr,
        )


def _train_side_by_side(
    runs: Sequence[RunSettings], placement: Placement
) -> Sequence[RunSettings]:
    """Trains what is not finished in processes of their own, and returns it."""
    waiting = [run for run in runs if read_finished(run) is None]
    if len(waiting) > 1 or (waiting and placement.on_ray):
        pool.train(waiting, train_alone, placement)
        return waiting
    return ()


def train_alone(run: RunSettings) -> str:
    """Trains a run in a process of its own; returns nothing, for it is not given up.

    Args:
      run: The run.

    Raises:
      UserError: If something asked for is not available.
    """
    Runs([run]).execute(run, progress=False)
    return ""


def check_folder(
    folder: pathlib.Path, flags: Mapping[str, Any], runs: Sequence[RunSettings]
) -> None:
    """Creates the folder of a comparison and checks that it may be used.

    Args:
      folder: The folder.
      flags: The flags that made the runs.
      runs: The comparison's runs, whose folders are in it.

    Raises:
      UserError: If it cannot be written, or `check_files` refuses it.
    """
    writing.make_output_dir(folder)
    with as_user_errors(OSError):
        for run in runs:
            files.check_inside(run.folder, folder)
    check_files(folder, flags, {run.task for run in runs})


def check_files(
    folder: pathlib.Path, flags: Mapping[str, Any], tasks: Set[str]
) -> None:
    """Checks that the files of a comparison replace nothing else.

    Args:
      folder: Its folder, which may be absent.
      flags: The flags that made its runs.
      tasks: The names of their tasks.

    Raises:
      UserError: If the folder holds something else, or a comparison on another task or
        of another preset.
    """
    held = _held(folder / run_directory.CONFIGURATION_FILE)
    if held is not None:
        tasks_held, flags_held = held
        before = f"a comparison on {', '.join(sorted(tasks_held - tasks))}"
        now = f"one on {', '.join(sorted(tasks))}"
        if tasks_held <= tasks:
            before, now = _origin(flags_held), _origin(flags)
        if before != now:
            raise UserError(
                f"output_dir {str(folder)!r} holds {before}, whose files {now} would "
                "replace. Choose an empty or a new folder."
            )
        return
    # Of runs that were refused empty folders are left, and of a kill such files.
    within = (
        each
        for each in folder.rglob("*")
        if not each.is_dir() and each.name not in run_folder.TEMPORARY_FILES
    )
    names = sorted({each.relative_to(folder).parts[0] for each in within})
    if names:
        raise UserError(
            f"output_dir {str(folder)!r} holds files, but no comparison of tff-drift: "
            f"{', '.join(names[:3])}. Choose an empty or a new folder."
        )


def _origin(flags: Mapping[str, Any]) -> str:
    """Returns what made a comparison, by its flags."""
    if "preset" not in flags:
        return "a comparison of no preset"
    return f"a part of the preset {flags['preset']} at the scale {flags.get('scale')}"


def _held(path: pathlib.Path) -> tuple[Set[str], Mapping[str, Any]] | None:
    """Returns tasks and flags of the comparison that a file describes, if of one."""
    try:
        content = files.read_json(path)
        if content["format"] != comparison.FORMAT:
            return None
        tasks = {run["task"] for run in content.get("runs", ())}
        return tasks, dict(content.get("flags", {}))
    except (OSError, ValueError, KeyError, TypeError):
        return None
