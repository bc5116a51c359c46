"""The way to the programs that stand beside the library: `tasks`, `experiments`.

A checkout has both packages at its top. The wheel keeps them in a folder of its own,
because names as generic have no place among the installed packages.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pathlib
import sys
from typing import NoReturn

_NAMES = ("tasks", "experiments")
# Of the wheel; a checkout has none.
_FOLDER = pathlib.Path(__file__).with_name("_programs")


def make_importable() -> None:
    """Makes `import tasks` find the wheel's, where nothing else is called so."""
    if _FOLDER.is_dir() and str(_FOLDER) not in sys.path:
        # The last one: a module of the user's comes first.
        sys.path.append(str(_FOLDER))


def add_to_path() -> None:
    """Makes `import tasks` and `import experiments` find those of tff_drift first.

    Raises:
      ImportError: If another package of such a name has been imported already.
    """
    folder = _FOLDER if _FOLDER.is_dir() else _FOLDER.parents[1]
    for name in _NAMES:
        known = getattr(sys.modules.get(name), "__file__", None) or str(folder / name)
        if folder not in pathlib.Path(known).parents:
            raise ImportError(
                f"the name {name!r} is taken by {known}, which this program has "
                f"imported. Call tff_drift.programs.add_to_path() before it, or "
                f"rename it."
            )
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))


def run() -> NoReturn:
    """Runs the command `tff-drift`, and ends the program."""
    add_to_path()
    end(importlib.import_module("experiments.main").run())


def end(status: int) -> NoReturn:
    """Ends this program at once, after what is registered with `atexit`.

    Python takes its modules apart at its end, which with TensorFlow's takes seconds:
    too long for who has pressed Ctrl-C, and of no use to anybody.

    Args:
      status: The exit status.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
