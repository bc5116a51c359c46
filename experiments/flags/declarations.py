"""The flags of the command line: their names, kinds, defaults and help.

Three sources: the common flags below; the options of the methods; the options of the
tasks. A task's options `epochs` and `batch_size` are the common flags
`--client_epochs` and `--batch_size`. Any other has the flag of its own name, or, where
that is taken, `--task_<name>`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tasks
from tasks import Option
from tff_drift import from_source, kinds, method_rows

TRAIN, COMPARE, LIST, DATA, PRESET = "train", "compare", "list", "data", "preset"
_RUNS = (TRAIN, COMPARE)
_TASKS = (*_RUNS, DATA)
# Whose options flags set, with the headings of those that are of nobody else.
ALGORITHM, TASK = "algorithm", "task"
OPTION_GROUPS = {each: f"Options, each of some {each}s" for each in (ALGORITHM, TASK)}
# What flags may need to mean something: clients that take local steps, a server whose
# step has a learning rate.
LOCAL, SERVER = "local steps", "server rate"


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
      commands: The commands that have it.
      group: The heading under which help lists it.
      of: Whose option it sets: `ALGORITHM`, `TASK`, or nobody's.
      options: The options that it sets, by the algorithms or tasks that have them.
    """

    name: str
    kind: str
    default: Any
    help: str
    needs: str = ""
    choices: tuple[str, ...] = ()
    may_be_none: bool = False
    many: bool = False
    commands: tuple[str, ...] = _RUNS
    group: str = ""
    of: str = ""
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)

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
_CLIPPING = from_source.defaults(
    "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
)
_STAIRS = from_source.defaults("tff_drift.optimizers.schedules", "exponential")
_ROOT = from_source.defaults("tff_drift.optimizers.schedules", "inverse_sqrt")

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
             "The paper's protocol, for a GPU and official data, or one for two cores.",
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
             "Passes of a client over its data in a round.", LOCAL),
        Flag("batch_size", "count", _BY_TASK, "Examples in a client's batch.",
             may_be_none=True),
        Flag("client_weight_decay", "non_negative", 0.0,
             "Weight decay λ of local training.", LOCAL),
        Flag("gradient_clipping_norm", "positive", None,
             "Largest norm of a local gradient.", LOCAL, may_be_none=True),
        Flag("client_rate_schedule", "choice", "constant",
             "How the clients' rate changes over rounds.", LOCAL,
             choices=("constant", "exponential", "per_round_factor", "inverse_sqrt")),
        Flag("client_rate_decay", "fraction", None,
             "The schedule's factor, per --client_rate_decay_rounds or per round.",
             "client_rate_schedule=exponential|per_round_factor"),
        Flag("client_rate_decay_rounds", "count", _ROOT["decay_rounds"],
             "The schedule's time scale, in rounds.",
             "client_rate_schedule=exponential|inverse_sqrt"),
        Flag("client_rate_staircase", "flag", _STAIRS["staircase"],
             "Whether the schedule exponential falls in steps.",
             "client_rate_schedule=exponential"),
    ),
    "The server's step": (
        Flag("server_learning_rate", "positive", _BY_BOTH,
             "Rate of the server's step, per round.", SERVER),
        Flag("server_rate_scaling", "choice", "none",
             "Scale the server's rate by the cohort relative to what it was tuned for.",
             SERVER, choices=("none", "sqrt", "linear")),
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
             "Where clients' states are kept: in RAM, or in files in the run's folder.",
             choices=("ram", "disk")),
        Flag("measure_mismatch", "flag", False,
             "At evaluations, measure how far the server's control variate is from "
             "the mean of the clients'; reads the states of all clients seen."),
        Flag("execution", "choice", "local",
             "Where TFF runs: in this process, in its own worker, or on --workers.",
             choices=("local", "native", "remote"), commands=(*_RUNS, PRESET)),
        Flag("workers", "text", None,
             "Addresses host:port of workers, separated by commas; see docs/remote.md.",
             "execution=remote", many=True, commands=(*_RUNS, PRESET)),
        Flag("max_concurrent_clients", "count", Depends("the number of processors"),
             "Clients trained at a time.", "execution=local|native"),
    ),
}
# The options of tasks that are flags of the table.
_TASK_FLAGS = {"epochs": "client_epochs", "batch_size": "batch_size"}
# Of the data that a method needs its server or all clients to have.
_OF_NEEDS = {
    "meta_data": (
        Option("meta_fraction", "fraction", 0.01,
               "Share of the clients' examples that the server's data is drawn as."),
    ),
    "shared_data": (
        Option("share_fraction", "probability", 0.01,
               "Share of the clients' examples that is drawn to be public."),
        Option("share_split", "flag", True,
               "Cut the public examples up rather than give all to every client."),
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
    methods = from_source.methods()
    choices = dict.fromkeys(("algorithm", "algorithms"), tuple(methods))
    choices["task"] = tasks.names()
    flags = {
        each.name: dataclasses.replace(
            each, group=group, choices=choices.get(each.name, each.choices)
        )
        for group, of_group in _GROUPS.items()
        for each in of_group
    }
    of_methods = {name: _method_options(method) for name, method in methods.items()}
    for name, options in _by_flag(of_methods).items():
        flags[name] = _option_flag(name, ALGORITHM, options)
    of_tasks = {
        name: {_TASK_FLAGS.get(o.name, o.name): o for o in tasks.describe(name).options}
        for name in tasks.names()
    }
    for name, options in _by_flag(of_tasks).items():
        if name in _TASK_FLAGS.values():
            flags[name] = dataclasses.replace(flags[name], of=TASK, options=options)
        else:
            name = f"task_{name}" if name in flags else name
            flags[name] = _option_flag(name, TASK, options)
    return {name: flag for name, flag in flags.items() if command in flag.commands}


def values(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of all flags of a command: those given, else the defaults."""
    return {name: given.get(name, f.value) for name, f in flags_of(command).items()}


def options(of: str, name: str) -> dict[str, Option]:
    """Returns the options of an `ALGORITHM` or a `TASK` by the names of their flags."""
    return {
        flag.name: flag.options[name]
        for flag in flags_of(TRAIN).values()
        if flag.of == of and name in flag.options
    }


def _method_options(method: method_rows.Method) -> dict[str, Option]:
    """Returns what can be chosen of a method, by the names of the flags."""
    options = {}
    for each in method.options:
        name, default, none = each.name, method.defaults[each.name], each.may_be_none
        option = Option(name, each.kind, default, each.help, none, each.choices)
        options[each.flag] = option
    needed = [option for need in method.needs for option in _OF_NEEDS.get(need, ())]
    return {**options, **{option.name: option for option in needed}}


def _by_flag(holders: Mapping[str, dict[str, Option]]) -> dict[str, dict[str, Option]]:
    """Returns options by their flags and holders, given by their holders and flags."""
    names = dict.fromkeys(name for options in holders.values() for name in options)
    return {
        name: {each: of[name] for each, of in holders.items() if name in of}
        for name in names
    }


def _option_flag(name: str, of: str, options: Mapping[str, Option]) -> Flag:
    """Returns the flag for options of one name, given by their holders."""
    first, *_ = options.values()
    defaults: dict[str, list[str]] = {}
    for holder, option in options.items():
        defaults.setdefault(show(option.default), []).append(holder)
    return Flag(
        name,
        first.kind,
        # Such as "0.9 (fed_adam, fed_yogi); 0 (fed_adagrad)".
        Depends("; ".join(f"{v} ({', '.join(of)})" for v, of in defaults.items())),
        first.help,
        choices=tuple({c: None for option in options.values() for c in option.choices}),
        may_be_none=any(option.may_be_none for option in options.values()),
        commands=_TASKS if of == TASK else _RUNS,
        group=OPTION_GROUPS[of],
        of=of,
        options=options,
    )
