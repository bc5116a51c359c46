"""Provenance of a result: data, seeds, versions, revision, machine, duration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tasks
from experiments.analysis import FinishedRuns
from experiments.reports import texts

_NOT_RECORDED = "not recorded"


def facts(
    runs: FinishedRuns | None,
    flags: Mapping[str, Any],
    summaries: Sequence[Mapping[str, Any]],
) -> list[tuple[str, str]]:
    """Returns terms with what there is to say.

    Args:
      runs: The runs, `None` if no run is read.
      flags: Those of the command that made them, as far as they are kept.
      summaries: What summary.json of the whole and of every run say, empty where there
        is none.
    """
    terms = []
    if "preset" in flags:
        terms.append(("command", _command(flags)))
    if runs is not None:
        terms += list(_of_runs(runs))
    terms += [
        ("versions", _distinct(summaries, "versions", _versions)),
        ("revision", _distinct(summaries, "git_revision", str)),
        ("machine", _distinct(summaries, "machine", _machine)),
        ("duration", _duration(summaries)),
    ]
    return terms


def _command(flags: Mapping[str, Any]) -> str:
    words = ["tff-drift preset", str(flags["preset"])]
    words += [f"--{name}={flags[name]}" for name in ("scale",) if name in flags]
    words += [f"--parts={flags['part']}"] if "part" in flags else []
    seeds = ",".join(map(str, flags.get("seeds") or ()))
    return " ".join([*words, *([f"--seeds={seeds}"] if seeds else [])])


def _of_runs(runs: FinishedRuns) -> Iterator[tuple[str, str]]:
    settings, known = runs.settings, set(tasks.names())
    for name in dict.fromkeys(settings["task"]):
        description = f": {tasks.describe(name).description}" if name in known else ""
        of_task = settings[settings["task"] == name]
        yield "data", f"{name}{description}"
        yield (
            "clients",
            f"{texts.distinct(of_task['clients'])} for training, "
            f"{texts.distinct(of_task['clients_per_round'])} of them per round",
        )
    tested = runs.rounds.get("test_num_examples")
    if tested is not None and tested.notna().any():
        yield "test examples", texts.distinct(tested.dropna())
    yield "rounds", texts.distinct(settings["rounds"])
    seeds = sorted(dict.fromkeys(settings["seed"]))
    yield "seeds", f"{', '.join(map(str, seeds))}; {len(settings)} runs"


def _distinct(summaries: Sequence[Mapping[str, Any]], name: str, tell: Any) -> str:
    found = [tell(each[name]) for each in summaries if each.get(name)]
    return "; ".join(dict.fromkeys(found)) or _NOT_RECORDED


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _machine(machine: Mapping[str, Any]) -> str:
    parts = [
        str(machine.get("processor", "")),
        f"{machine['processors']} processors" if machine.get("processors") else "",
        f"{texts.size(machine['ram'])} of RAM" if machine.get("ram") else "",
        *machine.get("accelerators", ()),
        str(machine.get("system", "")),
    ]
    return ", ".join(part for part in parts if part)


def _duration(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Returns the seconds of all runs: those of the whole, else their sum."""
    whole, *runs = (each.get("totals") for each in summaries)
    totals = [whole] if whole else [total for total in runs if total]
    if not totals:
        return _NOT_RECORDED
    training = sum(each["seconds"] for each in totals)
    evaluation = sum(each["seconds_evaluation"] for each in totals)
    return (
        f"{texts.duration(training)} of training and {texts.duration(evaluation)} of "
        "evaluation, all runs together"
    )
