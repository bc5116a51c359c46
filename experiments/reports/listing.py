"""The tasks, the algorithms and the presets, as lists; without TensorFlow."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import tasks
from experiments.flags import declarations
from experiments.flags import published_rates as published
from experiments.flags.flag import ALGORITHM, TASK
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import SCALES, Scale
from tff_drift import from_source, value_types

_UNBROKEN = "\N{NO-BREAK SPACE}"


def _entry(name: str, *texts: str) -> str:
    """Returns a name with texts to its right, each in lines of their own."""
    wrapped = [textwrap.fill(text, 58, break_on_hyphens=False) for text in texts]
    right = textwrap.indent("\n".join(wrapped), " " * 30)
    return f"  {name:27} {right.strip()}".replace(_UNBROKEN, " ")


def _show(values: Mapping[str, Any]) -> str:
    return " ".join(f"--{name}={value_types.show(v)}" for name, v in values.items())


def _defaults(of: str, name: str) -> dict[str, Any]:
    options = declarations.options(of, name)
    return {flag: option.default for flag, option in options.items()}


def _list_tasks() -> str:
    lines = ["Tasks (--task), with the defaults of their flags:"]
    for name in tasks.names():
        task = tasks.describe(name)
        values = {**_defaults(TASK, name), **published.of_task(name).flags()}
        files = (
            f"Needs {' and '.join(task.files)}." if task.files else "Needs no files."
        )
        if "synthetic" in {option.name for option in task.options}:
            files += " --synthetic tries it without."
        lines.append(_entry(name, task.description, files, _show(values)))
    return "\n\n".join(lines)


def _list_algorithms() -> str:
    lines = ["Algorithms (--algorithm, --algorithms), with their options:"]
    for name, method in from_source.methods().items():
        values = _show(_defaults(ALGORITHM, name))
        lines.append(_entry(name, f"{method.paper}. {method.url}", values))
    lines.append("Default learning rates, of the clients / of the server:")
    for task in tasks.names():
        texts = []
        for name, method in from_source.methods().items():
            rates = published.rates(task, name)
            client = f"{rates.client:g}" if method.has_client_rate else "-"
            server = f"{rates.server:g}" if rates.server else "not tuned"
            server = server if method.has_server_rate else "-"
            text = f"{name} {client} / {server} {_show(rates.hyperparameters)}"
            # Lines break between algorithms only.
            texts.append(text.strip().replace(" ", _UNBROKEN))
        lines.append(_entry(task, "; ".join(texts)))
    return "\n\n".join(lines)


def _list_presets() -> str:
    lines = ["Presets (tff-drift preset NAME), with their parts and what they take:"]
    for name, preset in PRESETS.items():
        texts = []
        for each in SCALES:
            scale = preset.scale(each)
            texts.append(
                f"--scale={each}: about {cost(scale)} ({scale.machine}). "
                f"Parts {', '.join(scale.parts)}."
            )
        lines.append(_entry(name, f"{preset.summary} {preset.source}", *texts))
    return "\n\n".join(lines)


def cost(scale: Scale) -> str:
    """Returns how long a preset takes at a scale, and how much RAM."""
    hours = scale.hours
    time = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:,.0f} days"
    if hours < 1:
        time = f"{max(1, round(60 * hours))} min"
    return f"{time}, {scale.gigabytes:g} GB of RAM"


# What writes each list, by name.
LISTS = {
    "tasks": _list_tasks,
    "algorithms": _list_algorithms,
    "presets": _list_presets,
}
