"""Checks of a run's folder, before anything is written there."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift import checks, files
from tff_drift.simulation.records import configuration
from tff_drift.simulation.records.metrics import ROUND
from tff_drift.simulation.records.metrics_file import holds_no_more, read_rows
from tff_drift.simulation.records.output_dir import (
    CHECKPOINT_FILE,
    CONFIGURATION_FILE,
    FROZEN_FILE,
    METRICS_FILE,
    TENSORBOARD_FOLDER,
    TRACKERS_FILE,
)

# Where a store on disk may lie within the folder.
CLIENT_STATES_FOLDER = "client_states"

CONFIGURATION_FORMAT = "tff_drift run"
# The temporary files that a kill may leave behind.
TEMPORARY_FILES = frozenset(
    files.temporary_path(pathlib.Path(name)).name
    for name in (
        CHECKPOINT_FILE,
        CONFIGURATION_FILE,
        FROZEN_FILE,
        METRICS_FILE,
        TRACKERS_FILE,
    )
)


class OutputDirError(checks.ShortError):
    """An output folder that cannot be used for this run."""


def refusal(folder: pathlib.Path, why: str) -> OutputDirError:
    """Returns the error for a folder that cannot be used.

    Args:
      folder: The folder.
      why: What is wrong and what to do, the end of the message.
    """
    return OutputDirError(f"output_dir {checks.shown(str(folder))} {why}")


def check_same(folder: pathlib.Path, phrases: Sequence[str]) -> None:
    """Raises if what a folder is to hold differs from the run that it holds.

    Args:
      folder: The folder.
      phrases: What differs, as `configuration.differences` says it.

    Raises:
      OutputDirError: If there are phrases.
    """
    if not phrases:
        return
    if configuration.are_of_data(phrases):
        found = ", ".join(dict.fromkeys(configuration.without_hashes(phrases)))
        raise refusal(
            folder,
            f"holds a run whose data has changed since ({checks.shortened(found)})."
            " Put the data back, or choose another output_dir.",
        )
    found = checks.shortened("; ".join(dict.fromkeys(phrases)))
    raise refusal(
        folder,
        f"holds a run with another configuration: {found}. Ask for the same "
        "run, or choose another output_dir.",
    )


def own_folder(run: pathlib.Path, name: str) -> pathlib.Path:
    """Returns a folder in that of a run, unless a link leads elsewhere.

    Args:
      run: The folder of the run.
      name: The name of the folder.

    Raises:
      OutputDirError: If one does.
    """
    try:
        files.check_inside(run / name, run)
    except OSError as error:
        raise refusal(
            run,
            f"cannot be used: {error}. Put a folder in place of the link, or choose "
            "another output_dir.",
        ) from error
    return run / name


def check_configuration_file(folder: pathlib.Path) -> None:
    """Raises an `OutputDirError` if the configuration in a folder is not a run's.

    Args:
      folder: The folder.
    """
    path = folder / CONFIGURATION_FILE
    try:
        ours = files.read_json(path)["format"] == CONFIGURATION_FORMAT
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        ours = False
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
        ours = False
    if not ours:
        raise OutputDirError(
            f"output_dir holds a {CONFIGURATION_FILE} that tff_drift did not "
            f"write: {path}. It was left unchanged: choose another output_dir."
        )


def check_unused(folder: pathlib.Path) -> None:
    """Raises unless a folder is empty or has the first files of a run.

    Args:
      folder: The folder.

    Raises:
      MetricsFileError: If it has a file of metrics that is damaged.
      OutputDirError: If it has others.
    """
    ours = set(TEMPORARY_FILES)
    if (folder / CONFIGURATION_FILE).exists():
        ours |= {
            CONFIGURATION_FILE,
            FROZEN_FILE,
            METRICS_FILE,
            TENSORBOARD_FOLDER,
            TRACKERS_FILE,
        }
    # A store on disk is opened, and checked, before the run begins.
    others = sorted(set(os.listdir(folder)) - ours - {CLIENT_STATES_FOLDER})
    if others:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise refusal(
            folder,
            f"holds files but no checkpoint of tff_drift: {checks.shortened(shown)}"
            ". Choose an empty or a new folder.",
        )
    # The first checkpoint follows the row of round 0.
    path = folder / METRICS_FILE
    if path.exists() and any(row[ROUND] > 0 for row in read_rows(path)[1]):
        raise OutputDirError(
            f"output_dir holds the metrics of a run, {path}, but its "
            f"{CHECKPOINT_FILE} is gone. Choose an empty or a new folder."
        )


def is_over(
    folder: pathlib.Path,
    completed: int,
    rows: int,
    shown: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Returns whether a run has no round to go and its files are as they should be.

    Then nothing in its folder is to be written.

    Args:
      folder: The folder, of this run.
      completed: The rounds completed.
      rows: The number of its rows.
      shown: What is asked for, by the sections of the configuration.
    """
    asked = {name: section.get("rounds") for name, section in shown.items()}
    # The last section is the training's; in a user's own they may be another thing.
    if [*asked.values()][-1] != completed:
        return False
    try:
        content = files.read_json(folder / CONFIGURATION_FILE)
        said = {name: content[name].get("rounds") for name in asked}
        return said == asked and holds_no_more(folder / METRICS_FILE, rows)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return False


def check_writable(folder: pathlib.Path) -> None:
    """Raises an `OSError` unless files can be created and removed in a folder.

    They are those that a kill may leave behind.

    Args:
      folder: The folder.
    """
    for name in TEMPORARY_FILES:
        temporary = folder / name
        files.create(temporary).close()
        temporary.unlink()
