"""Finds tasks' data, and says what to do where it is absent."""

from __future__ import annotations

import os
import pathlib

from tff_drift import checks


def folder(cache_dir: str | os.PathLike[str] | None) -> pathlib.Path:
    """Returns the folder of the data.

    Args:
      cache_dir: The folder as it was given; `None` is TFF's own, `~/.tff`.
    """
    return pathlib.Path("~/.tff" if cache_dir is None else cache_dir).expanduser()


def ways_to_go_on(fetched: str, folder: str, stand_in: str) -> str:
    """Returns the ways, with the keywords of `tasks.load` and the flags of programs.

    Args:
      fetched: What is downloaded, and how.
      folder: What a folder of the user must hold.
      stand_in: The small data to try the task on.
    """
    return (
        f"There are three ways to go on: download=True (--download) fetches {fetched}, "
        "on a machine with network; cache_dir=FOLDER (--cache_dir) names a folder "
        f"{folder}; synthetic=True (--synthetic) runs on {stand_in}."
    )


def absent(task_name: str, path: pathlib.Path, ways: str) -> FileNotFoundError:
    """Returns the error for a file that is not there.

    Args:
      task_name: The task that needs it.
      path: The file.
      ways: The ways to go on.
    """
    return FileNotFoundError(
        f"Task {checks.shown(task_name)} needs the file {checks.shortened(path)}, "
        f"which does not exist. {ways}"
    )
