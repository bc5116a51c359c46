"""The lists of tasks and algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import catalogue, defaults, errors, flag_table
from experiments.help_texts import two_columns

_TASKS = "tasks"
_ALGORITHMS = "algorithms"
_UNBROKEN = "\N{NO-BREAK SPACE}"


def print_lists(words: Sequence[str]) -> None:
    """Prints the lists asked for.

    Args:
      words: "tasks" or "algorithms"; none for both.

    Raises:
      UserError: If there is no such list.
    """
    for word in words:
        if word not in (_TASKS, _ALGORITHMS):
            raise errors.unknown("list", word, (_TASKS, _ALGORITHMS))
    if not words or _TASKS in words:
        print(list_tasks(), end="")
    if not words:
        print()
    if not words or _ALGORITHMS in words:
        print(list_algorithms(), end="")


def list_tasks() -> str:
    """Returns the tasks with their default settings and options."""
    parts = ["Tasks (--task), with the defaults of their flags:\n"]
    for name, task in catalogue.tasks().items():
        settings = defaults.of_task(name)
        flags = {
            "rounds": settings.rounds,
            "clients_per_round": settings.clients_per_round,
            "rounds_per_evaluation": settings.rounds_per_evaluation,
        }
        for flag in flag_table.FLAGS.values():
            if flag.option in task.options:
                flags[flag.name] = task.options[flag.option].default
        if settings.client_epochs is not None:
            flags["client_epochs"] = settings.client_epochs
        parts.append(
            two_columns(name, task.description) + two_columns("", _show_flags(flags))
        )
    return "\n".join(parts)


def list_algorithms() -> str:
    """Returns the algorithms with papers, hyperparameters and learning rates."""
    parts = ["Algorithms (--algorithm, --algorithms), with their hyperparameters:\n"]
    for name, algorithm in catalogue.algorithms().items():
        values = {
            hyperparameter.name: hyperparameter.default
            for hyperparameter in algorithm.hyperparameters.values()
        }
        parts.append(two_columns(name, f"{algorithm.paper}. {algorithm.url}"))
        if values:
            parts[-1] += two_columns("", _show_flags(values))
    return "\n".join([*parts, _list_rates()])


def _list_rates() -> str:
    """Returns a table of default learning rates."""
    lines = ["Default learning rates, of the clients / of the server:\n"]
    for task in catalogue.tasks():
        texts = []
        for name, algorithm in catalogue.algorithms().items():
            rates = defaults.rates(task, name)
            client = f"{rates.client:g}" if algorithm.has_client_rate else "-"
            server = f"{rates.server:g}" if algorithm.has_server_rate else "-"
            others = _show_flags(rates.hyperparameters)
            entry = f"{name} {client} / {server} {others}".strip()
            # Lines break between algorithms only.
            texts.append(entry.replace(" ", _UNBROKEN))
        text = two_columns(task, "; ".join(texts))
        lines.append(text.replace(_UNBROKEN, " "))
    return "\n".join(lines)


def _show_flags(values: Mapping[str, Any]) -> str:
    return " ".join(
        f"--{name}={flag_table.show(value)}" for name, value in values.items()
    )
