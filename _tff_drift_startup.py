"""Prepares the process for TensorFlow Federated just before it is imported.

Where tff_drift is installed, Python loads this module when it starts (by the file
`_tff_drift_startup.pth`), so that programs may import TensorFlow and TFF before
tff_drift, and `import tasks` finds the tasks of the wheel. It imports nothing and acts
on these only: other programs pay one comparison for each module that they import. A
program that uses TensorFlow alone finds it as it is, but for its lines at the start.
"""

from __future__ import annotations

import os
import sys

# For annotations only; a type checker takes it as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Sequence
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
        of_tff_drift = "tff_drift" in sys.modules
        from importlib.machinery import PathFinder

        from tff_drift import _tff_import

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def prepare_and_load(module: types.ModuleType) -> None:
            if name == _TENSORFLOW:
                _tff_import.before_tensorflow(module, choose_keras=of_tff_drift)
                load(module)
            else:
                _tff_import.before()
                load(module)
                _tff_import.after()

        # Looking for a module prepares nothing yet: many programs only ask.
        spec.loader.exec_module = prepare_and_load  # type: ignore[method-assign]
        return spec


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
