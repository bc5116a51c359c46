"""The command `install-tff`: installs TensorFlow Federated beside tff_drift."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import errors
from tff_drift import install


def _run(given: dict[str, Any]) -> None:
    with errors.as_user_errors(RuntimeError):
        install.install_tff(given.get("worker"))


COMMAND = Command(
    "install-tff",
    "install TensorFlow Federated into this environment",
    """\
Installs TensorFlow Federated 0.87.0 and the four of its dependencies that no installer
can resolve today, with pip or uv, pinned and checked by their hashes. What else TFF
needs came with tff_drift.

example:
  tff-drift install-tff
""",
    lambda: _run,
)
