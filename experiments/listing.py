"""The lists of tasks, algorithms and presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import catalogue, defaults, errors, flag_table
from experiments.help_texts import two_columns
from experiments.presets import registry

_TASKS = "tasks"
_ALGORITHMS = "algorithms"
_PRESETS = "presets"
_UNBROKEN = "\N{NO-BREAK SPACE}"


def print_lists(words: Sequence[str]) -> None:
    """Prints the lists asked for.

    Args:
      words: "tasks", "algorithms" or "presets"; none for all.

    Raises:
      UserError: If there is no such list.
    """
    lists = {
        _TASKS: list_tasks,
        _ALGORITHMS: list_algorithms,
        _PRESETS: list_presets,
    }
    for word in words:
        if word not in lists:
            raise errors.unknown("list", word, tuple(lists))
    shown = [name for name in lists if not words or name in words]
    print("\n".join(lists[name]() for name in shown), end="")


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


def list_presets() -> str:
    """Returns the presets with their sources and parts."""
    lines = ["Presets (tff-drift preset NAME), with their parts:\n"]
    for name, preset in registry.PRESETS.items():
        text = two_columns(name, f"{preset.summary} {preset.source}")
        lines.append(text + two_columns("", f"--parts={','.join(preset.parts)}"))
    return "\n".join(lines)


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
