"""The flags of the command line: their names, value types, defaults and help.

Three sources: the rows of `flags.table` and `flags.own_flags`; the options of the
methods; the options of the tasks. A task's options `epochs` and `batch_size` are the
common flags `--client_epochs` and `--batch_size`. Any other has the flag of its own
name, or, where that is taken, `--task_<name>`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tasks
from experiments.flags import own_flags, table
from experiments.flags.flag import (
    ALGORITHM,
    OPTION_GROUPS,
    RUNS,
    TASK,
    TASKS,
    TRAIN,
    WHAT,
    Depends,
    Flag,
)
from tff_drift import from_source, value_types
from tff_drift.method_specs import Method
from tff_drift.value_types import Option

# Words of commands, for which a flag of this name would be taken.
_TAKEN = ("help", "action", "axes")


def flags_of(command: str) -> dict[str, Flag]:
    """Returns the flags of a command by name, in the order to list them."""
    definitions = tuple(map(tasks.describe, tasks.names()))
    return dict(_flags(command, tuple(from_source.methods().values()), definitions))


# To resolve a run takes sixteen looks at them, and a preset has hundreds of runs.
@functools.lru_cache(maxsize=16)
def _flags(
    command: str,
    methods: tuple[Method, ...],
    definitions: tuple[tasks.TaskDefinition, ...],
) -> dict[str, Flag]:
    flags = _by_name({**table.GROUPS, WHAT: (*table.named(), *table.GROUPS[WHAT])})
    for (of, name), options in _options_by_flag(methods, definitions).items():
        if name in flags and flags[name].of == of:
            flags[name] = dataclasses.replace(flags[name], options=options)
        else:
            is_taken = name in flags or name in _TAKEN
            name = f"{of}_{name}" if is_taken else name
            flags[name] = _option_flag(name, of, options)
    of_runs = {name: flag for name, flag in flags.items() if command in flag.commands}
    return {**of_runs, **_by_name(own_flags.OWN.get(command, {}))}


def _by_name(groups: Mapping[str, Sequence[Flag]]) -> dict[str, Flag]:
    """Returns the flags of some groups by name."""
    return {
        each.name: dataclasses.replace(each, group=group)
        for group, of_group in groups.items()
        for each in of_group
    }


def values(flags: Mapping[str, Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of flags by name: those given, else the defaults."""
    return {name: given.get(name, flag.value) for name, flag in flags.items()}


def options(of: str, name: str) -> dict[str, Option]:
    """Returns the options of an `ALGORITHM` or a `TASK` by the names of their flags."""
    return {
        flag.name: flag.options[name]
        for flag in flags_of(TRAIN).values()
        if flag.of == of and name in flag.options
    }


def _options_by_flag(
    methods: Sequence[Method], definitions: Sequence[tasks.TaskDefinition]
) -> dict[tuple[str, str], dict[str, Option]]:
    """Returns, by whose options they are and by flag, options by who has them."""
    found: dict[tuple[str, str], dict[str, Option]] = {}
    for method in methods:
        needed = [
            option for need in method.needs for option in table.OF_NEEDS.get(need, ())
        ]
        for option in (*method.options, *needed):
            found.setdefault((ALGORITHM, option.flag), {})[method.name] = option
    for task in definitions:
        for option in task.options:
            flag = "client_epochs" if option.flag == "epochs" else option.flag
            found.setdefault((TASK, flag), {})[task.name] = option
    return found


def _option_flag(name: str, of: str, options: Mapping[str, Option]) -> Flag:
    """Returns the flag for options of one name, given by their holders."""
    first, *_ = options.values()
    defaults: dict[str, list[str]] = {}
    for holder, option in options.items():
        defaults.setdefault(value_types.show(option.default), []).append(holder)
    return Flag(
        name,
        first.value_type,
        first.help,
        # Such as "0.9 (fed_adam, fed_yogi); 0 (fed_adagrad)".
        Depends("; ".join(f"{v} ({', '.join(of)})" for v, of in defaults.items())),
        may_be_none=any(option.may_be_none for option in options.values()),
        choices=tuple({c: None for option in options.values() for c in option.choices}),
        commands=TASKS if of == TASK else RUNS,
        group=OPTION_GROUPS[of],
        of=of,
        options=options,
    )
