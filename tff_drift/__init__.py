"""Control of client drift in federated learning, on TensorFlow Federated.

Packages:

*   `tff_drift.algorithms`: `build_*` functions that return a
    `tff.learning.templates.LearningProcess`.
*   `tff_drift.aggregators`: stateful aggregation factories for these and for
    TFF's own builders.
*   `tff_drift.client_states`: stores of the memory that clients keep.
*   `tff_drift.client_works`: local training, written as init / step / finish.
*   `tff_drift.layers`: Keras layers whose training is reproducible and fast.
*   `tff_drift.optimizers`: server optimizers as published, and schedules.
*   `tff_drift.simulation`: rounds, sampling, evaluation, checkpoints, metrics.
*   `tff_drift.execution`: execution contexts.
"""

import sys

if not (3, 9) <= sys.version_info[:2] <= (3, 11):
    raise ImportError(
        "tff_drift needs Python 3.9, 3.10 or 3.11, because TensorFlow Federated "
        f"0.87 does; this is Python {sys.version.split()[0]}. Create a virtual "
        "environment with one of them, for example: python3.11 -m venv .venv"
    )

# These imports need a supported Python.
from tff_drift import (
    aggregators,
    algorithms,
    client_states,
    client_works,
    execution,
    layers,
    optimizers,
    simulation,
)
from tff_drift.execution import native as _native

__all__ = [
    "aggregators",
    "algorithms",
    "client_states",
    "client_works",
    "execution",
    "layers",
    "optimizers",
    "simulation",
]
__version__ = "0.1.0"

_native.release_context_at_exit()
