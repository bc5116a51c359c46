"""The command `tff-drift`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import tff_drift
from experiments import escape, terminal

_OVERVIEW = """\
tff-drift: federated learning in simulation, and methods against client drift.

usage: tff-drift COMMAND [--flag=value ...]

commands:
{}

A first try, which needs no data and takes a minute or two:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1

`tff-drift COMMAND --help` shows the flags of a command, `tff-drift --version` the
version.
"""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: The words after `tff-drift`; by default those of this program.

    Returns:
      The exit status: 0, 1 if the machine fails, 2 for a mistake of the user, 130
      after Ctrl-C, 143 after SIGTERM.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with terminal.ending() as end:
        with terminal.beginning():
            from experiments.flags import errors
        try:
            with terminal.beginning():
                work = _understood(words)
            work()
        except errors.UserError as error:
            print(f"tff-drift: error: {escape.terminal(str(error))}", file=sys.stderr)
            end.status = error.status
    # In a notebook another command may follow, whose data has changed.
    if (runs := sys.modules.get("experiments.training.runs")) is not None:
        runs.forget_tasks()
    if end.status > 2:  # By Ctrl-C or SIGTERM.
        print(terminal.to_go_on(words), file=sys.stderr)
    return end.status


def _understood(words: list[str]) -> Callable[[], None]:
    """Returns what the words ask for, to be called.

    Raises:
      SystemExit: After the help of a command.
      UserError: If they ask for nothing that there is.
    """
    if words[:1] == ["--version"]:
        return functools.partial(print, f"tff-drift {tff_drift.__version__}")
    from experiments.commands import COMMANDS
    from experiments.flags import errors, parser, plugins, tuned_settings

    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    name = words[0] if words else "--help"
    if name in ("--help", "-h"):
        commands = [f"  {each.name:13}{each.summary}" for each in COMMANDS.values()]
        return functools.partial(print, _OVERVIEW.format("\n".join(commands)), end="")
    if name.startswith("-"):
        names = "|".join(COMMANDS)
        raise errors.UserError(f"the command comes first: tff-drift {names} {name}")
    if name not in COMMANDS:
        raise errors.unknown("command", name, tuple(COMMANDS))
    command, words = COMMANDS[name], parser.with_files(words[1:])
    with terminal.importing():
        plugins.load(parser.plugins(command.name, words))
    given = command.parser(parser.HELP_ALL in words).parse(words)
    request = command.request(given)
    if note := tuned_settings.note(given.get("settings", ()), given.get("task")):
        print(f"tff-drift: {escape.terminal(note)}", file=sys.stderr)
    return functools.partial(command.load(), request)
