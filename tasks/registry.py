"""The registry of tasks and of their options; without TensorFlow.

A task of this package is a module of `papers` or `own` with a function `build` and, at
its foot, a `TASK = TaskDefinition(...)`. Importing such a module takes seconds, so its
definition is read from its source. Tasks from outside join in by `register`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tasks.options import Option
from tff_drift import checks, registrations
from tff_drift.module_source import Function, ModuleSource

__all__ = ["Option", "TaskDefinition", "describe", "names", "register", "unknown"]


# What `tasks.load` takes besides options.
_OF_LOAD = ("name", "cache_dir", "seed")


@dataclasses.dataclass(frozen=True)
class TaskDefinition:
    """A task before it is loaded.

    Attributes:
      name: The task's name.
      description: One sentence on the data and the model.
      options: The task's options, in the order to list them.
      build: Returns the clients and the model function (`tasks.Clients` and a
        function without arguments), given `cache_dir`, `seed` and a mapping with the
        value of every option; or its dotted path, to import when the task is loaded.
      accuracy_metric: The name of the headline metric among the model's metrics.
      higher_is_better: Whether a larger headline metric is better.
      files: The data files that it needs; empty if it needs none.

    Raises:
      TypeError: If one has the wrong type, or `build` does not take what it is given.
      ValueError: If a string is empty, the name cannot be that of a folder, two options
        have one name, an option is called as an argument of `tasks.load`, or its
        default is none of its values.
    """

    name: str
    description: str
    options: tuple[Option, ...]
    build: Callable[..., tuple[Any, Any]] | str
    accuracy_metric: str = "accuracy"
    higher_is_better: bool = True
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "description", "accuracy_metric"):
            checks.check_text(name, getattr(self, name))
        # A name may be of folders within each other, as "mine/letters".
        parts = self.name.split("/")
        for part in parts if all(parts) else [self.name]:
            checks.check_file_name("name of a task", part)
        if not isinstance(self.options, tuple) or not all(
            isinstance(option, Option) for option in self.options
        ):
            raise TypeError(
                "options must be a tuple of tasks.Option, found "
                f"{checks.shown(self.options)}."
            )
        self._check_options()
        if callable(self.build):
            _check_arguments(self.build)
        else:
            checks.check_instance("build", self.build, str, "a function or its path")
        checks.check_flag("higher_is_better", self.higher_is_better)
        if not isinstance(self.files, tuple) or not all(
            isinstance(each, str) for each in self.files
        ):
            raise TypeError(
                f"files must be a tuple of names, found {checks.shown(self.files)}."
            )

    def _check_options(self) -> None:
        about = f"options of task {checks.shown(self.name)}"
        for which in ("name", "flag"):
            values = [getattr(option, which) for option in self.options]
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(
                        f"{about} must have different {which}s, found {value!r} more "
                        "than once."
                    )
        for option in self.options:
            if option.name in _OF_LOAD:
                raise ValueError(
                    f"{about}: {option.name!r} is an argument of tasks.load itself. "
                    "Choose another name."
                )
            if option.default is not None:
                option.check(option.default, f"{about}: default of {option.name!r}")

    def builder(self) -> Callable[..., tuple[Any, Any]]:
        """Returns the function `build`, imported."""
        if callable(self.build):
            return self.build
        module, _, function = self.build.rpartition(".")
        return getattr(importlib.import_module(module), function)


def _check_arguments(build: Callable[..., Any]) -> None:
    """Raises a `TypeError` if a function does not take what `build` is given."""
    try:
        signature = inspect.signature(build)
    except ValueError:  # Not all that C code defines has one.
        return
    try:
        signature.bind(None, 0, {})
    except TypeError as error:
        raise TypeError(
            "build must take cache_dir, seed and options, found a function of "
            f"{signature}: {error}."
        ) from None


# What definitions are made of.
_IMPORTABLE = ("tasks.options", "tasks.registry", "tff_drift.value_types")
_REGISTERED: dict[str, TaskDefinition] = {}


@functools.cache
def _of_this_package() -> Mapping[str, TaskDefinition]:
    """Returns the definitions at the feet of the package's modules, by name."""
    found = []
    folder = pathlib.Path(__file__).parent
    for path in sorted((*folder.glob("papers/*.py"), *folder.glob("own/*.py"))):
        # Most modules have none, and need not be parsed.
        if "\nTASK" in path.read_text(encoding="utf-8"):
            name = f"tasks.{path.parent.name}.{path.stem}"
            found.append(ModuleSource(name, _dotted_path, _IMPORTABLE)["TASK"])
    # Those that anybody can load come first.
    found.sort(key=lambda each: (bool(each.files), each.name))
    return {each.name: each for each in found}


def _dotted_path(source: ModuleSource, function: Function) -> str:
    return f"{source.name}.{function.name}"


def _definitions() -> Mapping[str, TaskDefinition]:
    return {**_of_this_package(), **_REGISTERED}


def register(definition: TaskDefinition) -> TaskDefinition:
    """Adds a task from outside of this package to those that `tasks.load` knows.

    Args:
      definition: The task.

    Returns:
      The task.

    Raises:
      TypeError: If it is not a `TaskDefinition`.
      ValueError: If another task has its name, unless the module that registered that
        one, such as a cell of a notebook, does so anew.
    """
    if not isinstance(definition, TaskDefinition):
        raise TypeError(
            f"definition must be a TaskDefinition, found {type(definition).__name__}."
        )
    other = _definitions().get(definition.name)
    if not registrations.may_be("task", definition.name, definition, other):
        raise ValueError(
            f"a task named {checks.shown(definition.name)} is registered already. "
            "Choose another name."
        )
    _REGISTERED[definition.name] = definition
    return definition


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those that need no files first."""
    return tuple(_definitions())


def unknown(kind: str, name: Any, known: Collection[str]) -> ValueError:
    """Returns the error for a name that does not exist, with the nearest names.

    Args:
      kind: What the name should name, such as "task".
      name: The name.
      known: The names that exist.
    """
    nearest = difflib.get_close_matches(str(name)[:100], known, n=3, cutoff=0.4)
    hint = (
        f" Did you mean {checks.shortened(' or '.join(map(repr, nearest)))}?"
        if nearest
        else ""
    )
    return ValueError(
        f"Unknown {kind} {checks.shown(name)}.{hint} Known are "
        f"{checks.listed(map(repr, known))}."
    )


def describe(name: str) -> TaskDefinition:
    """Returns a task's description, options and their defaults, without its data.

    Args:
      name: One of `names()`.

    Returns:
      The task's definition.

    Raises:
      ValueError: If the task is unknown; the message has the nearest names.
    """
    if not isinstance(name, str) or name not in _definitions():
        raise unknown("task", name, names())
    return _definitions()[name]
