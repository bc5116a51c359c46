"""What tasks and algorithms there are, known without importing TensorFlow.

Importing TensorFlow Federated takes seconds, and an answer to `--help`, to `list`
or to a misspelt name should not. `catalogue.json` therefore repeats what the
packages say of themselves. It is written by

    python -m experiments.catalogue

whenever a task, an algorithm, an option or a default changes. A test, and every
training, checks that it says what the packages say.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

_PATH = pathlib.Path(__file__).with_name("catalogue.json")


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a task, see `tasks.Option`."""

    name: str
    kind: str
    default: Any
    help: str
    may_be_none: bool
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
      name: Its name.
      description: One sentence on it.
      options: Its options by name.
    """

    name: str
    description: str
    options: Mapping[str, Option]


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter of an algorithm, see `experiments.algorithms`."""

    name: str
    default: Any
    kind: str
    help: str
    may_be_none: bool
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm.

    Attributes:
      name: Its name.
      paper: Authors, year and title of the paper that defines it.
      url: The paper's address.
      weighting: How clients are weighted by default.
      sends_gradients: Whether clients send gradients, not differences of models.
      has_client_rate: Whether clients take local steps.
      has_server_rate: Whether the server's step has a learning rate.
      hyperparameters: Its hyperparameters by name.
    """

    name: str
    paper: str
    url: str
    weighting: str
    sends_gradients: bool
    has_client_rate: bool
    has_server_rate: bool
    hyperparameters: Mapping[str, Hyperparameter]


@functools.cache
def _content() -> dict[str, Any]:
    return json.loads(_PATH.read_text(encoding="utf-8"))


@functools.cache
def tasks() -> Mapping[str, Task]:
    """Returns the tasks by name, in the order to list them."""
    return {
        entry["name"]: Task(
            **{
                **entry,
                "options": {
                    option["name"]: Option(
                        **{**option, "choices": tuple(option["choices"])}
                    )
                    for option in entry["options"]
                },
            }
        )
        for entry in _content()["tasks"]
    }


@functools.cache
def algorithms() -> Mapping[str, Algorithm]:
    """Returns the algorithms by name, in the order to list them."""
    return {
        entry["name"]: Algorithm(
            **{
                **entry,
                "hyperparameters": {
                    hyperparameter["name"]: Hyperparameter(
                        **{
                            **hyperparameter,
                            "choices": tuple(hyperparameter["choices"]),
                        }
                    )
                    for hyperparameter in entry["hyperparameters"]
                },
            }
        )
        for entry in _content()["algorithms"]
    }


def describe_packages() -> dict[str, Any]:
    """Returns what the packages say of themselves; imports TensorFlow."""
    import tasks as task_package
    from experiments import algorithms as registry

    definitions = map(task_package.describe, task_package.names())
    return {
        "tasks": [
            {
                "name": definition.name,
                "description": definition.description,
                "options": [
                    # JSON knows lists, not tuples.
                    {**dataclasses.asdict(option), "choices": list(option.choices)}
                    for option in definition.options
                ],
            }
            for definition in definitions
        ],
        "algorithms": [
            {
                "name": name,
                "paper": algorithm.method.paper,
                "url": algorithm.method.url,
                "weighting": algorithm.method.weighting,
                "sends_gradients": algorithm.method.sends_gradients,
                "has_client_rate": algorithm.method.has_client_rate,
                "has_server_rate": algorithm.method.has_server_rate,
                "hyperparameters": [
                    {
                        "name": option.name,
                        "default": default,
                        "kind": option.kind,
                        "help": option.help,
                        "may_be_none": option.may_be_none,
                        "choices": list(option.choices),
                    }
                    for option, default in algorithm.options.items()
                ],
            }
            for name, algorithm in registry.ALGORITHMS.items()
        ],
    }


def check_current() -> None:
    """Raises if the catalogue does not say what the packages say.

    Raises:
      RuntimeError: If a task or an algorithm has changed since it was written.
    """
    if describe_packages() != _content():
        raise RuntimeError(
            f"{_PATH.name} is out of date: a task or an algorithm has changed. Write "
            "it anew with: python -m experiments.catalogue"
        )


def write() -> None:
    """Writes the catalogue anew."""
    text = json.dumps(describe_packages(), indent=2, ensure_ascii=False)
    _PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
