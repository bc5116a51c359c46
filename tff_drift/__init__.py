"""Control of client drift in federated learning, on TensorFlow Federated.

Packages, each imported when it is first used:

*   `tff_drift.algorithms`: `build_*` functions that return a
    `tff.learning.templates.LearningProcess`.
*   `tff_drift.aggregators`: stateful aggregation factories for these and for
    TFF's own builders.
*   `tff_drift.client_states`: stores of the state that clients keep.
*   `tff_drift.client_works`: local training, written as init / step / finish.
*   `tff_drift.layers`: Keras layers whose training is reproducible and fast.
*   `tff_drift.models`: models of Keras 3 as models of TFF.
*   `tff_drift.optimizers`: server optimizers as published, and schedules.
*   `tff_drift.simulation`: rounds, sampling, evaluation, checkpoints, metrics.
*   `tff_drift.execution`: execution contexts.

Importing `tff_drift` itself imports neither TensorFlow nor TFF, and prepares the
process for them: on Python 3.12 and 3.13 it comes before `import tensorflow_federated`.
After it `import tasks` finds the papers' tasks, from the wheel too.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    raise ImportError(
        f"tff_drift needs Python 3.11 to 3.13; this is {sys.version.split()[0]}. "
        "Create a virtual environment with one of them, for example: "
        "python3.11 -m venv .venv"
    )

from tff_drift import _tff_exit, _tff_import, imports, programs

if TYPE_CHECKING:
    from tff_drift import (
        aggregators,
        algorithms,
        client_states,
        client_works,
        execution,
        layers,
        models,
        optimizers,
        simulation,
    )

__all__ = [
    "aggregators",
    "algorithms",
    "client_states",
    "client_works",
    "execution",
    "layers",
    "models",
    "optimizers",
    "simulation",
]
__version__ = "0.2.0"

_tff_import.prepare()
_tff_exit.release_context_at_exit()
programs.make_importable()


def __getattr__(name: str) -> types.ModuleType:
    """Imports a package when it is first used: TensorFlow takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with imports.on_first_use():
        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
