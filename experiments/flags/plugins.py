"""Files of the user that register algorithms, tasks and presets."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Sequence

from experiments.flags import errors
from tff_drift import module_source, system


def load(paths: Sequence[str]) -> None:
    """Imports Python files, once each.

    Args:
      paths: The files. Each calls `tff_drift.algorithms.register`, `tasks.register` or
        `experiments.presets.register` when it is imported.

    Raises:
      UserError: If there is no such file, it is not a Python file, it exits, or it
        fails; the message is one line with the file's name and line.
    """
    for path in map(pathlib.Path, paths):
        name = f"{errors.PLUGIN}{path.resolve()}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise errors.UserError(f"--plugin: {str(path)!r} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except SystemExit as end:
            del sys.modules[name]
            raise errors.UserError(
                f"--plugin: {str(path)!r} ends the program when it is imported (exit "
                f"status {end.code!r}). Take that out of it."
            ) from end
        except Exception as error:
            del sys.modules[name]
            if isinstance(error, ImportError) and system.lacks_tff(error):
                raise
            raise errors.UserError(
                f"--plugin: {module_source.mistake(error, path)}"
            ) from error
