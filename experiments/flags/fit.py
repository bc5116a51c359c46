"""Which flags have a meaning together, and with which algorithm and task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import tasks
from experiments.flags import declarations, methods
from experiments.flags.declarations import LOCAL, METHOD_OPTIONS, SERVER, TRAIN, Flag
from experiments.flags.errors import UserError

# Of flags with some value: what must be given then.
_REQUIRED = (
    ("client_rate_schedule", "exponential", "client_rate_decay"),
    ("client_rate_schedule", "exponential", "client_rate_decay_rounds"),
    ("client_rate_schedule", "per_round_factor", "client_rate_decay"),
    ("server_warm_up_from", "reference", "server_rate_scaling"),
    ("execution", "remote", "workers"),
)
_OFF = (False, "none", 0)


def task_flags(task: str) -> dict[str, Flag]:
    """Returns the flags that set options of a task, by name."""
    options = {option.name for option in tasks.describe(task).options}
    flags = declarations.flags_of(TRAIN)
    return {name: flag for name, flag in flags.items() if flag.option in options}


def method_flags(algorithm: str) -> dict[str, Flag]:
    """Returns the flags that set options that only some algorithms have, by name."""
    method = methods.methods()[algorithm]
    return {
        name: flag
        for name, flag in declarations.flags_of(TRAIN).items()
        if flag.group == METHOD_OPTIONS
        and (name in method.options or flag.needs in method.needs)
    }


def meaningless(values: Mapping[str, Any], algorithm: str) -> dict[str, str]:
    """Returns the common flags that mean nothing for a run, each with the reason.

    Args:
      values: The flags' values.
      algorithm: The run's algorithm.
    """
    method, lacks = methods.methods()[algorithm], {}
    if not method.has_client_rate:
        lacks[LOCAL] = f"for {algorithm}, whose clients send gradients and do not train"
    if not method.has_server_rate:
        lacks[SERVER] = f"for {algorithm}, whose server's step has no learning rate"
    reasons, flags = {}, declarations.flags_of(TRAIN)
    for name, flag in flags.items():
        need, _, wanted = flag.needs.partition("=")
        if need in flags:
            value = declarations.show(values[need])
            if wanted and value not in wanted.split("|"):
                reasons[name] = f"for --{need}={value}"
            elif not wanted and values[need] in _OFF:
                reasons[name] = f"without --{need}, which is {value}"
            # What a switch needs, what depends on it needs too.
            need = flags[need].needs
        if need in lacks:
            reasons[name] = lacks[need]
    return reasons


def check(
    given: Mapping[str, Any], values: Mapping[str, Any], algorithms: Collection[str]
) -> None:
    """Raises if a flag was given that means nothing, or one lacks that is needed.

    A flag that means something for one of the algorithms may be given.

    Args:
      given: The values of the flags that were given, by name.
      values: Those of all flags.
      algorithms: The algorithms to be run.

    Raises:
      UserError: If the flags do not fit.
    """
    check_task_flags(given, values["task"])
    flags, together = declarations.flags_of(TRAIN), " or ".join(algorithms)
    known = sorted({name for each in algorithms for name in method_flags(each)})
    reasons = [meaningless(values, algorithm) for algorithm in algorithms]
    for name in sorted(given):
        if flags[name].group == METHOD_OPTIONS and name not in known:
            has = f"which has {_list(known) or 'none'}"
            raise UserError(f"--{name} is no option of {together}, {has}.")
        if all(name in of_algorithm for of_algorithm in reasons):
            raise UserError(f"--{name} has no meaning {reasons[0][name]}.")
    for name, value, other in _REQUIRED:
        if values[name] == value and given.get(other) in (None, *_OFF):
            text = f"--{name}={value} needs --{other}."
            raise UserError(f"{text} {flags[other].help}")


def check_task_flags(given: Mapping[str, Any], task: str) -> None:
    """Raises a `UserError` if an option was given that the task does not have."""
    flags = declarations.flags_of(TRAIN)
    options = {option.name: option for option in tasks.describe(task).options}
    for name in sorted(set(given) & set(flags)):
        option = flags[name].option
        if option and option not in options:
            has = f"which has {_list(task_flags(task))}"
            raise UserError(f"--{name} is no option of task {task}, {has}.")
        if option and given[name] is None and not options[option].may_be_none:
            raise UserError(f"--{name} cannot be none for task {task}.")


def _list(names: Collection[str]) -> str:
    return ", ".join(f"--{name}" for name in names)
