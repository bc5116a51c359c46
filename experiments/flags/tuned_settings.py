"""Files of settings that a sweep found best, which `--settings` takes."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import stored_files
from experiments.flags import declarations, validate
from experiments.flags.errors import UserError
from experiments.flags.flag import CIRCUMSTANCES, TRAIN

FORMAT = "tff_drift settings"


def content(task: str, algorithm: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file says.

    Args:
      task: The task that the settings were found on.
      algorithm: The algorithm that they were found for.
      flags: Values by names of flags.
    """
    return {
        "format": FORMAT,
        "task": task,
        "algorithm": algorithm,
        "flags": dict(flags),
    }


def of(
    paths: Sequence[str] | None, algorithms: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the flags that files set, by algorithm; none for one without a file.

    Args:
      paths: The files, each for an algorithm of its own.
      algorithms: The algorithms that are to run.

    Raises:
      UserError: If a file cannot be read, is for no algorithm of these or for the same
        as another, or has flags that do not fit its algorithm.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in algorithms}
    for path in paths or ():
        said = _read(path)
        name = said["algorithm"]
        if name not in found:
            known = " or ".join(algorithms)
            raise UserError(f"--settings: {path!r} is for {name}, not for {known}.")
        if found[name]:
            raise UserError(f"--settings has two files for {name}: {path!r}.")
        validate.check({"task": said["task"], **said["flags"]}, [name])
        found[name] = {
            flag: value for flag, value in said["flags"].items() if flag != "algorithm"
        }
    return found


def task_of(paths: Sequence[str] | None) -> str | None:
    """Returns the task that files are for, `None` without files.

    Args:
      paths: The files.

    Raises:
      UserError: If a file cannot be read, or they are for several tasks.
    """
    names = sorted({_read(path)["task"] for path in paths or ()})
    if len(names) > 1:
        raise UserError(
            f"--settings has files for several tasks, {' and '.join(names)}. Give "
            "--task, or the files of one."
        )
    return names[0] if names else None


def with_found(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of a run with those of `--settings` where they are not given.

    Args:
      given: The values of the flags that are given, by name, `settings` among them.
        Without a task or an algorithm, that of the file runs.

    Raises:
      UserError: As `of` does, or if there are several files.
    """
    paths = given["settings"]
    if len(paths) > 1:
        raise UserError("--settings must name one file for one run.")
    said = _read(paths[0])
    start = {name: said[name] for name in ("task", "algorithm")}
    name = given.get("algorithm", said["algorithm"])
    return validate.below({**start, **of(paths, [name])[name]}, given)


def for_task(paths: Sequence[str] | None, task: str) -> list[str]:
    """Returns those of some files that are for a task.

    Args:
      paths: The files.
      task: The task.

    Raises:
      UserError: If a file cannot be read.
    """
    return [path for path in paths or () if _read(path)["task"] == task]


def check_tasks(paths: Sequence[str] | None, tasks: Sequence[str]) -> None:
    """Raises unless each file is for one of some tasks.

    Args:
      paths: The files.
      tasks: The tasks that are to run.

    Raises:
      UserError: If a file cannot be read, or is for another task.
    """
    for path in paths or ():
        task = _read(path)["task"]
        if task not in tasks:
            raise UserError(
                f"--settings: {path!r} is for task {task}, not for "
                f"{' or '.join(sorted(set(tasks)))}."
            )


def note(paths: Sequence[str], wanted: str | None) -> str:
    """Returns what to say of files that were found on another task, nothing of others.

    Args:
      paths: The files.
      wanted: The task that was asked for.

    Raises:
      UserError: If a file cannot be read.
    """
    found = {path: _read(path)["task"] for path in paths} if wanted else {}
    others = [f"{path!r} was found on {t}" for path, t in found.items() if t != wanted]
    if not others:
        return ""
    return f"--settings: {', '.join(others)}; --task={wanted} runs with it."


def _read(path: str) -> dict[str, Any]:
    """Returns what a file says: a task, an algorithm and flags."""
    try:
        said = stored_files.read_json(pathlib.Path(path), stored_files.FoundSettings)
        if not said:
            raise FileNotFoundError(f"[Errno 2] No such file or directory: {path!r}")
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}")
        known = declarations.flags_of(TRAIN)
        for name in said["flags"]:
            # Where results go and what code runs is nobody's to say but the user's.
            if name in known and known[name].group == CIRCUMSTANCES:
                raise ValueError(f"it sets --{name}, which only a command may")
        return said
    except OSError as error:
        raise UserError(f"--settings: {error}.") from error
    except ValueError as error:
        raise UserError(
            f"--settings: {path!r} is not a file of `tff-drift sweep`: {error}."
        ) from error
