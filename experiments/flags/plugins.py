"""Files of the user that register algorithms, tasks and presets."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

from experiments.flags import errors
from tff_drift import module_source, registrations, system

# What files of modules held when they were loaded. A module that is reloaded has a new
# specification.
_SOURCES: dict[str, tuple[ModuleSpec | None, bytes]] = {}
# The modules that registered nothing.
_IDLE: set[str] = set()


def load(paths: Sequence[str]) -> None:
    """Imports Python files, once each.

    Args:
      paths: The files. Each calls `tff_drift.algorithms.register`, `tasks.register` or
        `experiments.presets.register` when it is imported.

    Raises:
      UserError: If there is no such file, it is not a Python file, it exits, or it
        fails, or it is another one than was loaded before; the message is one line with
        the file's name and line.
    """
    errors.IDLE_PLUGINS.clear()
    for path in map(pathlib.Path, paths):
        name = f"{errors.PLUGIN}{path.resolve()}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise errors.UserError(f"--plugin: {str(path)!r} is not a Python file.")
        if name in sys.modules:
            check_unchanged("--plugin", sys.modules[name])
            _tell_if_idle(name, path)
            continue
        before = registrations.num_asked()
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        check_unchanged("--plugin", module)
        try:
            spec.loader.exec_module(module)
        except SystemExit as end:
            _forget(name)
            raise errors.UserError(
                f"--plugin: {str(path)!r} ends the program when it is imported (exit "
                f"status {end.code!r}). Take that out of it."
            ) from end
        except Exception as error:
            _forget(name)
            if isinstance(error, ImportError) and system.lacks_tff(error):
                raise
            raise errors.UserError(
                f"--plugin: {module_source.mistake(error, path)}"
            ) from error
        if registrations.num_asked() == before:
            _IDLE.add(name)
        _tell_if_idle(name, path)


def _tell_if_idle(name: str, path: pathlib.Path) -> None:
    """Has errors of unknown names say that a file registers none."""
    if name in _IDLE:
        errors.IDLE_PLUGINS.append(str(path))


def _forget(name: str) -> None:
    del sys.modules[name], _SOURCES[name]


def check_unchanged(flag: str, module: types.ModuleType) -> None:
    """Raises a `UserError` if a module's file is another than it was at the first call.

    In a notebook files are edited between commands, and Python keeps what it loaded.

    Args:
      flag: The flag that names the module, for the message.
      module: The module.
    """
    path = getattr(module, "__file__", None)
    try:
        now = pathlib.Path(path or "").read_bytes()
    except OSError:  # Not every module has a file.
        return
    spec, then = _SOURCES.get(module.__name__, (None, now))
    if spec is not module.__spec__:
        _SOURCES[module.__name__] = module.__spec__, now
    elif now != then:
        raise errors.UserError(
            f"{flag}: {path!r} has changed since it was loaded. Restart the "
            "program (in a notebook, the kernel)."
        )
