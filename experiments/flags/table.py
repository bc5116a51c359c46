"""The flags of runs, in the order in which help lists them."""

from __future__ import annotations

import tasks
from experiments.flags.flag import (
    CIRCUMSTANCES,
    COHORTS,
    COMPARE,
    DATA,
    DIAGNOSE,
    LIST,
    LOCAL,
    META,
    PRESET,
    RUNS,
    SERVER,
    STATES,
    SWEEP,
    TASK,
    TASKS,
    TRAIN,
    WHAT,
    Depends,
    Flag,
)
from tff_drift import from_source
from tff_drift.value_types import Option

BY_TASK, _BY_BOTH = Depends("by task"), Depends("by task and algorithm")
_ALL = Depends("all")
# What a diagnosis depends on too.
_LOOKS = (*RUNS, DIAGNOSE)
_CLIPPING = from_source.defaults(
    "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
)
_STAIRS = from_source.defaults("tff_drift.optimizers.schedules", "exponential")
_ROOT = from_source.defaults("tff_drift.optimizers.schedules", "inverse_sqrt")


# A table, laid out by hand: name, value type, help, default, and what else there is.
# fmt: off
def named() -> tuple[Flag, ...]:
    """Returns the flags whose values are names, which plugins add to."""
    methods = tuple(from_source.methods())
    five = ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi")
    return (
        Flag("task", "choice", "The task.", "digits", choices=tasks.names(),
             commands=TASKS, is_first=True),
        Flag("algorithm", "choice", "The algorithm.", "fed_avg", choices=methods,
             commands=(TRAIN, SWEEP), is_first=True),
        Flag("algorithms", "choice", "The algorithms, separated by commas.", five,
             choices=methods, many=True, commands=(COMPARE,), is_first=True),
        Flag("protocol", "choice",
             "Take all settings of a task from one paper.", "none",
             choices=("none", "fed_opt", "large_cohort", "adabest", "uga"),
             is_first=True),
    )


PLUGIN = Flag(
    "plugin", "path",
    "Python files, separated by commas, that register algorithms, tasks or presets.",
    many=True, commands=(*TASKS, LIST, PRESET))


# Those of runs.
GROUPS: dict[str, tuple[Flag, ...]] = {
    WHAT: (
        Flag("rounds", "count", "Rounds of training.", BY_TASK, is_first=True),
        Flag("clients_per_round", "count",
             "The cohort: clients sampled in every round.", BY_TASK, needs=COHORTS,
             is_first=True, commands=_LOOKS),
        Flag("cohort_doubling", "choice",
             "Whether the cohort doubles, after rounds or after examples processed.",
             "none", choices=("none", "rounds", "examples"),
             requires={"rounds": ("cohort_doubling_at",),
                       "examples": ("cohort_doubling_at",)}),
        Flag("cohort_doubling_at", "count",
             "After how many rounds, or examples, it doubles, separated by commas.",
             many=True, needs="cohort_doubling"),
        Flag("max_clients_per_round", "count",
             "The largest cohort that doubling may reach.",
             _ALL, needs="cohort_doubling"),
        Flag("initial_weights", "path",
             "A saved Keras model (.keras, .h5, or the folder of a SavedModel) whose "
             "weights training starts from; by default they are drawn.",
             commands=_LOOKS),
        Flag("seed", "seed",
             "Seed of the split, the initial model, sampling and shuffling.", 1,
             commands=(TRAIN, DIAGNOSE, DATA), is_first=True),
        Flag("seeds", "seed",
             "Seeds, separated by commas: each algorithm runs once with each.",
             (1, 2, 3), many=True, commands=(COMPARE, PRESET), is_first=True),
    ),
    "Training on clients": (
        Flag("client_learning_rate", "positive",
             "Learning rate of the clients' optimizer, per local step.", _BY_BOTH,
             needs=LOCAL, is_first=True, commands=_LOOKS),
        Flag("client_optimizer", "choice",
             "The clients' optimizer, reset in every round.", "sgd", needs=LOCAL,
             choices=("sgd", "momentum", "adam"), commands=_LOOKS),
        Flag("client_momentum", "rate", "The clients' momentum.", 0.9,
             needs="client_optimizer=momentum", commands=_LOOKS),
        Flag("client_epochs", "batches",
             "Passes of a client over its data in a round.", BY_TASK,
             needs="local_steps=none", of=TASK, is_first=True, commands=_LOOKS),
        Flag("local_steps", "batches",
             "Batches of every client in a round, in place of --client_epochs.",
             may_be_none=True, needs=LOCAL, commands=_LOOKS),
        Flag("batch_size", "count", "Examples in a client's batch.", BY_TASK,
             may_be_none=True, of=TASK, is_first=True, commands=_LOOKS),
        Flag("client_weight_decay", "non_negative",
             "Weight decay λ of local training.", 0.0, needs=LOCAL),
        Flag("gradient_clipping_norm", "positive",
             "Largest norm of a local gradient.", may_be_none=True, needs=LOCAL),
        Flag("client_rate_schedule", "choice",
             "How the clients' learning rate changes over rounds.",
             "constant", needs=LOCAL,
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
             "Whether the exponential schedule falls in steps.", _STAIRS["staircase"],
             needs="client_rate_schedule=exponential"),
    ),
    "The server's step": (
        Flag("server_learning_rate", "positive",
             "Learning rate of the server's step, per round.", _BY_BOTH, needs=SERVER,
             is_first=True, commands=_LOOKS),
        Flag("server_rate_scaling", "choice",
             "Scale the server's rate by the cohort size, relative to the one it was "
             "tuned for.",
             "none", needs=SERVER, choices=("none", "sqrt", "linear")),
        Flag("reference_clients_per_round", "count",
             "The cohort size that the server's rate was tuned for.",
             Depends("the task's default cohort"), needs="server_rate_scaling"),
        Flag("server_warm_up_rounds", "whole",
             "Rounds in which the server's rate grows linearly to its full value.",
             0, needs=SERVER),
        Flag("server_warm_up_from", "choice",
             "Where the warm-up starts: at 0, or at the rate before scaling.",
             Depends("reference with scaling, else zero"),
             choices=("reference", "zero"), needs="server_warm_up_rounds",
             requires={"reference": ("server_rate_scaling",)}),
    ),
    "Aggregation": (
        Flag("weighting", "choice",
             "A client's weight: its number of examples, or the same for all.",
             Depends("by algorithm"), choices=("num_examples", "uniform"),
             commands=_LOOKS),
        Flag("adaptive_clipping", "flag",
             "Clip clients' updates to a norm that follows a quantile of their norms.",
             False),
        Flag("clipping_quantile", "probability",
             "The share of updates that adaptive clipping should leave unclipped.",
             _CLIPPING["target_quantile"], needs="adaptive_clipping"),
        Flag("clipping_initial_norm", "positive",
             "The norm that adaptive clipping starts from.",
             _CLIPPING["initial_clipping_norm"], needs="adaptive_clipping"),
        Flag("clipping_learning_rate", "non_negative",
             "How fast the norm of adaptive clipping follows the quantile.",
             _CLIPPING["learning_rate"], needs="adaptive_clipping"),
        Flag("cohort_measurements", "flag",
             "Measure norms and cosines of clients' updates; changes no result.",
             False),
    ),
    "Evaluation and execution": (
        Flag("rounds_per_evaluation", "count",
             "Rounds from one evaluation on the test clients to the next.", BY_TASK,
             is_first=True),
        Flag("max_evaluation_clients", "count",
             "Evaluate on at most this many test clients, sampled once.", _ALL),
        Flag("evaluated_model", "choice",
             "What to test: the mean of the cohort's models, the model sent next, the "
             "average over rounds, or the mean of all clients' latest models.",
             "aggregate", choices=("aggregate", "cloud", "average", "latest"),
             needs=STATES),
        Flag("averaging_growth", "positive",
             "The weight of a round in that average, relative to the previous round.",
             1.0, needs="evaluated_model=average"),
        Flag("evaluate_on_training_clients", "flag",
             "Evaluate the final model on the training clients too.", False),
        Flag("execution", "choice",
             "Where TFF runs: in this process, in its worker, or on Ray, where train "
             "and compare divide a round's clients, and sweep and preset place whole "
             "runs.",
             "local", choices=("local", "native", "ray"), commands=(*_LOOKS, PRESET)),
    ),
    "The server's own data": (
        Flag("meta_step", "positive",
             "Rate of FedMeta's step on the server's data, after every round of any "
             "method.", may_be_none=True),
        Flag("meta_step_epochs", "count",
             "Passes of --meta_step over the server's data.", 1, needs="meta_step"),
        Flag("meta_step_batch_size", "count",
             "Examples in a minibatch of --meta_step; none is all of them.",
             may_be_none=True, needs="meta_step"),
        Flag("meta_fraction", "fraction",
             "Share of the clients' examples that is drawn as the server's data.",
             0.01, needs=META),
        Flag("meta_labels", "text",
             "The labels in the server's data, as 0+1+2.", _ALL, needs=META),
        Flag("meta_overlap", "probability",
             "Share of the server's data from training clients; the rest is from "
             "held-out clients.",
             1.0, needs=META),
        Flag("meta_file", "path",
             "NPZ file with the server's data, in place of clients' examples.",
             needs=META),
    ),
    "Simulated time": (
        Flag("straggler_clock", "flag",
             "Record how long rounds would take with clients that train side by side.",
             False),
        Flag("straggler_delay", "non_negative",
             "Mean of a client's random delay λ, in seconds per example.", 1.0,
             needs="straggler_clock"),
        Flag("straggler_seconds_per_example", "non_negative",
             "Seconds per example that a client needs in addition.", 1.0,
             needs="straggler_clock"),
        Flag("straggler_left_out", "rate",
             "Share of --clients_per_round, the slowest, that every round leaves out.",
             0.0,
             needs="straggler_clock"),
    ),
    CIRCUMSTANCES: (
        Flag("output_dir", "path",
             "Folder for the results; a run found there is continued.",
             Depends("under results/"), commands=(*TASKS, PRESET), is_first=True),
        Flag("cache_dir", "path",
             "Folder with the unpacked SQLite files of TFF's data sets.",
             Depends("~/.tff"), commands=(*TASKS, PRESET), is_first=True),
        PLUGIN,
        Flag("callbacks", "text",
             "Your callbacks, as MODULE:NAME, separated by commas: subclasses of "
             "tff_drift.simulation.callbacks.Callback, or functions that return one.",
             many=True),
        Flag("settings", "path",
             "Files best.json of sweeps, separated by commas; flags given here "
             "override them.",
             many=True, commands=(*_LOOKS, PRESET)),
        Flag("rounds_per_checkpoint", "count",
             "Rounds from one checkpoint to the next.", 10),
        Flag("tensorboard", "flag", "Write TensorBoard events too.", False),
        Flag("track", "choice",
             "Trackers to send the runs to, separated by commas; see docs/tracking.md.",
             choices=("mlflow", "wandb"), many=True),
        Flag("client_states", "choice",
             "Where clients' states are kept: in RAM, or in files in the run's folder.",
             "ram", choices=("ram", "disk"), needs=STATES),
        Flag("measure_mismatch", "flag",
             "At evaluations, measure how far the server's control variate is from "
             "the mean of the clients'; reads the states of all clients seen.", False,
             needs=STATES),
        Flag("ray_address", "text",
             "Address of a Ray cluster, as host:port or auto; see docs/remote.md.",
             Depends("a local instance"), needs="execution=ray",
             commands=(*_LOOKS, PRESET)),
        Flag("ray_actors", "count",
             "Ray actors among which a round's clients are divided.",
             Depends("one on each node"), needs="execution=ray",
             commands=(TRAIN, COMPARE)),
        Flag("max_concurrent_clients", "count",
             "Clients trained at a time.",
             Depends("processors plus two, under native without the two"),
             commands=_LOOKS),
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
               "Split the public examples rather than give all to every client.",
               True),
        Option("share_labels", "text",
               "The labels of the public examples, as 0+1+2; by default all.",
               may_be_none=True),
        Option("share_file", "path",
               "NPZ file with the public examples, in place of clients' examples.",
               may_be_none=True),
    ),
}
# fmt: on
