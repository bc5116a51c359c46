"""The command `list`: the tasks, the algorithms and the presets."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import tasks
from experiments.commands.command import Command
from experiments.flags import declarations, errors, fit, methods, presets
from experiments.flags import published_rates as published

_UNBROKEN = "\N{NO-BREAK SPACE}"


def _run(given: dict[str, Any]) -> None:
    for word in given["lists"]:
        if word not in _LISTS:
            raise errors.unknown("list", word, tuple(_LISTS))
    shown = [name for name in _LISTS if name in given["lists"] or not given["lists"]]
    print("\n\n".join(_LISTS[name]() for name in shown))


def _entry(name: str, *texts: str) -> str:
    """Returns a name with texts to its right, each in lines of their own."""
    wrapped = [textwrap.fill(text, 58, break_on_hyphens=False) for text in texts]
    right = textwrap.indent("\n".join(wrapped), " " * 30)
    return f"  {name:27} {right.strip()}".replace(_UNBROKEN, " ")


def _show(values: Mapping[str, Any]) -> str:
    return " ".join(f"--{name}={declarations.show(v)}" for name, v in values.items())


def _list_tasks() -> str:
    lines = ["Tasks (--task), with the defaults of their flags:"]
    for name in tasks.names():
        task = tasks.describe(name)
        of_task = {option.name: option.default for option in task.options}
        flags = {flag: of_task[f.option] for flag, f in fit.task_flags(name).items()}
        flags.update(published.of_task(name).flags())
        lines.append(_entry(name, task.description, _show(flags)))
    return "\n\n".join(lines)


def _list_algorithms() -> str:
    lines = ["Algorithms (--algorithm, --algorithms), with their options:"]
    for name, method in methods.methods().items():
        values = {flag: each.value for flag, each in fit.method_flags(name).items()}
        values.update({flag: each.default for flag, each in method.options.items()})
        lines.append(_entry(name, f"{method.paper}. {method.url}", _show(values)))
    lines.append("Default learning rates, of the clients / of the server:")
    for task in tasks.names():
        texts = []
        for name, method in methods.methods().items():
            rates = published.rates(task, name)
            client = f"{rates.client:g}" if method.has_client_rate else "-"
            server = f"{rates.server:g}" if method.has_server_rate else "-"
            text = f"{name} {client} / {server} {_show(rates.hyperparameters)}"
            # Lines break between algorithms only.
            texts.append(text.strip().replace(" ", _UNBROKEN))
        lines.append(_entry(task, "; ".join(texts)))
    return "\n\n".join(lines)


def _list_presets() -> str:
    lines = ["Presets (tff-drift preset NAME), with their parts:"]
    for name, preset in presets.PRESETS.items():
        parts = f"--parts={','.join(preset.parts)}"
        lines.append(_entry(name, f"{preset.summary} {preset.source}", parts))
    return "\n\n".join(lines)


_LISTS = {
    "tasks": _list_tasks,
    "algorithms": _list_algorithms,
    "presets": _list_presets,
}
_ARGUMENT = {
    "nargs": "*",
    "default": (),
    "metavar": "LIST",
    "help": "tasks, algorithms or presets; all if none is named.",
}
COMMAND = Command(
    "list",
    "show the tasks and the algorithms, with their options and defaults",
    """\
Shows the tasks with their options and default settings, the algorithms with their
papers, options and default learning rates, and the presets with their parts.
""",
    _run,
    {"lists": _ARGUMENT},
)
