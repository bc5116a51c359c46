"""What one run is: every flag resolved, from what was given and from defaults."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from experiments import catalogue, defaults
from experiments.command_line import Arguments
from experiments.errors import UserError
from experiments.flag_table import (
    COMPARE,
    FLAGS,
    HYPERPARAMETERS,
    TASK_OPTIONS,
    Flag,
    show,
)

# Flags that change how a run goes but not what it results in.
_CIRCUMSTANCES = (
    "cache_dir",
    "output_dir",
    "rounds_per_checkpoint",
    "tensorboard",
    "max_concurrent_clients",
)
# Flags for which only algorithms with local training have a use.
_LOCAL_TRAINING = (
    "client_learning_rate",
    "client_epochs",
    "client_rate_schedule",
    "client_rate_decay",
    "client_rate_decay_rounds",
    "client_rate_staircase",
)
# Flags for which only algorithms with a rate of the server have a use.
_SERVER_RATE = (
    "server_learning_rate",
    "server_rate_scaling",
    "reference_clients_per_round",
    "server_warm_up_rounds",
    "server_warm_up_from",
)
# Of each client schedule: the flags that it needs, and those that it can do without.
_SCHEDULES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "constant": ((), {}),
    "exponential": (
        ("client_rate_decay", "client_rate_decay_rounds"),
        {"client_rate_staircase": True},
    ),
    "per_round_factor": (("client_rate_decay",), {}),
    "inverse_sqrt": ((), {"client_rate_decay_rounds": 1}),
}
_CLIPPING = {
    "clipping_quantile": 0.8,
    "clipping_initial_norm": 1.0,
    "clipping_learning_rate": 0.2,
}


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
    """

    configuration: Mapping[str, Any]
    circumstances: Mapping[str, Any]

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
            for flag in _option_flags(self.task).values()
        }


def _option_flags(task: str) -> dict[str, Flag]:
    """Returns the flags that set options of a task."""
    options = catalogue.tasks()[task].options
    return {name: flag for name, flag in FLAGS.items() if flag.option in options}


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
    _check_task_options(arguments)
    _check_hyperparameters(arguments, algorithms)
    _check_rates(arguments, algorithms)
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
    values = arguments.values
    task = values["task"]
    configuration: dict[str, Any] = {"task": task, "algorithm": algorithm, "seed": seed}
    skipped = (*_CIRCUMSTANCES, "algorithms", "seeds")
    for name, flag in FLAGS.items():
        if name not in skipped and flag.group not in (HYPERPARAMETERS, TASK_OPTIONS):
            configuration.setdefault(name, values.get(name))
    of_task = defaults.of_task(task)
    for name in ("rounds", "clients_per_round", "rounds_per_evaluation"):
        _default(configuration, name, getattr(of_task, name))
    rates = defaults.rates(task, algorithm)
    _default(configuration, "client_learning_rate", rates.client)
    _default(configuration, "server_learning_rate", rates.server)
    configuration.update(_resolve_schedules(arguments, of_task.clients_per_round))
    configuration.update(_resolve_clipping(arguments))
    for name, hyperparameter in catalogue.algorithms()[
        algorithm
    ].hyperparameters.items():
        configuration[name] = _given_or(
            arguments, name, rates.hyperparameters.get(name, hyperparameter.default)
        )
    for name, flag in _option_flags(task).items():
        default = catalogue.tasks()[task].options[flag.option].default
        if name == "client_epochs" and of_task.client_epochs is not None:
            default = of_task.client_epochs
        configuration[name] = _given_or(arguments, name, default)
    _default(configuration, "weighting", catalogue.algorithms()[algorithm].weighting)
    if not catalogue.algorithms()[algorithm].has_client_rate:
        configuration.update(dict.fromkeys(_LOCAL_TRAINING))
        # A full gradient over several epochs is the same gradient.
        configuration["client_epochs"] = 1
    if not catalogue.algorithms()[algorithm].has_server_rate:
        configuration.update(dict.fromkeys(_SERVER_RATE))
    return configuration


def _default(configuration: dict[str, Any], name: str, value: Any) -> None:
    if configuration[name] is None:
        configuration[name] = value


def _given_or(arguments: Arguments, name: str, default: Any) -> Any:
    return arguments.values[name] if name in arguments.given else default


def _check_task_options(arguments: Arguments) -> None:
    task = arguments.values["task"]
    of_task = _option_flags(task)
    for name in sorted(arguments.given):
        flag = FLAGS[name]
        if flag.option and name not in of_task:
            raise UserError(
                f"--{name} is no option of task {task}, which has {_list(of_task)}."
            )
        if flag.option and arguments.values[name] is None:
            option = catalogue.tasks()[task].options[flag.option]
            if not option.may_be_none:
                raise UserError(f"--{name} cannot be none for task {task}.")


def _check_hyperparameters(arguments: Arguments, algorithms: Collection[str]) -> None:
    """Checks that each hyperparameter given is one of an algorithm at least."""
    names = {
        name
        for algorithm in algorithms
        for name in catalogue.algorithms()[algorithm].hyperparameters
    }
    for name in sorted(arguments.given):
        if FLAGS[name].group == HYPERPARAMETERS and name not in names:
            has = f"has {_list(sorted(names))}" if names else "has none"
            raise UserError(
                f"--{name} is no hyperparameter of {' or '.join(algorithms)}, which "
                f"{has}."
            )


def _check_rates(arguments: Arguments, algorithms: Collection[str]) -> None:
    """Checks that each flag on a rate is of use to an algorithm at least."""
    known = catalogue.algorithms()
    has_client_rate = any(known[name].has_client_rate for name in algorithms)
    has_server_rate = any(known[name].has_server_rate for name in algorithms)
    for names, has_rate, reason in (
        (_LOCAL_TRAINING, has_client_rate, "clients send gradients and do not train"),
        (_SERVER_RATE, has_server_rate, "server's step has no learning rate"),
    ):
        for name in names:
            if name in arguments.given and not has_rate:
                raise UserError(
                    f"--{name} has no meaning for {' or '.join(algorithms)}, whose "
                    f"{reason}."
                )


def _list(names: Collection[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _resolve_schedules(arguments: Arguments, tuned_cohort: int) -> dict[str, Any]:
    values, given = arguments.values, arguments.given
    schedule = values["client_rate_schedule"]
    needed, optional = _SCHEDULES[schedule]
    resolved: dict[str, Any] = dict.fromkeys(
        ("client_rate_decay", "client_rate_decay_rounds", "client_rate_staircase")
    )
    for name in resolved:
        if name in given and name not in (*needed, *optional):
            raise UserError(
                f"--{name} has no meaning for --client_rate_schedule={schedule}."
            )
        if name in needed and name not in given:
            raise UserError(f"--client_rate_schedule={schedule} needs --{name}.")
        if name in (*needed, *optional):
            resolved[name] = _given_or(arguments, name, optional.get(name))
    scaled = values["server_rate_scaling"] != "none"
    _check_used(arguments, "reference_clients_per_round", "server_rate_scaling", scaled)
    warms_up = values["server_warm_up_rounds"] > 0
    _check_used(arguments, "server_warm_up_from", "server_warm_up_rounds", warms_up)
    start = _given_or(arguments, "server_warm_up_from", None)
    if start == "reference" and not scaled:
        raise UserError(
            "--server_warm_up_from=reference is the rate before scaling: it needs "
            "--server_rate_scaling."
        )
    if warms_up:
        start = start or ("reference" if scaled else "zero")
    resolved["server_warm_up_from"] = start
    if scaled:
        resolved["reference_clients_per_round"] = _given_or(
            arguments, "reference_clients_per_round", tuned_cohort
        )
    return resolved


def _resolve_clipping(arguments: Arguments) -> dict[str, Any]:
    clips = arguments.values["adaptive_clipping"]
    for name in _CLIPPING:
        _check_used(arguments, name, "adaptive_clipping", clips)
    return {
        name: _given_or(arguments, name, default) if clips else None
        for name, default in _CLIPPING.items()
    }


def _check_used(arguments: Arguments, name: str, switch: str, is_on: bool) -> None:
    if name in arguments.given and not is_on:
        value = show(arguments.values[switch])
        raise UserError(
            f"--{name} has no meaning without --{switch}, which is {value}."
        )
