"""The flags of the command line: their names, kinds, defaults and help.

Three sources: the common flags below; the options of the methods; the options of the
tasks. A task's options `epochs` and `batch_size` are the common flags
`--client_epochs` and `--batch_size`. Every other option has the flag of its own name,
or, where that is taken, `--task_<name>`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tasks
from experiments.flags import methods
from tff_drift import kinds

TRAIN, COMPARE, LIST, DATA, PRESET = "train", "compare", "list", "data", "preset"
_RUNS = (TRAIN, COMPARE)
_TASKS = (*_RUNS, DATA)
METHOD_OPTIONS = "Options, each of some algorithms"
TASK_OPTIONS = "Options, each of some tasks"
# What flags may need to mean something: clients that take local steps, a server whose
# step has a learning rate, data that a method's server or all clients are to have.
LOCAL, SERVER = "local steps", "server rate"
META_DATA, SHARED_DATA = "meta_data", "shared_data"


class Depends(str):
    """A default that other flags decide, as help tells it."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag.

    Attributes:
      name: Its name, without dashes.
      kind: What values it takes: one of `tff_drift.kinds.KINDS`, or "choice".
      default: Its value if it is not given, or a `Depends`.
      help: One sentence on what it does.
      needs: What a run must have for the flag to mean something: one of the constants
        above, a flag that is on ("switch"), or one with some value ("name=one|other").
      choices: The values of the kind "choice".
      may_be_none: Whether "none" is a value too.
      many: Whether it takes several values, separated by commas.
      option: The option of tasks that it sets; empty if it sets none.
      commands: The commands that have it.
      group: The heading under which help lists it.
    """

    name: str
    kind: str
    default: Any
    help: str
    needs: str = ""
    choices: tuple[str, ...] = ()
    may_be_none: bool = False
    many: bool = False
    option: str = ""
    commands: tuple[str, ...] = _RUNS
    group: str = ""

    @property
    def value(self) -> Any:
        """The default, `None` where other flags decide it."""
        return None if isinstance(self.default, Depends) else self.default

    def check(self, value: Any) -> None:
        """Raises a `TypeError` or a `ValueError` unless it is a value of the flag."""
        name = f"--{self.name}"
        for each in value if self.many else (value,):
            kinds.check(name, each, self.kind, self.choices, self.may_be_none)


_BY_TASK, _BY_BOTH = Depends("by task"), Depends("by task and algorithm")
_ALL = Depends("all")
_CLIPPING = methods.signature(
    "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
)
_STAIRS = methods.signature("tff_drift.optimizers.schedules", "exponential")
_ROOT = methods.signature("tff_drift.optimizers.schedules", "inverse_sqrt")

# A table, laid out by hand: name, kind, default, help, and what else there is to say.
# fmt: off
_GROUPS: dict[str, tuple[Flag, ...]] = {
    "What to run": (
        Flag("task", "choice", "digits", "The task.", commands=_TASKS),
        Flag("algorithm", "choice", "fed_avg", "The algorithm.", commands=(TRAIN,)),
        Flag("algorithms", "choice",
             ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi"),
             "The algorithms, separated by commas.", many=True, commands=(COMPARE,)),
        Flag("rounds", "count", _BY_TASK, "Rounds of training."),
        Flag("clients_per_round", "count", _BY_TASK,
             "The cohort: clients sampled in every round."),
        Flag("seed", "seed", 1,
             "Seed of the split, the initial model, sampling and shuffling.",
             commands=(TRAIN, DATA)),
        Flag("seeds", "seed", (1, 2, 3),
             "Seeds, separated by commas: each algorithm runs once with each.",
             many=True, commands=(COMPARE, PRESET)),
        Flag("scale", "choice", "local",
             "The published protocol, for a machine with a GPU and the official data, "
             "or a small one for two cores.",
             choices=("local", "paper"), commands=(PRESET,)),
        Flag("parts", "text", _ALL,
             "The parts of the preset to run, separated by commas.",
             many=True, commands=(PRESET,)),
        Flag("cache_dir", "text", Depends("~/.tff"),
             "Folder with the unpacked SQLite files of TFF's data sets.",
             commands=(*_TASKS, PRESET)),
        Flag("plugin", "text", None,
             "Python files, separated by commas, that register algorithms or tasks.",
             many=True, commands=(*_TASKS, LIST)),
    ),
    "Training on clients": (
        Flag("client_learning_rate", "positive", _BY_BOTH,
             "Rate of the clients' SGD, per local step.", LOCAL),
        Flag("client_epochs", "count", _BY_TASK,
             "Passes of a client over its data in a round.", LOCAL, option="epochs"),
        Flag("batch_size", "count", _BY_TASK, "Examples in a client's batch.",
             may_be_none=True, option="batch_size"),
        Flag("client_weight_decay", "non_negative", 0.0,
             "Weight decay λ of local training.", LOCAL),
        Flag("gradient_clipping_norm", "positive", None,
             "Largest norm of a local gradient.", LOCAL, may_be_none=True),
        Flag("client_rate_schedule", "choice", "constant",
             "How the clients' rate changes over rounds.", LOCAL,
             choices=("constant", "exponential", "per_round_factor", "inverse_sqrt")),
        Flag("client_rate_decay", "fraction", None,
             "The factor of the schedules exponential (per --client_rate_decay_rounds) "
             "and per_round_factor.",
             "client_rate_schedule=exponential|per_round_factor"),
        Flag("client_rate_decay_rounds", "count", _ROOT["decay_rounds"],
             "The time scale of the schedules exponential and inverse_sqrt, in rounds.",
             "client_rate_schedule=exponential|inverse_sqrt"),
        Flag("client_rate_staircase", "flag", _STAIRS["staircase"],
             "Whether the schedule exponential falls in steps.",
             "client_rate_schedule=exponential"),
    ),
    "The server's step": (
        Flag("server_learning_rate", "positive", _BY_BOTH,
             "Rate of the server's step, per round.", SERVER),
        Flag("server_rate_scaling", "choice", "none",
             "Scale the server's rate by the cohort size, relative to the one it was "
             "tuned for.", SERVER, choices=("none", "sqrt", "linear")),
        Flag("reference_clients_per_round", "count",
             Depends("the task's default cohort"),
             "The cohort size that the server's rate was tuned for.",
             "server_rate_scaling"),
        Flag("server_warm_up_rounds", "whole", 0,
             "Rounds until the server's rate is full, linearly.", SERVER),
        Flag("server_warm_up_from", "choice",
             Depends("reference with scaling, else zero"),
             "Where the warm-up starts: at 0, or at the rate before scaling.",
             "server_warm_up_rounds", choices=("reference", "zero")),
    ),
    "Aggregation": (
        Flag("weighting", "choice", Depends("by algorithm"),
             "How much a client counts: its number of examples, or all the same.",
             choices=("num_examples", "uniform")),
        Flag("adaptive_clipping", "flag", False,
             "Clip clients' updates to a norm that follows a quantile of their norms."),
        Flag("clipping_quantile", "probability", _CLIPPING["target_quantile"],
             "The share of updates that adaptive clipping is to leave alone.",
             "adaptive_clipping"),
        Flag("clipping_initial_norm", "positive", _CLIPPING["initial_clipping_norm"],
             "The norm that adaptive clipping starts from.", "adaptive_clipping"),
        Flag("clipping_learning_rate", "non_negative", _CLIPPING["learning_rate"],
             "How fast the norm of adaptive clipping follows.", "adaptive_clipping"),
        Flag("cohort_measurements", "flag", False,
             "Measure norms and cosines of clients' updates; changes no result."),
    ),
    "Evaluation, output and speed": (
        Flag("rounds_per_evaluation", "count", _BY_TASK,
             "Rounds from one evaluation on the test clients to the next."),
        Flag("max_evaluation_clients", "count", _ALL,
             "Evaluate on so many test clients, drawn once."),
        Flag("output_dir", "text", Depends("under results/"),
             "Folder for the results; a run found there goes on.",
             commands=(*_TASKS, PRESET)),
        Flag("rounds_per_checkpoint", "count", 10,
             "Rounds from one checkpoint to the next."),
        Flag("tensorboard", "flag", False, "Write TensorBoard events too."),
        Flag("client_states", "choice", "ram",
             "Where clients' states are kept, for methods whose clients have any: in "
             "RAM and the checkpoint, or in files in the run's folder.",
             choices=("ram", "disk")),
        Flag("measure_mismatch", "flag", False,
             "At evaluations, measure how far the server's control variate is from "
             "the mean of the clients'; reads the states of all clients seen."),
        Flag("execution", "choice", "local",
             "Where TFF computations run: in this process, in TFF's own worker, or on "
             "the --workers of other machines.",
             choices=("local", "native", "remote"), commands=(*_RUNS, PRESET)),
        Flag("workers", "text", None,
             "Addresses host:port of the workers of --execution=remote, separated by "
             "commas. Start each with python -m tff_drift.execution.start_worker; see "
             "docs/remote.md.",
             "execution=remote", many=True, commands=(*_RUNS, PRESET)),
        Flag("max_concurrent_clients", "count", Depends("the number of processors"),
             "Clients trained at a time.", "execution=local|native"),
    ),
    # Of the data that some methods' servers, or all their clients, have besides.
    METHOD_OPTIONS: (
        Flag("meta_fraction", "fraction", 0.01,
             "Share of the clients' examples that the server's data is drawn as.",
             META_DATA),
        Flag("share_fraction", "probability", 0.01,
             "Share of the clients' examples that is drawn to be public.", SHARED_DATA),
        Flag("share_split", "flag", True,
             "Cut the public examples up rather than give all to every client.",
             SHARED_DATA),
    ),
}
# fmt: on


def show(value: Any) -> str:
    """Returns a value as one would write it on the command line."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(show, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def flags_of(command: str) -> dict[str, Flag]:
    """Returns the flags of a command by name, in the order to list them."""
    names = dict.fromkeys(("algorithm", "algorithms"), tuple(methods.methods()))
    names["task"] = tasks.names()
    flags = {
        each.name: dataclasses.replace(
            each, group=group, choices=names.get(each.name, each.choices)
        )
        for group, of_group in _GROUPS.items()
        for each in of_group
    }
    flags.update(_option_flags({m.name: m.options for m in methods.methods().values()}))
    covered = {flag.option for flag in flags.values()}
    options = {
        name: {o.name: o for o in tasks.describe(name).options if o.name not in covered}
        for name in tasks.names()
    }
    for name, flag in _option_flags(options).items():
        name = f"task_{name}" if name in flags else name
        flags[name] = dataclasses.replace(
            flag, name=name, option=flag.name, group=TASK_OPTIONS, commands=_TASKS
        )
    return {name: flag for name, flag in flags.items() if command in flag.commands}


def values(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of all flags of a command: those given, else the defaults."""
    return {name: given.get(name, f.value) for name, f in flags_of(command).items()}


def _option_flags(holders: Mapping[str, Mapping[str, Any]]) -> dict[str, Flag]:
    """Returns the flags for options by their names, given by their holders."""
    by_name: dict[str, dict[str, Any]] = {}
    for holder, options in holders.items():
        for name, option in options.items():
            by_name.setdefault(name, {})[holder] = option
    flags = {}
    for name, of_name in by_name.items():
        first, *_ = of_name.values()
        defaults: dict[str, list[str]] = {}
        for holder, option in of_name.items():
            defaults.setdefault(show(option.default), []).append(holder)
        flags[name] = Flag(
            name,
            first.kind,
            # Such as "0.9 (fed_adam, fed_yogi); 0 (fed_adagrad)".
            Depends("; ".join(f"{v} ({', '.join(of)})" for v, of in defaults.items())),
            first.help,
            choices=tuple({c: None for o in of_name.values() for c in o.choices}),
            may_be_none=any(option.may_be_none for option in of_name.values()),
            group=METHOD_OPTIONS,
        )
    return flags
