"""The way to the programs that stand beside the library: `tasks`, `experiments`.

A checkout has both packages at its top. The wheel keeps them in a folder of its own,
because names as generic have no place among the installed packages.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

_NAMES = ("tasks", "experiments")


def add_to_path() -> None:
    """Makes `import tasks` and `import experiments` find those of tff_drift.

    Raises:
      ImportError: If another package of such a name has been imported already.
    """
    folder = pathlib.Path(__file__).with_name("_programs")
    if not folder.is_dir():
        folder = pathlib.Path(__file__).parents[1]  # A checkout.
    for name in _NAMES:
        known = getattr(sys.modules.get(name), "__file__", None) or str(folder / name)
        if folder not in pathlib.Path(known).parents:
            raise ImportError(
                f"the name {name!r} is taken by {known}, which this program has "
                f"imported. Call tff_drift.programs.add_to_path() before it, or "
                f"rename it."
            )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def run() -> int:
    """Runs the command `tff-drift`; returns its exit status."""
    add_to_path()
    return importlib.import_module("experiments.main").run()
