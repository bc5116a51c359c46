"""The tasks by name."""

from __future__ import annotations

import difflib
import types
from collections.abc import Collection
from typing import Any

from tasks import (
    cifar10,
    cifar100,
    definitions,
    digits,
    emnist_autoencoder,
    emnist_character,
    emnist_digits,
    emnist_letters,
    quadratic,
    shakespeare_character,
    shakespeare_character_gru,
    stackoverflow_tag,
    stackoverflow_word,
)
from tff_drift import checks

_DEFINITIONS = {
    module.TASK.name: module.TASK
    for module in (
        digits,
        quadratic,
        emnist_character,
        emnist_autoencoder,
        emnist_digits,
        emnist_letters,
        cifar10,
        cifar100,
        shakespeare_character,
        shakespeare_character_gru,
        stackoverflow_word,
        stackoverflow_tag,
    )
}


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those that need no data first."""
    return tuple(_DEFINITIONS)


def _unknown(kind: str, name: Any, known: Collection[str]) -> ValueError:
    nearest = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
    return ValueError(
        f"Unknown {kind} {name!r}.{hint} Known are {', '.join(map(repr, known))}."
    )


def describe(name: str) -> definitions.TaskDefinition:
    """Returns a task's description, options and their defaults, without its data.

    Args:
      name: One of `names()`.

    Returns:
      The task's definition.

    Raises:
      ValueError: If the task is unknown; the message has the nearest names.
    """
    if name not in _DEFINITIONS:
        raise _unknown("task", name, names())
    return _DEFINITIONS[name]


def load(
    name: str, *, cache_dir: str | None = None, seed: int = 0, **options: Any
) -> definitions.Task:
    """Loads a task.

    Args:
      name: One of `names()`.
      cache_dir: The folder with the unpacked SQLite files of TFF's data sets;
        `None` is TFF's own, `~/.tff`. Tasks that need no file ignore it.
      seed: The seed of partitions, draws of clients, shuffles and initial
        weights. The task is a pure function of its arguments and its data.
      **options: Options of the task, see `describe(name).options`.

    Returns:
      The task. A client's data is read when it is first used.

    Raises:
      FileNotFoundError: If the task's file is absent and not to be downloaded.
      OSError: If the file cannot be downloaded.
      TypeError: If an argument has the wrong type.
      ValueError: If the task or an option is unknown, an option is out of its
        range, or the task's file is damaged or another data set's.
    """
    definition = describe(name)
    checks.check_integer("seed", seed, at_least=0)
    known = {option.name: option for option in definition.options}
    for option_name, value in options.items():
        if option_name not in known:
            raise _unknown(f"option of task {name!r}:", option_name, known)
        known[option_name].check(value)
    values = types.MappingProxyType(
        {
            option.name: options.get(option.name, option.default)
            for option in definition.options
        }
    )
    clients, model_fn = definition.build(cache_dir, int(seed), values)
    return definitions.Task(
        name=name,
        description=definition.description,
        train=clients.train,
        test=clients.test,
        validation=clients.validation,
        model_fn=model_fn,
        accuracy_metric=definition.accuracy_metric,
        higher_is_better=definition.higher_is_better,
        seed=int(seed),
        options=values,
    )
