"""What one run is: every flag resolved, from what was given and from defaults."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments import catalogue, defaults, flag_fit, flag_table
from experiments.command_line import Arguments
from experiments.flag_table import COMPARE, HYPERPARAMETERS, TASK_OPTIONS, TRAIN

# Flags that change how a run goes but not what it results in.
_CIRCUMSTANCES = (
    "cache_dir",
    "output_dir",
    "rounds_per_checkpoint",
    "tensorboard",
    "client_states",
    "measure_mismatch",
    "max_concurrent_clients",
    "workers",
)


@dataclasses.dataclass(frozen=True, eq=False)
class RunSettings:
    """One run: an algorithm on a task with a seed.

    A key of mappings by its identity.

    Attributes:
      configuration: What the results depend on: values by the names of their
        flags. `None` where a common flag has no meaning for the run; the
        hyperparameters of other algorithms and the options of other tasks are
        left out.
      circumstances: The other flags' values by name.
      label: What tables and figures call the run's algorithm, its name by default.
        Runs with one label differ in their seeds alone.
    """

    configuration: Mapping[str, Any]
    circumstances: Mapping[str, Any]
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.configuration["algorithm"])

    @property
    def task(self) -> str:
        """The task's name."""
        return self.configuration["task"]

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.configuration["algorithm"]

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.configuration["seed"]

    @property
    def rounds(self) -> int:
        """The rounds of training."""
        return self.configuration["rounds"]

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the results."""
        return pathlib.Path(self.circumstances["output_dir"])

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The algorithm's hyperparameters by name."""
        names = catalogue.algorithms()[self.algorithm].hyperparameters
        return {name: self.configuration[name] for name in names}

    @property
    def task_options(self) -> dict[str, Any]:
        """The task's options by name."""
        return {
            flag.option: self.configuration[flag.name]
            for flag in flag_fit.option_flags(self.task).values()
        }


def resolve(arguments: Arguments) -> list[RunSettings]:
    """Returns the runs that a command asks for.

    Args:
      arguments: The command's flags.

    Returns:
      The runs: one of `train`; of `compare` one per seed and algorithm, seed by
      seed, so that all algorithms have a result early.

    Raises:
      UserError: If a flag does not fit the task, the algorithms or other flags.
    """
    values = arguments.values
    if arguments.command == COMPARE:
        algorithms, seeds = values["algorithms"], values["seeds"]
    else:
        algorithms, seeds = (values["algorithm"],), (values["seed"],)
    flag_fit.check(arguments, algorithms)
    root = pathlib.Path(values["output_dir"] or default_output_dir(arguments))
    runs = []
    for seed in seeds:
        for algorithm in algorithms:
            folder = root
            if arguments.command == COMPARE:
                folder = root / algorithm / f"seed_{seed}"
            circumstances = {name: values[name] for name in _CIRCUMSTANCES}
            circumstances["output_dir"] = str(folder)
            configuration = _configuration(arguments, algorithm, seed)
            runs.append(RunSettings(configuration, circumstances))
    return runs


def default_output_dir(arguments: Arguments) -> str:
    """Returns the folder for the results if none is given.

    Args:
      arguments: The command's flags.
    """
    values = arguments.values
    if arguments.command == COMPARE:
        return f"results/compare/{values['task']}"
    return f"results/train/{values['task']}/{values['algorithm']}/seed_{values['seed']}"


def _configuration(arguments: Arguments, algorithm: str, seed: int) -> dict[str, Any]:
    """Returns the values of all flags that a run has, none for those it ignores."""
    values = {
        name: arguments.values[name] if name in arguments.given else default
        for name, default in _defaults(arguments.values["task"], algorithm).items()
    }
    values.update(algorithm=algorithm, seed=seed)
    scaled = values["server_rate_scaling"] != "none"
    if values["server_warm_up_from"] is None:
        values["server_warm_up_from"] = "reference" if scaled else "zero"
    values.update(dict.fromkeys(flag_fit.meaningless(values, algorithm)))
    if values["client_epochs"] is None:
        # A full gradient over several epochs is the same gradient.
        values["client_epochs"] = 1
    return values


def _defaults(task: str, algorithm: str) -> dict[str, Any]:
    """Returns the default of every flag that a run of an algorithm on a task has."""
    of_task = defaults.of_task(task)
    rates = defaults.rates(task, algorithm)
    entry = catalogue.algorithms()[algorithm]
    common = {
        name: flag.default
        for name, flag in flag_table.flags_of(TRAIN).items()
        if flag.group not in (HYPERPARAMETERS, TASK_OPTIONS)
        and name not in _CIRCUMSTANCES
    }
    options = {
        name: catalogue.tasks()[task].options[flag.option].default
        for name, flag in flag_fit.option_flags(task).items()
    }
    if of_task.client_epochs is not None:
        options["client_epochs"] = of_task.client_epochs
    return {
        **common,
        "task": task,
        "rounds": of_task.rounds,
        "clients_per_round": of_task.clients_per_round,
        "reference_clients_per_round": of_task.clients_per_round,
        "rounds_per_evaluation": of_task.rounds_per_evaluation,
        "client_learning_rate": rates.client,
        "client_rate_decay_rounds": 1,
        "client_rate_staircase": True,
        "server_learning_rate": rates.server,
        "weighting": entry.weighting,
        "clipping_quantile": 0.8,
        "clipping_initial_norm": 1.0,
        "clipping_learning_rate": 0.2,
        **{name: each.default for name, each in entry.hyperparameters.items()},
        **rates.hyperparameters,
        **options,
    }
