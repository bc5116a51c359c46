"""The command `doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import errors
from experiments.reports import doctor


def _run(given: dict[str, Any]) -> None:
    del given
    failures = doctor.examine()
    if failures:
        raise errors.UserError(f"not in order: {', '.join(failures)}.")


COMMAND = Command(
    "doctor",
    "say what works on this machine, and how to fix the rest",
    """\
Checks Python, TensorFlow, TensorFlow Federated and their dependencies, runs a
computation in this process and in TFF's worker, looks for GPUs, and lists the tasks'
data. For each thing that does not work it says how to fix it. Ends with status 2 if
something that every run needs does not work.

example:
  tff-drift doctor
""",
    lambda: _run,
)
