"""The command `preset`."""

from __future__ import annotations

import importlib
from typing import Any

from experiments.commands.command import Command
from experiments.flags import presets
from experiments.terminal import importing


def _run(given: dict[str, Any]) -> None:
    name = given.pop("name")
    request = presets.request(name, given)
    with importing():
        module = importlib.import_module(f"experiments.presets.{name}")
    module.run(request)


COMMAND = Command(
    "preset",
    "run an experiment of a paper, from tuning to tables and figures",
    """\
Runs an experiment of a paper: its tasks, methods and seeds, with tables and figures
for each of its parts in a folder of its own. `tff-drift list presets` says what each
one shows. The same command goes on where an interrupted one stopped; what is finished
is not repeated.

example:
  tff-drift preset drift_comparison --parts=digits_low --seeds=1
""",
    _run,
    {"name": {"metavar": "NAME", "help": f"One of {', '.join(presets.PRESETS)}."}},
    presets.flags,
)
