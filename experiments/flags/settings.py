"""What one run is: every flag resolved, from what was given and from defaults."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class RunSettings:
    """One run: an algorithm on a task with a seed; a key of mappings by its identity.

    Attributes:
      configuration: What the results depend on: values by the names of their flags.
        `None` where a common flag has no meaning for the run; the options of other
        algorithms and tasks are left out.
      circumstances: The other flags' values by name.
      label: What tables and figures call the run's algorithm, its name by default.
        Runs with one label differ in their seeds alone.
    """

    configuration: Mapping[str, Any]
    circumstances: Mapping[str, Any]
    label: str = ""
    # Of the configuration.
    task: str = dataclasses.field(init=False)
    algorithm: str = dataclasses.field(init=False)
    seed: int = dataclasses.field(init=False)
    rounds: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        for name in ("task", "algorithm", "seed", "rounds"):
            object.__setattr__(self, name, self.configuration[name])
        object.__setattr__(self, "label", self.label or self.algorithm)

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the results."""
        return pathlib.Path(self.circumstances["output_dir"])

    def options_of(self, what: str) -> dict[str, Any]:
        """Returns the options of the run's `ALGORITHM` or `TASK`, by their keywords."""
        options = declarations.options(what, self.configuration[what])
        return {each.name: self.configuration[flag] for flag, each in options.items()}


def resolve(given: Mapping[str, Any], label: str = "") -> RunSettings:
    """Returns the run that `tff-drift train` with some flags stands for.

    Args:
      given: The values of the flags that are given, by name.
      label: What tables and figures call the run; by default its algorithm.

    Raises:
      UserError: If a flag is unknown, is out of its range, or does not fit the task,
        the algorithm or other flags.
    """
    given = tuned_settings.with_found(given)
    values = declarations.values(declarations.flags_of(TRAIN), given)
    given = paper_settings.with_protocol(given, values["algorithm"])
    validate.check(given, [values["algorithm"]])
    return _run(given, label)


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
            {**found[algorithm], **shared}, algorithm
        )
        for algorithm in values["algorithms"]
    }
    return [
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


def _run(given: Mapping[str, Any], label: str = "") -> RunSettings:
    """Returns a run with the values of all its flags, none for those it ignores."""
    flags = declarations.flags_of(TRAIN)
    values = declarations.values(flags, given)
    task, algorithm = values["task"], values["algorithm"]
    configuration = _defaults(task, algorithm)
    configuration.update({name: given[name] for name in configuration if name in given})
    if configuration["server_warm_up_from"] is None:
        scaled = configuration["server_rate_scaling"] != "none"
        configuration["server_warm_up_from"] = "reference" if scaled else "zero"
    meaningless = validate.meaningless({**values, **configuration}, algorithm)
    if "server_learning_rate" not in meaningless:
        published_rates.check_tuned(task, algorithm, configuration)
    for name in meaningless:
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
    return RunSettings(configuration, circumstances, label)


def _defaults(task: str, algorithm: str) -> dict[str, Any]:
    """Returns the default of every flag that a run of an algorithm on a task has."""
    of_task = published_rates.of_task(task)
    rates = published_rates.rates(task, algorithm)
    method = from_source.methods()[algorithm]
    elsewhere = (CIRCUMSTANCES, *OPTION_GROUPS.values())
    common = {
        name: flag.value
        for name, flag in declarations.flags_of(TRAIN).items()
        if flag.group not in elsewhere
    }
    return {
        **common,
        "weighting": method.weighting,
        "client_learning_rate": rates.client,
        "server_learning_rate": rates.server,
        "reference_clients_per_round": rates.cohort or of_task.clients_per_round,
        **{f: o.default for f, o in declarations.options(ALGORITHM, algorithm).items()},
        **rates.hyperparameters,
        **{f: o.default for f, o in declarations.options(TASK, task).items()},
        **of_task.flags(),
    }
