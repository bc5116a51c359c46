"""Validates which flags go together, and with which algorithm and task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.flags import declarations, errors
from experiments.flags.errors import UserError
from experiments.flags.flag import (
    ALGORITHM,
    COHORTS,
    LOCAL,
    META,
    SERVER,
    STATES,
    TASK,
    TRAIN,
)
from tff_drift import from_source, value_types

_OFF = (False, "none", 0, None)
# What takes the place of what.
_IN_PLACE_OF = {
    "similarity": ("alpha",),
    "meta_file": ("meta_fraction", "meta_labels", "meta_overlap"),
    "share_file": ("share_fraction", "share_labels"),
}


def below(lower: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that are given, and others where these leave room for them.

    Args:
      lower: The other flags: those of a paper's protocol, or of a file.
      given: The values of the flags that are given, by name.
    """
    replaced = {
        other
        for name, others in _IN_PLACE_OF.items()
        if given.get(name) is not None
        for other in others
    }
    left = {name: value for name, value in lower.items() if name not in replaced}
    return {**left, **given}


def ignored(values: Mapping[str, Any], algorithm: str) -> dict[str, str]:
    """Returns the common flags that mean nothing for a run, each with the reason.

    Args:
      values: The flags' values.
      algorithm: The run's algorithm.
    """
    method, lacks = from_source.methods()[algorithm], {}
    if method.pools_data and values["clients_per_round"] != 1:
        lacks[COHORTS] = f"for {algorithm}, which puts all clients' examples together"
    if not method.has_client_rate:
        lacks[LOCAL] = f"for {algorithm}, whose clients send gradients and do not train"
    if "meta_data" not in method.needs and values["meta_step"] is None:
        lacks[META] = f"for {algorithm} without --meta_step"
    if not method.keeps_client_states:
        lacks[STATES] = f"for {algorithm}, whose clients keep no states"
    if not method.has_server_rate:
        lacks[SERVER] = f"for {algorithm}, whose server's step has no learning rate"
    reasons, flags = {}, declarations.flags_of(TRAIN)
    for name, flag in flags.items():
        need, _, wanted = flag.needs.partition("=")
        if need in flags:
            value = value_types.show(values[need])
            if wanted and value not in wanted.split("|"):
                reasons[name] = f"for --{need}={value}"
            elif not wanted and values[need] in _OFF:
                reasons[name] = f"without --{need}, which is {value}"
            # What a switch needs, what depends on it needs too.
            need = flags[need].needs
        if need in lacks:
            reasons[name] = lacks[need]
    return reasons


def check(given: Mapping[str, Any], algorithms: Sequence[str]) -> None:
    """Checks the flags of runs that differ in their algorithms.

    Args:
      given: The values of the flags that were given, by name.
      algorithms: The algorithms to be run.

    Raises:
      UserError: If a flag is unknown or has a value out of its range, if one takes the
        place of another, or if one lacks that is needed.
    """
    flags = declarations.flags_of(TRAIN)
    for name, value in given.items():
        if name not in flags:
            raise errors.unknown("flag", f"--{name}", [f"--{each}" for each in flags])
        with errors.as_user_errors(TypeError, ValueError):
            flag = flags[name]
            for each in value if flag.many else (value,):
                flag.check(each, f"--{name}")
    _check_options(given, TASK, [given.get("task", flags["task"].value)])
    _check_options(given, ALGORITHM, algorithms)
    for name, others in _IN_PLACE_OF.items():
        for other in others:
            if given.get(name) is not None and given.get(other) is not None:
                raise UserError(
                    f"--{other} has no meaning with --{name}, which takes its place. "
                    "Leave one of them out."
                )
    for name, flag in flags.items():
        for other in flag.requires.get(given.get(name, ""), ()):
            if given.get(other) in _OFF:
                text = f"--{name}={given[name]} needs --{other}."
                raise UserError(f"{text} {flags[other].help}")


def check_used(names: Iterable[str], reasons: Sequence[Mapping[str, str]]) -> None:
    """Raises a `UserError` if a flag was given that means nothing.

    Args:
      names: The flags that were given. One that means something for one of several
        runs may be.
      reasons: Of each run, the flags that mean nothing for it, each with the reason.
    """
    for name in sorted(names):
        if all(name in of_run for of_run in reasons):
            raise UserError(f"--{name} has no meaning {reasons[0][name]}.")


def _check_options(given: Mapping[str, Any], of: str, names: Sequence[str]) -> None:
    """Raises a `UserError` if an option was given that does not fit its holders.

    Args:
      given: The values of the flags that were given, by name.
      of: Whose options to check: `ALGORITHM` or `TASK`.
      names: The algorithms or the task.
    """
    known = {f: o for each in names for f, o in declarations.options(of, each).items()}
    holders = f"{'task ' if of == TASK else ''}{' or '.join(names)}"
    flags = declarations.flags_of(TRAIN)
    for name in sorted(
        name for name in given if name in flags and flags[name].of == of
    ):
        if name not in known:
            has = ", ".join(f"--{each}" for each in sorted(known)) or "none"
            # A task that nobody named is rarely the one that is meant.
            is_unnamed = of == TASK and "task" not in given
            others = " or ".join(f"--task={each}" for each in flags[name].options)
            remedy = f" Give {others}." if is_unnamed and others else ""
            raise UserError(
                f"--{name} is not an option of {holders}, which has {has}.{remedy}"
            )
        if given[name] is None and not known[name].may_be_none:
            raise UserError(f"--{name} cannot be none for {holders}.")
