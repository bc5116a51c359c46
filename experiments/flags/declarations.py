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
from tff_drift import from_source, kinds
from tff_drift.kinds import Option

TRAIN, COMPARE, LIST, DATA, PRESET = "train", "compare", "list", "data", "preset"
_RUNS = (TRAIN, COMPARE)
_TASKS = (*_RUNS, DATA)
# Whose options flags set.
ALGORITHM, TASK = "algorithm", "task"
# What flags may need to mean something: clients that take local steps, a server whose
# step has a learning rate.
LOCAL, SERVER = "local steps", "server rate"
# The headings of what plugins add to, and of flags that results do not depend on.
WHAT, CIRCUMSTANCES = "What to run", "Files and speed"
OPTION_GROUPS = {each: f"Options, each of some {each}s" for each in (ALGORITHM, TASK)}


class Depends(str):
    """A default that other flags decide, as help tells it."""


@dataclasses.dataclass(frozen=True)
class Flag(Option):
    """A flag: something to choose, with its place on the command line.

    Attributes:
      needs: What a run must have for the flag to mean something: one of the constants
        above, a flag that is on ("switch"), or one with some value ("name=one|other").
      requires: The flags that must be given too, by the values that require them.
      many: Whether it takes several values, separated by commas.
      commands: The commands that have it.
      group: The heading under which help lists it.
      of: Whose option it sets: `ALGORITHM`, `TASK`, or nobody's.
      options: The options that it sets, by the algorithms or tasks that have them.
    """

    needs: str = ""
    requires: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    many: bool = False
    commands: tuple[str, ...] = _RUNS
    group: str = ""
    of: str = ""
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The default, `None` where other flags decide it."""
        return None if isinstance(self.default, Depends) else self.default


_BY_TASK, _BY_BOTH = Depends("by task"), Depends("by task and algorithm")
_ALL = Depends("all")
_CLIPPING = from_source.defaults(
    "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
)
_STAIRS = from_source.defaults("tff_drift.optimizers.schedules", "exponential")
_ROOT = from_source.defaults("tff_drift.optimizers.schedules", "inverse_sqrt")


# A table, laid out by hand: name, kind, help, default, and what else there is to say.
# fmt: off
def _named() -> tuple[Flag, ...]:
    """Returns the flags whose values are names, which plugins add to."""
    methods = tuple(from_source.methods())
    five = ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi")
    return (
        Flag("task", "choice", "The task.", "digits", choices=tasks.names(),
             commands=_TASKS),
        Flag("algorithm", "choice", "The algorithm.", "fed_avg", choices=methods,
             commands=(TRAIN,)),
        Flag("algorithms", "choice", "The algorithms, separated by commas.", five,
             choices=methods, many=True, commands=(COMPARE,)),
    )


_GROUPS: dict[str, tuple[Flag, ...]] = {
    WHAT: (
        Flag("rounds", "count", "Rounds of training.", _BY_TASK),
        Flag("clients_per_round", "count",
             "The cohort: clients sampled in every round.", _BY_TASK),
        Flag("seed", "seed",
             "Seed of the split, the initial model, sampling and shuffling.", 1,
             commands=(TRAIN, DATA)),
        Flag("seeds", "seed",
             "Seeds, separated by commas: each algorithm runs once with each.",
             (1, 2, 3), many=True, commands=(COMPARE, PRESET)),
    ),
    "Training on clients": (
        Flag("client_learning_rate", "positive",
             "Rate of the clients' SGD, per local step.", _BY_BOTH, needs=LOCAL),
        Flag("client_epochs", "count",
             "Passes of a client over its data in a round.", _BY_TASK, needs=LOCAL,
             of=TASK),
        Flag("batch_size", "count", "Examples in a client's batch.", _BY_TASK,
             may_be_none=True, of=TASK),
        Flag("client_weight_decay", "non_negative",
             "Weight decay λ of local training.", 0.0, needs=LOCAL),
        Flag("gradient_clipping_norm", "positive",
             "Largest norm of a local gradient.", may_be_none=True, needs=LOCAL),
        Flag("client_rate_schedule", "choice",
             "How the clients' rate changes over rounds.", "constant", needs=LOCAL,
             choices=("constant", "exponential", "per_round_factor", "inverse_sqrt"),
             requires={
                 "exponential": ("client_rate_decay", "client_rate_decay_rounds"),
                 "per_round_factor": ("client_rate_decay",),
             }),
        Flag("client_rate_decay", "fraction",
             "The schedule's factor, per --client_rate_decay_rounds or per round.",
             needs="client_rate_schedule=exponential|per_round_factor"),
        Flag("client_rate_decay_rounds", "count",
             "The schedule's time scale, in rounds.", _ROOT["decay_rounds"],
             needs="client_rate_schedule=exponential|inverse_sqrt"),
        Flag("client_rate_staircase", "flag",
             "Whether the schedule exponential falls in steps.", _STAIRS["staircase"],
             needs="client_rate_schedule=exponential"),
    ),
    "The server's step": (
        Flag("server_learning_rate", "positive",
             "Rate of the server's step, per round.", _BY_BOTH, needs=SERVER),
        Flag("server_rate_scaling", "choice",
             "Scale the server's rate by the cohort relative to what it was tuned for.",
             "none", needs=SERVER, choices=("none", "sqrt", "linear")),
        Flag("reference_clients_per_round", "count",
             "The cohort size that the server's rate was tuned for.",
             Depends("the task's default cohort"), needs="server_rate_scaling"),
        Flag("server_warm_up_rounds", "whole",
             "Rounds until the server's rate is full, linearly.", 0, needs=SERVER),
        Flag("server_warm_up_from", "choice",
             "Where the warm-up starts: at 0, or at the rate before scaling.",
             Depends("reference with scaling, else zero"),
             choices=("reference", "zero"), needs="server_warm_up_rounds",
             requires={"reference": ("server_rate_scaling",)}),
    ),
    "Aggregation": (
        Flag("weighting", "choice",
             "How much a client counts: its number of examples, or all the same.",
             Depends("by algorithm"), choices=("num_examples", "uniform")),
        Flag("adaptive_clipping", "flag",
             "Clip clients' updates to a norm that follows a quantile of their norms.",
             False),
        Flag("clipping_quantile", "probability",
             "The share of updates that adaptive clipping is to leave alone.",
             _CLIPPING["target_quantile"], needs="adaptive_clipping"),
        Flag("clipping_initial_norm", "positive",
             "The norm that adaptive clipping starts from.",
             _CLIPPING["initial_clipping_norm"], needs="adaptive_clipping"),
        Flag("clipping_learning_rate", "non_negative",
             "How fast the norm of adaptive clipping follows.",
             _CLIPPING["learning_rate"], needs="adaptive_clipping"),
        Flag("cohort_measurements", "flag",
             "Measure norms and cosines of clients' updates; changes no result.",
             False),
    ),
    "Evaluation and execution": (
        Flag("rounds_per_evaluation", "count",
             "Rounds from one evaluation on the test clients to the next.", _BY_TASK),
        Flag("max_evaluation_clients", "count",
             "Evaluate on so many test clients, drawn once.", _ALL),
        Flag("execution", "choice",
             "Where TFF runs: in this process, in its own worker, or on --workers.",
             "local", choices=("local", "native", "remote"),
             commands=(*_RUNS, PRESET), requires={"remote": ("workers",)}),
    ),
    CIRCUMSTANCES: (
        Flag("output_dir", "text",
             "Folder for the results; a run found there goes on.",
             Depends("under results/"), commands=(*_TASKS, PRESET)),
        Flag("cache_dir", "text",
             "Folder with the unpacked SQLite files of TFF's data sets.",
             Depends("~/.tff"), commands=(*_TASKS, PRESET)),
        Flag("plugin", "text",
             "Python files, separated by commas, that register algorithms or tasks.",
             many=True, commands=(*_TASKS, LIST)),
        Flag("settings", "text",
             "Files best.json of sweeps, separated by commas; flags given here win.",
             many=True, commands=(*_RUNS, PRESET)),
        Flag("rounds_per_checkpoint", "count",
             "Rounds from one checkpoint to the next.", 10),
        Flag("tensorboard", "flag", "Write TensorBoard events too.", False),
        Flag("client_states", "choice",
             "Where clients' states are kept: in RAM, or in files in the run's folder.",
             "ram", choices=("ram", "disk")),
        Flag("measure_mismatch", "flag",
             "At evaluations, measure how far the server's control variate is from "
             "the mean of the clients'; reads the states of all clients seen.", False),
        Flag("workers", "text",
             "Addresses host:port of workers, separated by commas; see docs/remote.md.",
             needs="execution=remote", many=True, commands=(*_RUNS, PRESET)),
        Flag("max_concurrent_clients", "count",
             "Clients trained at a time.", Depends("the number of processors"),
             needs="execution=local|native"),
    ),
}
# Of the data that a method needs its server or all clients to have.
_OF_NEEDS = {
    "meta_data": (
        Option("meta_fraction", "fraction",
               "Share of the clients' examples that the server's data is drawn as.",
               0.01),
    ),
    "shared_data": (
        Option("share_fraction", "probability",
               "Share of the clients' examples that is drawn to be public.", 0.01),
        Option("share_split", "flag",
               "Cut the public examples up rather than give all to every client.",
               True),
    ),
}
# fmt: on


def flags_of(command: str) -> dict[str, Flag]:
    """Returns the flags of a command by name, in the order to list them."""
    groups = {**_GROUPS, WHAT: (*_named(), *_GROUPS[WHAT])}
    flags = {
        each.name: dataclasses.replace(each, group=group)
        for group, of_group in groups.items()
        for each in of_group
    }
    for (of, name), options in _options_by_flag().items():
        if name in flags and flags[name].of == of:
            flags[name] = dataclasses.replace(flags[name], options=options)
        else:
            name = f"{of}_{name}" if name in flags else name
            flags[name] = _option_flag(name, of, options)
    return {name: flag for name, flag in flags.items() if command in flag.commands}


def values(flags: Mapping[str, Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of flags by name: those given, else the defaults."""
    return {name: given.get(name, flag.value) for name, flag in flags.items()}


def options(of: str, name: str) -> dict[str, Option]:
    """Returns the options of an `ALGORITHM` or a `TASK` by the names of their flags."""
    return {
        flag.name: flag.options[name]
        for flag in flags_of(TRAIN).values()
        if flag.of == of and name in flag.options
    }


def _options_by_flag() -> dict[tuple[str, str], dict[str, Option]]:
    """Returns, by whose options they are and by flag, options by who has them."""
    found: dict[tuple[str, str], dict[str, Option]] = {}
    for method in from_source.methods().values():
        needed = [option for need in method.needs for option in _OF_NEEDS.get(need, ())]
        for option in (*method.options, *needed):
            found.setdefault((ALGORITHM, option.flag), {})[method.name] = option
    for task in tasks.names():
        for option in tasks.describe(task).options:
            flag = "client_epochs" if option.flag == "epochs" else option.flag
            found.setdefault((TASK, flag), {})[task] = option
    return found


def _option_flag(name: str, of: str, options: Mapping[str, Option]) -> Flag:
    """Returns the flag for options of one name, given by their holders."""
    first, *_ = options.values()
    defaults: dict[str, list[str]] = {}
    for holder, option in options.items():
        defaults.setdefault(kinds.show(option.default), []).append(holder)
    return Flag(
        name,
        first.kind,
        first.help,
        # Such as "0.9 (fed_adam, fed_yogi); 0 (fed_adagrad)".
        Depends("; ".join(f"{v} ({', '.join(of)})" for v, of in defaults.items())),
        may_be_none=any(option.may_be_none for option in options.values()),
        choices=tuple({c: None for option in options.values() for c in option.choices}),
        commands=_TASKS if of == TASK else _RUNS,
        group=OPTION_GROUPS[of],
        of=of,
        options=options,
    )
