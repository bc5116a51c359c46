"""Help for people who see the command for the first time."""

from __future__ import annotations

import textwrap

from experiments import flag_table
from experiments.flag_table import COMPARE, DATA, PRESET, TRAIN, Flag
from experiments.presets import registry

_WIDTH = 88
_NAME_WIDTH = 30

_OVERVIEW = """\
tff-drift: federated learning in simulation, and methods against client drift.

usage: tff-drift COMMAND [--flag=value ...]

commands:
  train      train one algorithm on one task
  compare    train several algorithms with several seeds; makes a table and a figure
  list       show the tasks and the algorithms, with their options and defaults
  data       check, fetch or describe the tasks' data
  preset     run an experiment of a paper, from tuning to tables and figures

A first try, which needs no data and takes a minute or two:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1

`tff-drift COMMAND --help` shows the flags of a command.
"""

_LIST = """\
usage: tff-drift list [tasks|algorithms|presets]

Shows the tasks with their options and default settings, the algorithms with their
papers, hyperparameters and default learning rates, and the presets with their parts.
"""

_INTRODUCTIONS = {
    TRAIN: """\
usage: tff-drift train [--flag=value ...]

Trains one algorithm on one task. The folder of the results gets config.json,
metrics.csv (one row per round), summary.json, curves.png and a checkpoint: the same
command goes on where an interrupted run stopped, or with more --rounds.

example:
  tff-drift train --task=digits --algorithm=fed_adam --rounds=20
""",
    COMPARE: """\
usage: tff-drift compare [--flag=value ...]

Trains several algorithms on one task with several seeds, each run in a folder of its
own, and makes of all of them table.md, table.csv, curves.png, config.json and
summary.json. The same command goes on where an interrupted one stopped; runs that
are finished are not repeated.

example:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1,2,3
""",
    DATA: """\
usage: tff-drift data check|fetch|describe [--flag=value ...]

check     shows which data is there, how much of it, and where it comes from
fetch     downloads a task's data, if it is absent, into --cache_dir
describe  tells and draws (data.png) how a task's examples are spread over clients

example:
  tff-drift data describe --task=digits --alpha=0.1
""",
    PRESET: f"""\
usage: tff-drift preset {{{",".join(registry.PRESETS)}}} [--flag=value ...]

Runs an experiment of a paper: its tasks, methods and seeds, with tables and figures
for each of its parts in a folder of its own. `tff-drift list presets` says what each
one shows. The same command goes on where an interrupted one stopped; what is finished
is not repeated.

example:
  tff-drift preset drift_comparison --parts=digits_low --seeds=1
""",
}

_CLOSING = """\
Brackets hold defaults; those by task and algorithm are in `tff-drift list`. Switches
are set by --name and --noname. --flagfile=FILE reads flags from a file, one per line.
"""


def help_on(command: str) -> str:
    """Returns the help text on a command.

    Args:
      command: "train", "compare", "list", "data" or "preset"; empty for the
        overview.

    Returns:
      Text in lines of at most 88 characters.
    """
    if not command:
        return _OVERVIEW
    if command not in _INTRODUCTIONS:
        return _LIST
    parts = [_INTRODUCTIONS[command]]
    groups: dict[str, list[Flag]] = {}
    for flag in flag_table.flags_of(command).values():
        groups.setdefault(flag.group, []).append(flag)
    for group, flags in groups.items():
        parts.append(f"{group}:\n" + "".join(map(_describe, flags)))
    return "\n".join([*parts, _CLOSING])


def _describe(flag: Flag) -> str:
    text = flag.help
    if flag.choices:
        text += f" One of {', '.join(flag.choices)}."
    default = flag.shown_default
    if not default and flag.default is not None:
        default = flag_table.show(flag.default)
    if default:
        text += f" [{default}]"
    return two_columns(f"--{flag.name}", text)


def two_columns(name: str, text: str) -> str:
    """Returns a name with a text to its right, wrapped.

    Args:
      name: The name; a long one has a line of its own.
      text: The text.

    Returns:
      One or more whole lines.
    """
    name = f"  {name}"
    lines = textwrap.wrap(text, _WIDTH - _NAME_WIDTH, break_on_hyphens=False)
    if len(name) >= _NAME_WIDTH:
        lines.insert(0, "")
    names = [name, *[""] * (len(lines) - 1)]
    return "".join(
        f"{left:{_NAME_WIDTH}}{right}".rstrip() + "\n"
        for left, right in zip(names, lines)
    )
