"""The command `data`: what data there is, to fetch it, and what it looks like."""

from __future__ import annotations

from typing import Any

from experiments.commands.command import Command
from experiments.flags import declarations, errors, validate
from experiments.flags.flag import TASK
from experiments.terminal import importing

_ACTIONS = ("check", "fetch", "describe", "letters")


def _run(given: dict[str, Any]) -> None:
    action = given.pop("action")
    if action not in _ACTIONS:
        raise errors.unknown("action on data", action, _ACTIONS)
    values = declarations.values(declarations.flags_of("data"), given)
    task = values["task"]
    validate.check_options(given, TASK, [task])
    validate.check_together(given)
    known = declarations.options(TASK, task)
    options = {o.name: given[flag] for flag, o in known.items() if flag in given}
    if action == "fetch" and "download" not in known:
        raise errors.UserError(f"task {task} needs no data: there is nothing to fetch.")
    with importing():
        from experiments.reports import data

    if action == "check":
        data.check(values["cache_dir"])
        return
    if action == "letters":
        with errors.as_user_errors(OSError):
            data.make_letters(values["cache_dir"])
        return
    if action == "fetch":
        options.update(download=True, synthetic=False)
    with errors.as_user_errors(OSError, TypeError, ValueError):
        loaded = data.load(task, values["cache_dir"], values["seed"], options)
        if action == "fetch":
            data.print_fetched(loaded, values["cache_dir"])
        else:
            data.describe(loaded, values["output_dir"] or f"results/data/{task}")


COMMAND = Command(
    "data",
    "check, fetch or describe the tasks' data",
    """\
check     shows which data is there, how much of it, and where it comes from
fetch     downloads a task's data, if it is absent, into --cache_dir
describe  prints and draws (data.png) how a task's examples are spread over clients
letters   makes emnist_letters.npz from the letters of TFF's EMNIST, as used for the
          committed results, where EMNIST letters itself is not available

example:
  tff-drift data describe --task=digits --alpha=0.1
""",
    _run,
    {"action": {"metavar": "check|fetch|describe|letters"}},
)
