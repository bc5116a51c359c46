"""The tasks, the algorithms and the presets, in brief and in full; no TensorFlow."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import tasks
from experiments.flags import declarations
from experiments.flags import published_rates as published
from experiments.flags.flag import ALGORITHM, TASK
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import SCALES, Scale
from tff_drift import from_source, value_types

_WIDTH = 88
_UNBROKEN = "\N{NO-BREAK SPACE}"


def kinds() -> dict[str, dict[str, str]]:
    """Returns what `tff-drift list` lists: by kind, each name with a few words."""
    methods = from_source.methods()
    return {
        "tasks": {name: tasks.describe(name).description for name in tasks.names()},
        "algorithms": {name: method.paper for name, method in methods.items()},
        "presets": {name: preset.summary for name, preset in PRESETS.items()},
    }


def overview(kind: str, names_alone: bool = False) -> str:
    """Returns a line for each name of a kind.

    Args:
      kind: One of `kinds()`.
      names_alone: Whether to give the names alone, as many in a line as fit.
    """
    listed = kinds()[kind]
    heading = f"{_HEADINGS[kind]}:"
    if names_alone:
        return f"{heading}\n{_text(', '.join(listed))}"
    width = max(map(len, listed))
    room = _WIDTH - width - 4
    lines = [
        f"  {name:{width}}  {textwrap.shorten(text, room, placeholder=' ...')}"
        for name, text in listed.items()
    ]
    return "\n".join([heading, *lines])


def details(name: str) -> str:
    """Returns all that is to be said of a name, of whatever kinds it is.

    Args:
      name: The name of a task, of an algorithm or of a preset.
    """
    describe = {"tasks": _task, "algorithms": _algorithm, "presets": _preset}
    return "\n\n".join(
        "\n".join([f"{name} ({kind.removesuffix('s')})", *describe[kind](name)])
        for kind, listed in kinds().items()
        if name in listed
    )


_HEADINGS = {
    "tasks": "Tasks (--task)",
    "algorithms": "Algorithms (--algorithm, --algorithms)",
    "presets": "Presets (tff-drift preset NAME)",
}


def _text(text: str) -> str:
    wrapped = textwrap.fill(text, _WIDTH - 2, break_on_hyphens=False)
    return textwrap.indent(wrapped, "  ").replace(_UNBROKEN, " ")


def _show(values: Mapping[str, Any]) -> str:
    return " ".join(f"--{name}={value_types.show(v)}" for name, v in values.items())


def _options(of: str, name: str) -> Iterator[str]:
    """Yields a line, or more, for each option with its default."""
    for flag, option in declarations.options(of, name).items():
        yield _text(f"--{flag}={value_types.show(option.default)}  {option.help}")


def _rates(task: str, algorithm: str) -> str:
    method, rates = from_source.methods()[algorithm], published.rates(task, algorithm)
    client = f"{rates.client:g}" if method.has_client_rate else "-"
    server = f"{rates.server:g}" if rates.server else "not tuned"
    server = server if method.has_server_rate else "-"
    text = f"{client} / {server} {_show(rates.hyperparameters)}"
    # Lines break between names only.
    return text.strip().replace(" ", _UNBROKEN)


def _task(name: str) -> Iterator[str]:
    task = tasks.describe(name)
    yield _text(task.description)
    files = f"Needs {' and '.join(task.files)}." if task.files else "Needs no files."
    if "synthetic" in {option.name for option in task.options}:
        files += " --synthetic tries it without."
    yield _text(files)
    yield "Options, with their defaults:"
    yield from _options(TASK, name)
    yield "Default flags of its runs:"
    yield _text(_show(published.of_task(name).flags()))
    yield "Default learning rates, of the clients / of the server:"
    methods = from_source.methods()
    yield _text("; ".join(f"{each}{_UNBROKEN}{_rates(name, each)}" for each in methods))


def _algorithm(name: str) -> Iterator[str]:
    method = from_source.methods()[name]
    yield _text(f"{method.paper}. {method.url}")
    options = list(_options(ALGORITHM, name))
    if options:
        yield "Options, with their defaults:"
        yield from options
    yield "Default learning rates, of the clients / of the server:"
    known = tasks.names()
    yield _text("; ".join(f"{each}{_UNBROKEN}{_rates(each, name)}" for each in known))


def _preset(name: str) -> Iterator[str]:
    preset = PRESETS[name]
    yield _text(f"{preset.summary} {preset.source}")
    for each in SCALES:
        scale = preset.scale(each)
        yield _text(
            f"--scale={each}: about {cost(scale)} ({scale.machine}). "
            f"Parts {', '.join(scale.parts)}."
        )


def cost(scale: Scale) -> str:
    """Returns how long a preset takes at a scale, and how much RAM."""
    return f"{duration(scale.hours)}, {scale.gigabytes:g} GB of RAM"


def duration(hours: float) -> str:
    """Returns a time in minutes, hours or days."""
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:,.0f} days"
