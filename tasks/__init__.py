"""Federated tasks: clients' data, a model, a loss and metrics, by name.

task = tasks.load("digits", alpha=0.1)
task.train.training_data(task.train.client_ids[0], round_number=0)
task.model_fn()
"""

from tasks.definitions import Option, Task, TaskDefinition
from tasks.registry import describe, load, names

__all__ = ["Option", "Task", "TaskDefinition", "describe", "load", "names"]
