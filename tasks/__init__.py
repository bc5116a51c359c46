"""Federated tasks: clients' data, a model, a loss and metrics.

A task of a paper, by name:

task = tasks.load("digits", alpha=0.1)
task.train.training_data(task.train.client_ids[0], round_number=0)
task.model_fn()

A task on data of one's own:

task = tasks.from_frame(frame, client_id="hospital", label="diagnosis")
"""

from tasks.definitions import Clients, Option, Task, TaskDefinition
from tasks.example_checks import DataError
from tasks.registry import describe, load, names
from tasks.sqlite_writer import write_sqlite
from tasks.user_data import from_folder, from_frame, from_sqlite

__all__ = [
    "Clients",
    "DataError",
    "Option",
    "Task",
    "TaskDefinition",
    "describe",
    "from_folder",
    "from_frame",
    "from_sqlite",
    "load",
    "names",
    "write_sqlite",
]
