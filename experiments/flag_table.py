"""The flags of the command line: their names, kinds, help and defaults.

Three sources: the table of common flags below; the hyperparameters of the
algorithms; the options of the tasks. A task's options `epochs` and `batch_size`
are the common flags `--client_epochs` and `--batch_size`. Every other option has
the flag of its own name, or, where a common flag or a hyperparameter has that name
already, `--task_<name>`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from experiments import catalogue

TRAIN = "train"
COMPARE = "compare"
DATA = "data"
PRESET = "preset"
# Of the commands that take a task.
_ALL_COMMANDS = (TRAIN, COMPARE, DATA)

RUN = "What to run"
CLIENTS = "Training on clients"
SERVER = "The server's step"
AGGREGATION = "Aggregation"
RECORD = "Evaluation, output and speed"
HYPERPARAMETERS = "Hyperparameters, each of some algorithms"
TASK_OPTIONS = "Options, each of some tasks"


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag.

    Attributes:
      name: Its name, without dashes.
      kind: What values it takes, see `experiments.flag_values`.
      help: One sentence on what it does.
      group: The heading under which help lists it.
      default: Its value if it is not given; `None` if that depends on other flags.
      shown_default: How help tells the default where `default` is `None`.
      choices: The values of the kinds "choice" and "choices".
      may_be_none: Whether "none" is a value too.
      commands: The commands that have it.
      option: The option of tasks that it sets; empty if it sets none.
    """

    name: str
    kind: str
    help: str
    group: str
    default: Any = None
    shown_default: str = ""
    choices: tuple[str, ...] = ()
    may_be_none: bool = False
    commands: tuple[str, ...] = (TRAIN, COMPARE)
    option: str = ""


_BY_TASK, _BY_BOTH = "by task", "by task and algorithm"

_COMMON = (
    Flag(
        "task",
        "choice",
        "The task.",
        RUN,
        "digits",
        choices=tuple(catalogue.tasks()),
        commands=_ALL_COMMANDS,
    ),
    Flag(
        "algorithm",
        "choice",
        "The algorithm.",
        RUN,
        "fed_avg",
        choices=tuple(catalogue.algorithms()),
        commands=(TRAIN,),
    ),
    Flag(
        "algorithms",
        "choices",
        "The algorithms, separated by commas.",
        RUN,
        ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi"),
        choices=tuple(catalogue.algorithms()),
        commands=(COMPARE,),
    ),
    Flag("rounds", "count", "Rounds of training.", RUN, shown_default=_BY_TASK),
    Flag(
        "clients_per_round",
        "count",
        "The cohort: clients sampled in every round.",
        RUN,
        shown_default=_BY_TASK,
    ),
    Flag(
        "seed",
        "whole",
        "Seed of the split, the initial model, sampling and shuffling.",
        RUN,
        1,
        commands=(TRAIN, DATA),
    ),
    Flag(
        "seeds",
        "wholes",
        "Seeds, separated by commas: each algorithm runs once with each.",
        RUN,
        (1, 2, 3),
        commands=(COMPARE, PRESET),
    ),
    Flag(
        "scale",
        "choice",
        "The published protocol, for a machine with a GPU and the official data, or "
        "a small one for two cores.",
        RUN,
        "local",
        choices=("local", "paper"),
        commands=(PRESET,),
    ),
    Flag(
        "parts",
        "texts",
        "The parts of the preset to run, separated by commas.",
        RUN,
        shown_default="all",
        commands=(PRESET,),
    ),
    Flag(
        "cache_dir",
        "text",
        "Folder with the unpacked SQLite files of TFF's data sets.",
        RUN,
        shown_default="~/.tff",
        commands=(*_ALL_COMMANDS, PRESET),
    ),
    Flag(
        "client_learning_rate",
        "positive",
        "Rate of the clients' SGD, per local step.",
        CLIENTS,
        shown_default=_BY_BOTH,
    ),
    Flag(
        "client_epochs",
        "count",
        "Passes of a client over its data in a round.",
        CLIENTS,
        shown_default=_BY_TASK,
        option="epochs",
    ),
    Flag(
        "batch_size",
        "count",
        "Examples in a client's batch.",
        CLIENTS,
        shown_default=_BY_TASK,
        may_be_none=True,
        option="batch_size",
    ),
    Flag(
        "client_rate_schedule",
        "choice",
        "How the clients' rate changes over rounds.",
        CLIENTS,
        "constant",
        choices=("constant", "exponential", "per_round_factor", "inverse_sqrt"),
    ),
    Flag(
        "client_rate_decay",
        "fraction",
        "The factor of the schedules exponential (per --client_rate_decay_rounds) "
        "and per_round_factor.",
        CLIENTS,
    ),
    Flag(
        "client_rate_decay_rounds",
        "count",
        "The time scale of the schedules exponential and inverse_sqrt, in rounds.",
        CLIENTS,
    ),
    Flag(
        "client_rate_staircase",
        "flag",
        "Whether the schedule exponential falls in steps.",
        CLIENTS,
        shown_default="true",
    ),
    Flag(
        "server_learning_rate",
        "positive",
        "Rate of the server's step, per round.",
        SERVER,
        shown_default=_BY_BOTH,
    ),
    Flag(
        "server_rate_scaling",
        "choice",
        "Scale the server's rate by the cohort size, relative to the one it was "
        "tuned for.",
        SERVER,
        "none",
        choices=("none", "sqrt", "linear"),
    ),
    Flag(
        "reference_clients_per_round",
        "count",
        "The cohort size that the server's rate was tuned for.",
        SERVER,
        shown_default="the task's default cohort",
    ),
    Flag(
        "server_warm_up_rounds",
        "whole",
        "Rounds until the server's rate is full, linearly.",
        SERVER,
        0,
    ),
    Flag(
        "server_warm_up_from",
        "choice",
        "Where the warm-up starts: at 0, or at the rate before scaling.",
        SERVER,
        shown_default="reference with scaling, else zero",
        choices=("reference", "zero"),
    ),
    Flag(
        "weighting",
        "choice",
        "How much a client counts: its number of examples, or all the same.",
        AGGREGATION,
        shown_default="by algorithm",
        choices=("num_examples", "uniform"),
    ),
    Flag(
        "adaptive_clipping",
        "flag",
        "Clip clients' updates to a norm that follows a quantile of their norms.",
        AGGREGATION,
        False,
    ),
    Flag(
        "clipping_quantile",
        "probability",
        "The share of updates that adaptive clipping is to leave alone.",
        AGGREGATION,
        shown_default="0.8",
    ),
    Flag(
        "clipping_initial_norm",
        "positive",
        "The norm that adaptive clipping starts from.",
        AGGREGATION,
        shown_default="1.0",
    ),
    Flag(
        "clipping_learning_rate",
        "non_negative",
        "How fast the norm of adaptive clipping follows.",
        AGGREGATION,
        shown_default="0.2",
    ),
    Flag(
        "cohort_measurements",
        "flag",
        "Measure norms and cosines of clients' updates; changes no result.",
        AGGREGATION,
        False,
    ),
    Flag(
        "rounds_per_evaluation",
        "count",
        "Rounds from one evaluation on the test clients to the next.",
        RECORD,
        shown_default=_BY_TASK,
    ),
    Flag(
        "max_evaluation_clients",
        "count",
        "Evaluate on so many test clients, drawn once.",
        RECORD,
        shown_default="all",
    ),
    Flag(
        "output_dir",
        "text",
        "Folder for the results; a run found there goes on.",
        RECORD,
        shown_default="under results/",
        commands=(*_ALL_COMMANDS, PRESET),
    ),
    Flag(
        "rounds_per_checkpoint",
        "count",
        "Rounds from one checkpoint to the next.",
        RECORD,
        10,
    ),
    Flag("tensorboard", "flag", "Write TensorBoard events too.", RECORD, False),
    Flag(
        "client_states",
        "choice",
        "Where clients' memory is kept, for methods whose clients have any: in the "
        "program and its checkpoint, or in files in the run's folder.",
        RECORD,
        "memory",
        choices=("memory", "disk"),
    ),
    Flag(
        "measure_mismatch",
        "flag",
        "At evaluations, measure how far the server's control variate is from the "
        "mean of the clients'; reads the memory of all clients seen.",
        RECORD,
        False,
    ),
    Flag(
        "execution",
        "choice",
        "Where TFF computations run: in this process, in TFF's own worker, or on "
        "the --workers of other machines.",
        RECORD,
        "local",
        choices=("local", "native", "remote"),
        commands=(TRAIN, COMPARE, PRESET),
    ),
    Flag(
        "workers",
        "texts",
        "Addresses host:port of the workers of --execution=remote, separated by "
        "commas; see docs/remote.md.",
        RECORD,
        commands=(TRAIN, COMPARE, PRESET),
    ),
    Flag(
        "max_concurrent_clients",
        "count",
        "Clients trained at a time.",
        RECORD,
        shown_default="the number of processors",
    ),
)


def show(value: Any) -> str:
    """Returns a value as one would write it on the command line."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(show, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_defaults(holders: Mapping[str, Any]) -> str:
    """Returns defaults with their holders, such as "0.9 (fed_adam, fed_yogi)"."""
    names: dict[str, list[str]] = {}
    for name, holder in holders.items():
        names.setdefault(show(holder.default), []).append(name)
    return "; ".join(f"{text} ({', '.join(of)})" for text, of in names.items())


def _by_name(holders: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Turns `{holder: {name: value}}` inside out, to `{name: {holder: value}}`."""
    result: dict[str, dict[str, Any]] = {}
    for holder, values in holders.items():
        for name, value in values.items():
            result.setdefault(name, {})[holder] = value
    return result


def _hyperparameter_flags() -> tuple[Flag, ...]:
    algorithms = {
        name: algorithm.hyperparameters
        for name, algorithm in catalogue.algorithms().items()
    }
    return tuple(
        Flag(
            name,
            next(iter(holders.values())).kind,
            next(iter(holders.values())).help,
            HYPERPARAMETERS,
            shown_default=_show_defaults(holders),
            choices=next(iter(holders.values())).choices,
            may_be_none=any(holder.may_be_none for holder in holders.values()),
        )
        for name, holders in _by_name(algorithms).items()
    )


def _task_option_flags(others: tuple[Flag, ...]) -> tuple[Flag, ...]:
    taken = {flag.name for flag in others}
    covered = {flag.option for flag in others}
    tasks = {name: task.options for name, task in catalogue.tasks().items()}
    return tuple(
        Flag(
            f"task_{name}" if name in taken else name,
            next(iter(holders.values())).kind,
            next(iter(holders.values())).help,
            TASK_OPTIONS,
            shown_default=_show_defaults(holders),
            # Of all tasks that have the option, in order.
            choices=tuple(
                dict.fromkeys(
                    choice for option in holders.values() for choice in option.choices
                )
            ),
            may_be_none=any(option.may_be_none for option in holders.values()),
            commands=_ALL_COMMANDS,
            option=name,
        )
        for name, holders in _by_name(tasks).items()
        if name not in covered
    )


def _all_flags() -> tuple[Flag, ...]:
    flags = (*_COMMON, *_hyperparameter_flags())
    return (*flags, *_task_option_flags(flags))


FLAGS: dict[str, Flag] = {flag.name: flag for flag in _all_flags()}


def flags_of(command: str) -> dict[str, Flag]:
    """Returns the flags of a command by name, in the order to list them.

    Args:
      command: "train", "compare", "data" or "preset".
    """
    return {name: flag for name, flag in FLAGS.items() if command in flag.commands}
