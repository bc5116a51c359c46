"""The command `data`: what data there is, to fetch it, and what it looks like."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from experiments.commands.command import Command
from experiments.flags import declarations, errors, validate
from experiments.flags.flag import DATA, TASK
from experiments.terminal import importing

_ACTIONS = ("check", "fetch", "describe", "letters")


@dataclasses.dataclass(frozen=True)
class _Request:
    """An action on a task's data, with the values of flags and of its options."""

    action: str
    values: dict[str, Any]
    options: dict[str, Any]


def _ignored(action: str, given: dict[str, Any]) -> dict[str, str]:
    """Returns the flags that mean nothing for an action, each with the reason.

    Args:
      action: The action.
      given: The values of the flags that are given, by name.
    """
    names = {
        # Both look at files, which belong to several tasks.
        "check": set(given) - {"cache_dir", "plugin"},
        "letters": set(given) - {"cache_dir"},
        "fetch": {
            "output_dir",
            "seed",
            *(["synthetic"] if given.get("synthetic") else []),
        },
    }
    return dict.fromkeys(names.get(action, ()), f"for data {action}")


def _request(given: dict[str, Any]) -> _Request:
    action = given.pop("action")
    if action not in _ACTIONS:
        raise errors.unknown("action on data", action, _ACTIONS)
    validate.check_used(given, [_ignored(action, given)])
    values = declarations.values(declarations.flags_of(DATA), given)
    task = values["task"]
    validate.check(given, ())
    known = declarations.options(TASK, task)
    options = {o.name: given[flag] for flag, o in known.items() if flag in given}
    if action == "fetch":
        if "download" not in known:
            raise errors.UserError(
                f"task {task} needs no data: there is nothing to fetch."
            )
        options.update(download=True, synthetic=False)
    return _Request(action, values, options)


def _load() -> Callable[[_Request], None]:
    with importing():
        from experiments.reports import data

    def run(wanted: _Request) -> None:
        task, cache_dir = wanted.values["task"], wanted.values["cache_dir"]
        if wanted.action == "check":
            data.check(cache_dir)
            return
        with errors.as_user_errors(OSError, TypeError, ValueError):
            if wanted.action == "letters":
                data.make_letters(cache_dir)
                return
            loaded = data.load(task, cache_dir, wanted.values["seed"], wanted.options)
            if wanted.action == "fetch":
                data.print_fetched(loaded, cache_dir)
            else:
                folder = wanted.values["output_dir"] or f"results/data/{task}"
                data.describe(loaded, folder)

    return run


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
    _load,
    _request,
    {"action": {"metavar": "check|fetch|describe|letters"}},
)
