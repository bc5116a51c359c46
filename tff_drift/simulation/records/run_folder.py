"""A run's folder: the lock on it, and checks before anything is written there."""

from __future__ import annotations

import errno
import fcntl
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
_FILES = (
    CHECKPOINT_FILE,
    CONFIGURATION_FILE,
    FROZEN_FILE,
    METRICS_FILE,
    TRACKERS_FILE,
)
# The temporary files that a kill may leave behind.
TEMPORARY_FILES = frozenset(
    files.temporary_path(pathlib.Path(name)).name for name in _FILES
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


class FolderLock:
    """Keeps other programs out of a folder until it is closed."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Takes the lock.

        Args:
          folder: The folder.

        Raises:
          OutputDirError: If another program has it.
        """
        self._folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            remedy = "Wait for its end, or choose another output_dir."
            why = f"is in use by another program. {remedy}"
            raise refusal(folder, why) from error
        except OSError:
            # A file system without locks: the user has to take care.
            return

    def is_in_place(self) -> bool:
        """Whether the folder is where it was when the lock was taken."""
        opened = os.fstat(self._descriptor)
        try:
            return os.path.samestat(opened, os.stat(self._folder))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Lets other programs have the folder."""
        os.close(self._descriptor)


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
    if changes := configuration.changes_of_data(phrases):
        found = checks.shortened(", ".join(dict.fromkeys(changes)))
        why = f"whose data has changed since ({found}). Put the data back"
    else:
        found = checks.shortened("; ".join(dict.fromkeys(phrases)))
        why = f"with another configuration: {found}. Ask for the same run"
    raise refusal(folder, f"holds a run {why}, or choose another output_dir.")


def check_data(
    folder: pathlib.Path, was: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raises if the data of the run in a folder has changed.

    Args:
      folder: The folder.
      was: The arguments of the training that the run was saved with, in JSON values.
      now: Those of them that say of which data a run is. One that is not in `was` is
        not compared.

    Raises:
      OutputDirError: If one differs.
    """
    before, flat = configuration.flatten(was), configuration.flatten(now)
    known = [name for name in flat if name in before]
    phrases = configuration.differences(
        {name: before[name] for name in known}, {name: flat[name] for name in known}
    )
    check_same(folder, phrases)


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
        remedy = "Put a folder in place of the link, or choose another output_dir."
        raise refusal(run, f"cannot be used: {error}. {remedy}") from error
    return run / name


def check_configuration_file(folder: pathlib.Path) -> None:
    """Raises an `OutputDirError` if the configuration in a folder is not a run's.

    Args:
      folder: The folder.
    """
    path = folder / CONFIGURATION_FILE
    try:
        if files.read_json(path)["format"] == CONFIGURATION_FORMAT:
            return
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        pass
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
    raise OutputDirError(
        f"output_dir holds a {CONFIGURATION_FILE} that tff_drift did not write: "
        f"{path}. It was left unchanged: choose another output_dir."
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
        ours |= {*_FILES, TENSORBOARD_FOLDER} - {CHECKPOINT_FILE}
    # A store on disk is opened, and checked, before the run begins.
    others = sorted(set(os.listdir(folder)) - ours - {CLIENT_STATES_FOLDER})
    if others:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise refusal(
            folder,
            "holds files but no checkpoint of tff_drift: "
            f"{checks.shortened(shown)}. Choose an empty or a new folder.",
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
