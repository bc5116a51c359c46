"""The common flags of the command line, in the order in which help lists them."""

from __future__ import annotations

import tasks
from experiments.flags.flag import (
    CIRCUMSTANCES,
    COMPARE,
    DATA,
    LIST,
    LOCAL,
    META,
    PRESET,
    RUNS,
    SERVER,
    STATES,
    TASK,
    TASKS,
    TRAIN,
    WHAT,
    Depends,
    Flag,
)
from tff_drift import from_source
from tff_drift.kinds import Option

_BY_TASK, _BY_BOTH = Depends("by task"), Depends("by task and algorithm")
_ALL = Depends("all")
_CLIPPING = from_source.defaults(
    "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
)
_STAIRS = from_source.defaults("tff_drift.optimizers.schedules", "exponential")
_ROOT = from_source.defaults("tff_drift.optimizers.schedules", "inverse_sqrt")


# A table, laid out by hand: name, kind, help, default, and what else there is to say.
# fmt: off
def named() -> tuple[Flag, ...]:
    """Returns the flags whose values are names, which plugins add to."""
    methods = tuple(from_source.methods())
    five = ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi")
    return (
        Flag("task", "choice", "The task.", "digits", choices=tasks.names(),
             commands=TASKS),
        Flag("algorithm", "choice", "The algorithm.", "fed_avg", choices=methods,
             commands=(TRAIN,)),
        Flag("algorithms", "choice", "The algorithms, separated by commas.", five,
             choices=methods, many=True, commands=(COMPARE,)),
        Flag("protocol", "choice",
             "Take all settings of a task from one paper.", "none",
             choices=("none", "fed_opt", "large_cohort", "adabest", "uga")),
    )


GROUPS: dict[str, tuple[Flag, ...]] = {
    WHAT: (
        Flag("rounds", "count", "Rounds of training.", _BY_TASK),
        Flag("clients_per_round", "count",
             "The cohort: clients sampled in every round.", _BY_TASK),
        Flag("cohort_doubling", "choice",
             "Whether the cohort doubles, after rounds or after examples processed.",
             "none", choices=("none", "rounds", "examples"),
             requires={"rounds": ("cohort_doubling_at",),
                       "examples": ("cohort_doubling_at",)}),
        Flag("cohort_doubling_at", "count",
             "After how many rounds, or examples, it doubles, separated by commas.",
             many=True, needs="cohort_doubling"),
        Flag("max_clients_per_round", "count",
             "The largest cohort that it comes to.", _ALL, needs="cohort_doubling"),
        Flag("seed", "seed",
             "Seed of the split, the initial model, sampling and shuffling.", 1,
             commands=(TRAIN, DATA)),
        Flag("seeds", "seed",
             "Seeds, separated by commas: each algorithm runs once with each.",
             (1, 2, 3), many=True, commands=(COMPARE, PRESET)),
    ),
    "Training on clients": (
        Flag("client_learning_rate", "positive",
             "Rate of the clients' optimizer, per local step.", _BY_BOTH, needs=LOCAL),
        Flag("client_optimizer", "choice",
             "The clients' optimizer, anew in every round.", "sgd", needs=LOCAL,
             choices=("sgd", "momentum", "adam")),
        Flag("client_momentum", "rate", "The clients' momentum.", 0.9,
             needs="client_optimizer=momentum"),
        Flag("client_epochs", "count",
             "Passes of a client over its data in a round.", _BY_TASK,
             needs="local_steps=none", of=TASK),
        Flag("local_steps", "count",
             "Batches of every client in a round, in the place of --client_epochs.",
             may_be_none=True, needs=LOCAL),
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
        Flag("evaluated_model", "choice",
             "What to test: the mean of the cohort's models, the model sent next, the "
             "mean of the former over rounds, or that of all clients' latest models.",
             "aggregate", choices=("aggregate", "cloud", "average", "latest"),
             needs=STATES),
        Flag("evaluate_on_training_clients", "flag",
             "Evaluate the final model on the training clients too.", False),
        Flag("execution", "choice",
             "Where TFF runs: in this process, in its own worker, or on --workers.",
             "local", choices=("local", "native", "remote"),
             commands=(*RUNS, PRESET), requires={"remote": ("workers",)}),
    ),
    "The server's own data": (
        Flag("meta_step", "non_negative",
             "Rate of a step of FedMeta on the server's data, after every round of any "
             "method.", may_be_none=True),
        Flag("meta_fraction", "fraction",
             "Share of the clients' examples that the server's data is drawn as.",
             0.01, needs=META),
        Flag("meta_labels", "text",
             "The labels that it has, as 0+1+2.", _ALL, needs=META),
        Flag("meta_overlap", "probability",
             "Share of it that is of training clients; the rest of clients held out.",
             1.0, needs=META),
        Flag("meta_file", "text",
             "NPZ file with it, in the place of clients' examples.", needs=META),
    ),
    "Simulated time": (
        Flag("straggler_clock", "flag",
             "Record how long rounds would take with clients that train side by side.",
             False),
        Flag("straggler_delay", "non_negative",
             "Mean of a client's random delay λ, in seconds per example.", 1.0,
             needs="straggler_clock"),
        Flag("straggler_seconds_per_example", "non_negative",
             "Seconds that a client needs for an example besides.", 1.0,
             needs="straggler_clock"),
        Flag("straggler_left_out", "rate",
             "Share of --clients_per_round, the slowest, that a round leaves out.", 0.0,
             needs="straggler_clock"),
    ),
    CIRCUMSTANCES: (
        Flag("output_dir", "text",
             "Folder for the results; a run found there goes on.",
             Depends("under results/"), commands=(*TASKS, PRESET)),
        Flag("cache_dir", "text",
             "Folder with the unpacked SQLite files of TFF's data sets.",
             Depends("~/.tff"), commands=(*TASKS, PRESET)),
        Flag("plugin", "text",
             "Python files, separated by commas, that register algorithms or tasks.",
             many=True, commands=(*TASKS, LIST)),
        Flag("settings", "text",
             "Files best.json of sweeps, separated by commas; flags given here win.",
             many=True, commands=(*RUNS, PRESET)),
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
             needs="execution=remote", many=True, commands=(*RUNS, PRESET)),
        Flag("max_concurrent_clients", "count",
             "Clients trained at a time.", Depends("the number of processors"),
             needs="execution=local|native"),
    ),
}
# Of the data that a method needs its server or all clients to have.
OF_NEEDS = {
    "mean_examples": (
        Option("mu_by_examples", "flag",
               "Divide a client's μ by its share of examples, for unbalanced clients.",
               False),
    ),
    "shared_data": (
        Option("share_fraction", "probability",
               "Share of the clients' examples that is drawn to be public.", 0.01),
        Option("share_split", "flag",
               "Cut the public examples up rather than give all to every client.",
               True),
        Option("share_labels", "text",
               "The labels that public examples have, as 0+1+2; by default all.",
               may_be_none=True),
        Option("share_file", "text",
               "NPZ file with the public examples, in the place of clients'.",
               may_be_none=True),
    ),
}
# fmt: on
