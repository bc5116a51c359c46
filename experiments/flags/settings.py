"""The settings of a run: every flag resolved, from what was given and defaults."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import (
    declarations,
    paper_settings,
    published_rates,
    tuned_settings,
    validate,
)
from experiments.flags.flag import (
    ALGORITHM,
    CIRCUMSTANCES,
    COMPARE,
    OPTION_GROUPS,
    TASK,
    TRAIN,
)
from tff_drift import from_source
from tff_drift.value_types import Option

# Where data and code come from.
_HAD = ("cache_dir", "plugin")


@dataclasses.dataclass(frozen=True, eq=False)
class RunSettings:
    """One run: an algorithm on a task with a seed; a key of mappings by its identity.

    Attributes:
      task: Its task, one of the configuration, as the next three are.
      algorithm: Its algorithm.
      seed: Its seed.
      rounds: Its rounds.
      configuration: What the results depend on: values by the names of their flags.
        `None` where a common flag has no meaning for the run; the options of other
        algorithms and tasks are left out.
      circumstances: The other flags' values by name.
      folder: Where its results go.
      label: What tables and figures call the run's algorithm.
        Runs with one label differ in their seeds alone.
      options: Those of the run's `ALGORITHM` and of its `TASK`, by their keywords.
      ignored: The flags that mean nothing for the run, each with the reason.
    """

    task: str
    algorithm: str
    seed: int
    rounds: int
    configuration: Mapping[str, Any]
    circumstances: Mapping[str, Any]
    folder: pathlib.Path
    label: str
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)


def resolve(given: Mapping[str, Any], label: str = "") -> RunSettings:
    """Returns the run that `tff-drift train` with some flags stands for.

    Args:
      given: The values of the flags that are given, by name.
      label: What tables and figures call the run; by default its algorithm.

    Raises:
      UserError: If a flag is unknown, is out of its range, or does not fit the task,
        the algorithm or other flags.
    """
    if given.get("settings"):
        given = tuned_settings.with_found(given)
    algorithm = given.get("algorithm", declarations.flags_of(TRAIN)["algorithm"].value)
    given = paper_settings.with_protocol(given, algorithm)
    validate.check(given, [algorithm])
    run = _run(given, label)
    validate.check_used(given.keys(), [run.ignored])
    return run


def resolve_comparison(given: Mapping[str, Any]) -> list[RunSettings]:
    """Returns the runs that `tff-drift compare` with some flags asks for.

    Args:
      given: As for `resolve`, which raises what this does.

    Returns:
      One run per seed and algorithm, seed by seed, so that all algorithms have a
      result early.
    """
    task = None if "task" in given else tuned_settings.task_of(given.get("settings"))
    given = {**given, "task": task} if task else given
    values = declarations.values(declarations.flags_of(COMPARE), given)
    known = declarations.flags_of(TRAIN)
    root = values["output_dir"] or f"results/compare/{values['task']}"
    shared = {name: given[name] for name in given if name in known}
    validate.check(shared, values["algorithms"])
    found = tuned_settings.of(values["settings"], values["algorithms"])
    flags = {
        algorithm: paper_settings.with_protocol(
            validate.below(found[algorithm], shared), algorithm
        )
        for algorithm in values["algorithms"]
    }
    runs = [
        _run(
            {
                **flags[algorithm],
                "algorithm": algorithm,
                "seed": seed,
                "output_dir": f"{root}/{algorithm}/seed_{seed}",
            }
        )
        for seed in values["seeds"]
        for algorithm in values["algorithms"]
    ]
    validate.check_used(shared.keys(), [run.ignored for run in runs])
    return runs


def _run(given: Mapping[str, Any], label: str = "") -> RunSettings:
    """Returns a run with the values of all its flags, none for those it ignores."""
    flags = declarations.flags_of(TRAIN)
    task, algorithm = (given.get(of, flags[of].value) for of in (TASK, ALGORITHM))
    options = {
        TASK: declarations.options(TASK, task),
        ALGORITHM: declarations.options(ALGORITHM, algorithm),
    }
    values = {**_defaults(task, algorithm, options), **given}
    elsewhere = (CIRCUMSTANCES, *OPTION_GROUPS.values())
    of_run = {**options[ALGORITHM], **options[TASK]}
    configuration = {
        name: values[name]
        for name, flag in flags.items()
        if flag.group not in elsewhere or name in of_run
    }
    if configuration["server_warm_up_from"] is None:
        scaled = configuration["server_rate_scaling"] != "none"
        configuration["server_warm_up_from"] = "reference" if scaled else "zero"
    ignored = validate.ignored({**values, **configuration}, algorithm)
    if "server_learning_rate" not in ignored:
        rate = configuration["server_learning_rate"]
        data = {name: given[name] for name in (*options[TASK], *_HAD) if name in given}
        published_rates.check_tuned(task, algorithm, rate, data)
    for name in ignored:
        if name in configuration:
            # A full gradient over several epochs is the same gradient.
            is_one = name in ("client_epochs", "clients_per_round")
            configuration[name] = 1 if is_one else None
    circumstances = {
        name: values[name]
        for name, flag in flags.items()
        if flag.group == CIRCUMSTANCES
    }
    if not circumstances["output_dir"]:
        folder = f"results/train/{task}/{algorithm}/seed_{values['seed']}"
        circumstances["output_dir"] = folder
    keywords = {
        each: {option.name: configuration[flag] for flag, option in of_one.items()}
        for each, of_one in options.items()
    }
    return RunSettings(
        task=task,
        algorithm=algorithm,
        seed=values["seed"],
        rounds=values["rounds"],
        configuration=configuration,
        circumstances=circumstances,
        folder=pathlib.Path(circumstances["output_dir"]),
        label=label or algorithm,
        options=keywords,
        ignored=ignored,
    )


def _defaults(
    task: str, algorithm: str, options: Mapping[str, Mapping[str, Option]]
) -> dict[str, Any]:
    """Returns the default of every flag for a run of an algorithm on a task."""
    of_task = published_rates.of_task(task)
    rates = published_rates.rates(task, algorithm)
    flags = declarations.flags_of(TRAIN)
    return {
        **{name: flag.value for name, flag in flags.items()},
        "weighting": from_source.methods()[algorithm].weighting,
        "client_learning_rate": rates.client,
        "server_learning_rate": rates.server,
        "reference_clients_per_round": rates.cohort or of_task.clients_per_round,
        **{flag: option.default for flag, option in options[ALGORITHM].items()},
        **rates.hyperparameters,
        **{flag: option.default for flag, option in options[TASK].items()},
        **of_task.flags(),
    }
