"""The command `train`."""

from __future__ import annotations

import sys
from typing import Any

from experiments.commands.command import Command
from experiments.flags import settings
from experiments.terminal import importing


def _run(given: dict[str, Any]) -> None:
    run = settings.resolve(given)
    with importing():
        from experiments.reports import summary
        from experiments.training import log, runs

    log.show()
    checked = runs.Runs([run])
    note = checked.finished_before(run)
    if note:
        print(f"{run.folder}: {note}", file=sys.stderr)
    print(summary.describe(checked.execute(run)))
    print(
        f"Files in {run.folder}: config.json, metrics.csv, summary.json, curves.png",
    )


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
    _run,
)
