"""The command `preset`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.commands.command import Command
from experiments.presets import requests
from experiments.terminal import importing


def _request(given: dict[str, Any]) -> requests.Request:
    return requests.request(given.pop("name"), given)


def _load() -> Callable[[requests.Request], None]:
    with importing():
        from experiments.training import searches, studies, verification

    def run(request: requests.Request) -> None:
        if request.verify:
            verification.run(request)
            return
        studies.run(request)
        names = list(request.parts)
        if (request.folder / searches.FOLDER).is_dir():
            names.append(searches.FOLDER)
        print(f"Files in {request.folder}: {', '.join(names)}")

    return run


COMMAND = Command(
    "preset",
    "run an experiment of a paper, from tuning to tables and figures",
    """\
Runs an experiment of a paper: its tasks, methods and seeds, with tables and figures
for each of its parts in a folder of its own. `tff-drift list NAME` says what it shows
and takes. The same command continues an interrupted one; finished parts are not
repeated.

example:
  tff-drift preset drift_comparison --parts=digits_low --seeds=1
  tff-drift preset drift_comparison --parts=digits_low --verify
""",
    _load,
    _request,
    {"name": {"metavar": "NAME", "help": "One of `tff-drift list presets`."}},
)
