"""Federated tasks: clients' data, a model, a loss and metrics.

A task of a paper, by name:

    task = tasks.load("digits", alpha=0.1)
    task.train.training_data(task.train.client_ids[0], round_number=0)
    task.model_fn()

A task on your own data:

    task = tasks.from_frame(frame, client_id="hospital", label="diagnosis")

What the tasks are called and what can be chosen is known without TensorFlow, which is
imported when a task is loaded.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tasks.options import Option
from tasks.registry import TaskDefinition, describe, names, register
from tff_drift import imports  # Prepares the process for TensorFlow Federated.

if TYPE_CHECKING:
    from tasks.definitions import Clients, Task
    from tasks.loading import load
    from tasks.own.user_data import from_folder, from_frame, from_sqlite
    from tasks.own.user_images import from_image_folder
    from tasks.own.user_json import from_json
    from tasks.partitioning import partition
    from tasks.sources.example_checks import DataError
    from tasks.sources.sqlite_writer import write_sqlite

__all__ = [
    "Clients",
    "DataError",
    "Option",
    "Task",
    "TaskDefinition",
    "describe",
    "from_folder",
    "from_frame",
    "from_image_folder",
    "from_json",
    "from_sqlite",
    "load",
    "names",
    "partition",
    "register",
    "write_sqlite",
]

# Of what needs TensorFlow: the module that has it.
_MODULES = {
    "Clients": "definitions",
    "DataError": "sources.example_checks",
    "Task": "definitions",
    "from_folder": "own.user_data",
    "from_frame": "own.user_data",
    "from_image_folder": "own.user_images",
    "from_json": "own.user_json",
    "from_sqlite": "own.user_data",
    "load": "loading",
    "partition": "partitioning",
    "write_sqlite": "sources.sqlite_writer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with imports.on_first_use():
        module = importlib.import_module(f"tasks.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value
