"""The command `train`."""

from __future__ import annotations

from collections.abc import Callable

from experiments.commands.command import Command
from experiments.flags import settings
from experiments.terminal import importing


def _load() -> Callable[[settings.RunSettings], None]:
    with importing():
        from experiments.training import log, runs

    log.show()
    return runs.train


COMMAND = Command(
    "train",
    "train one algorithm on one task",
    """\
Trains one algorithm on one task. The folder of the results gets config.json,
metrics.csv (one row per round), summary.json, curves.png and a checkpoint. The same
command continues a run that was interrupted, or one with fewer --rounds.

example:
  tff-drift train --task=digits --algorithm=fed_adam --rounds=20
""",
    _load,
    settings.resolve,
)
