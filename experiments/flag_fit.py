"""Which flags have a meaning together, and with which algorithm and task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from experiments import catalogue
from experiments.command_line import Arguments
from experiments.errors import UserError
from experiments.flag_table import FLAGS, HYPERPARAMETERS, Flag, show

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
_SCHEDULE_PARAMETERS = (
    "client_rate_decay",
    "client_rate_decay_rounds",
    "client_rate_staircase",
)
# Of each client schedule: the parameters that it needs, and those that it may have.
_SCHEDULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": ((), ()),
    "exponential": (
        ("client_rate_decay", "client_rate_decay_rounds"),
        ("client_rate_staircase",),
    ),
    "per_round_factor": (("client_rate_decay",), ()),
    "inverse_sqrt": ((), ("client_rate_decay_rounds",)),
}
# Flags that depend on a switch, by the switch.
_SWITCHED = {
    "adaptive_clipping": (
        "clipping_quantile",
        "clipping_initial_norm",
        "clipping_learning_rate",
    ),
    "server_rate_scaling": ("reference_clients_per_round",),
    "server_warm_up_rounds": ("server_warm_up_from",),
}
_OFF = (False, "none", 0)


def option_flags(task: str) -> dict[str, Flag]:
    """Returns the flags that set options of a task, by name.

    Args:
      task: The task's name.
    """
    options = catalogue.tasks()[task].options
    return {name: flag for name, flag in FLAGS.items() if flag.option in options}


def meaningless(values: Mapping[str, Any], algorithm: str) -> dict[str, str]:
    """Returns the common flags that mean nothing for a run, each with the reason.

    Args:
      values: The flags' values.
      algorithm: The run's algorithm.
    """
    entry = catalogue.algorithms()[algorithm]
    schedule = values["client_rate_schedule"]
    needed, optional = _SCHEDULES[schedule]
    reasons = {
        name: f"for --client_rate_schedule={schedule}"
        for name in _SCHEDULE_PARAMETERS
        if name not in (*needed, *optional)
    }
    for switch, names in _SWITCHED.items():
        if values[switch] in _OFF:
            reason = f"without --{switch}, which is {show(values[switch])}"
            reasons.update(dict.fromkeys(names, reason))
    if not entry.has_client_rate:
        reason = f"for {algorithm}, whose clients send gradients and do not train"
        reasons.update(dict.fromkeys(_LOCAL_TRAINING, reason))
    if not entry.has_server_rate:
        reason = f"for {algorithm}, whose server's step has no learning rate"
        reasons.update(dict.fromkeys(_SERVER_RATE, reason))
    return reasons


def check(arguments: Arguments, algorithms: Collection[str]) -> None:
    """Raises if a flag was given that means nothing, or one lacks that is needed.

    A flag that means something for one of the algorithms may be given.

    Args:
      arguments: The command's flags.
      algorithms: The algorithms to be run.

    Raises:
      UserError: If the flags do not fit.
    """
    check_task_options(arguments)
    _check_hyperparameters(arguments, algorithms)
    _check_execution(arguments)
    values = arguments.values
    reasons = [meaningless(values, algorithm) for algorithm in algorithms]
    for name in sorted(arguments.given):
        if all(name in of_algorithm for of_algorithm in reasons):
            raise UserError(f"--{name} has no meaning {reasons[0][name]}.")
    schedule = values["client_rate_schedule"]
    for name in _SCHEDULES[schedule][0]:
        if name not in arguments.given:
            raise UserError(f"--client_rate_schedule={schedule} needs --{name}.")
    if (
        values["server_warm_up_from"] == "reference"
        and values["server_rate_scaling"] == "none"
    ):
        raise UserError(
            "--server_warm_up_from=reference is the rate before scaling: it needs "
            "--server_rate_scaling."
        )


def check_task_options(arguments: Arguments) -> None:
    """Raises if an option was given that the task does not have.

    Args:
      arguments: The command's flags.

    Raises:
      UserError: If an option does not fit the task.
    """
    task = arguments.values["task"]
    of_task = option_flags(task)
    for name in sorted(arguments.given):
        flag = FLAGS[name]
        if not flag.option:
            continue
        if name not in of_task:
            raise UserError(
                f"--{name} is no option of task {task}, which has {_list(of_task)}."
            )
        option = catalogue.tasks()[task].options[flag.option]
        if arguments.values[name] is None and not option.may_be_none:
            raise UserError(f"--{name} cannot be none for task {task}.")


def _check_hyperparameters(arguments: Arguments, algorithms: Collection[str]) -> None:
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


def _check_execution(arguments: Arguments) -> None:
    is_remote = arguments.values["execution"] == "remote"
    if is_remote and not arguments.values["workers"]:
        raise UserError(
            "--execution=remote needs --workers=host:port,... Start one on every "
            "machine with: python -m tff_drift.execution.start_worker --port=8000"
        )
    if not is_remote and "workers" in arguments.given:
        raise UserError(
            f"--workers has no meaning for --execution={arguments.values['execution']}."
        )
    if is_remote and "max_concurrent_clients" in arguments.given:
        raise UserError(
            "--max_concurrent_clients has no meaning for --execution=remote: every "
            "worker is started with its own."
        )


def _list(names: Collection[str]) -> str:
    return ", ".join(f"--{name}" for name in names)
