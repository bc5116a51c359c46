"""Prepares the process for TensorFlow Federated just before it is imported.

Where tff_drift is installed, Python loads this module when it starts (by the file
`_tff_drift_startup.pth`), so that programs may import TensorFlow and TFF before
tff_drift, and `import tasks` finds the tasks of the wheel. It imports nothing and acts
on these only: other programs pay one comparison for each module that they import. A
program that uses TensorFlow alone finds it as it is, but for its lines at the start:
tff_drift itself is not imported for it, and with that not the Keras of TFF chosen.
"""

from __future__ import annotations

import os
import sys

# For annotations only; a type checker takes it as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

_TENSORFLOW, _TFF = "tensorflow", "tensorflow_federated"
_PROGRAMS = ("tasks", "experiments")


class _TffFinder:
    """Finds TFF and TensorFlow where Python would, and wraps their loading."""

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in (_TENSORFLOW, _TFF):
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module
        prepare_and_load = _with_tff_drift(load) if name == _TFF else _quietly(load)

        # Looking for a module prepares nothing yet: many programs only ask.
        spec.loader.exec_module = prepare_and_load  # type: ignore[method-assign]
        return spec


def _with_tff_drift(
    load: Callable[[types.ModuleType], None],
) -> Callable[[types.ModuleType], None]:
    from tff_drift import _tff_import

    def prepare_and_load(tff: types.ModuleType) -> None:
        _tff_import.before()
        load(tff)
        _tff_import.after()

    return prepare_and_load


def _quietly(
    load: Callable[[types.ModuleType], None],
) -> Callable[[types.ModuleType], None]:
    def prepare_and_load(tensorflow: types.ModuleType) -> None:
        _quieten(tensorflow)
        load(tensorflow)

    return prepare_and_load


def _quieten(tensorflow: types.ModuleType) -> None:
    """Keeps TensorFlow from telling of processors and graphics cards at every start.

    It does so when it is loaded, some of it as errors: by the time a program imports
    TFF the lines are written.

    Args:
      tensorflow: The module, still empty.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    _apply_log_level_to_absl(tensorflow)


def _apply_log_level_to_absl(tensorflow: types.ModuleType) -> None:
    """Makes all of TensorFlow follow TF_CPP_MIN_LOG_LEVEL.

    From 2.17 on, a part of TensorFlow writes through C++'s absl, which does not look
    at that variable: each compilation of a computation tells of graphics cards.
    Python has no other way to `absl::SetMinLogLevel`, and it has no full effect once
    TensorFlow is loaded.

    Args:
      tensorflow: The module, still empty.
    """
    import contextlib
    import ctypes
    import pathlib
    import re

    with contextlib.suppress(OSError, AttributeError, ValueError, StopIteration):
        folder = pathlib.Path(tensorflow.__path__[0])
        config = (folder / "include/absl/base/config.h").read_text()
        release = re.search(r"define ABSL_LTS_RELEASE_VERSION (\d+)", config)
        namespace = f"lts_{release[1] if release else ''}"
        library = ctypes.CDLL(str(next(folder.glob("libtensorflow_framework.so*"))))
        set_level = getattr(
            library,
            f"_ZN4absl{len(namespace)}{namespace}14SetMinLogLevel"
            "ENS0_18LogSeverityAtLeastE",
        )
        set_level(int(os.environ["TF_CPP_MIN_LOG_LEVEL"]))


class _ProgramsFinder:
    """Finds `tasks` and `experiments` in the wheel, where nothing else is called so.

    The wheel keeps them in a folder of its own: names as generic have no place among
    the installed packages, and a module of the user's that is called so is found first.
    """

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in _PROGRAMS:
            return None
        from importlib.machinery import PathFinder

        here = os.path.dirname(os.path.abspath(__file__))
        folder = os.path.join(here, "tff_drift", "_programs")
        return PathFinder.find_spec(name, [folder], target)


def install() -> None:
    """Puts the finders around Python's own, once per process."""
    if not any(
        getattr(finder, "__name__", "") == _TffFinder.__name__
        for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _TffFinder)
        # The last one: a module of the user's comes first.
        sys.meta_path.append(_ProgramsFinder)
