"""Whole protocols of papers: `--protocol` lays all of a paper's settings under a run.

Without it, a task has the settings of the paper that tuned most methods on it, maybe
those of two papers (see `flags.published_rates`, for the papers [F], [L], [A] and [U]).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, errors, published_rates, validate
from experiments.flags.flag import ALGORITHM, TASK, TRAIN
from experiments.flags.published_rates import Rates

Flags = Mapping[str, Any]

# What holds for all of a paper's tasks, then for each of them.
_SHARED: dict[str, Flags] = {
    "fed_opt": {
        "client_epochs": 1,
        "clients_per_round": 10,
        "weighting": "num_examples",
    },
    "large_cohort": {
        "client_epochs": 1,
        "clients_per_round": 50,
        "rounds": 1500,
        "weighting": "num_examples",
        "adaptive_clipping": True,
        "beta_1": 0.9,
        "beta_2": 0.99,
        "tau": 0.001,
        "bias_correction": True,
    },
    "adabest": {
        "num_clients": 100,
        "clients_per_round": 10,
        "client_epochs": 5,
        "batch_size": 45,
        "last_batch": "bootstrap",
        "client_learning_rate": 0.1,
        "client_rate_schedule": "per_round_factor",
        "client_rate_decay": 0.998,
        # As in the code of Acar et al., whose optimisation the paper follows.
        "gradient_clipping_norm": 10.0,
        "weighting": "uniform",
        "validation_fraction": 0.1,
        "adabest_mu": 0.02,
        "beta": 0.96,
        "fed_dyn_mu": 0.02,
    },
    "uga": {
        "client_epochs": 5,
        "client_rate_schedule": "per_round_factor",
        "client_rate_decay": 0.992,
        "fed_prox_mu": 2e-4,
        "share_fraction": 0.01,
        "meta_fraction": 0.01,
    },
}
_TASKS: dict[str, dict[str, Flags]] = {
    "fed_opt": {
        "emnist_character": {"batch_size": 20, "rounds": 1500},
        "emnist_autoencoder": {"batch_size": 20, "rounds": 3000},
        "shakespeare_character": {"batch_size": 4, "rounds": 1200},
        "cifar100": {
            "setting": "large_cohort",
            "batch_size": 20,
            "rounds": 4000,
            "augment": True,
        },
        "stackoverflow_word": {
            "batch_size": 16,
            "rounds": 1500,
            "clients_per_round": 50,
        },
        "stackoverflow_tag": {"batch_size": 100, "rounds": 1500},
    },
    "large_cohort": {
        "cifar100": {"setting": "large_cohort", "batch_size": 20, "augment": False},
        "emnist_character": {"batch_size": 20},
        "shakespeare_character": {"batch_size": 4},
        "stackoverflow_word": {"batch_size": 32},
    },
    "adabest": {
        "emnist_letters": {"letters": 10, "client_weight_decay": 1e-4},
        "cifar10": {
            "network": "adabest",
            "augment": True,
            "client_weight_decay": 1e-3,
        },
        "cifar100": {
            "setting": "adabest",
            "augment": True,
            "client_weight_decay": 1e-3,
        },
    },
    "uga": {
        # The rate 0.002 at batches of 10, scaled linearly; η_g on the sum over the 100
        # clients' gradients.
        "emnist_digits": {
            "network": "uga",
            "num_clients": 100,
            "clients_per_round": 10,
            "batch_size": 64,
            "client_learning_rate": 0.0128,
            "meta_learning_rate": 0.0128,
        },
        "shakespeare_character_gru": {
            "num_clients": 100,
            "clients_per_round": 10,
            "client_learning_rate": 0.1,
            "meta_learning_rate": 0.1,
        },
        "cifar10": {
            "network": "uga",
            "num_clients": 10,
            "clients_per_round": 2,
            "batch_size": 64,
            "alpha": None,
            "augment": False,
            "validation_fraction": 0.0,
            "client_learning_rate": 0.002,
            "meta_learning_rate": 0.002,
        },
    },
}
NAMES = tuple(_SHARED)

# Of [L], A.4: the rates of client and server by task, besides those of
# `published_rates`, whose FedSGD, FedLARS, FedLamb and normalised FedAvg are [L]'s.
_LARGE_COHORT: dict[str, dict[str, tuple[float, float]]] = {
    "cifar100": {
        "fed_avg": (0.1, 1.0),
        "fed_avgm": (0.1, 1.0),
        "fed_adagrad": (0.1, 0.01),
        "fed_adam": (0.1, 0.01),
    },
    "emnist_character": {
        "fed_avg": (0.1, 1.0),
        "fed_avgm": (0.1, 1.0),
        "fed_adagrad": (0.001, 0.1),
        "fed_adam": (0.1, 0.001),
    },
    "shakespeare_character": {
        "fed_avg": (1.0, 1.0),
        "fed_avgm": (1.0, 0.1),
        "fed_adagrad": (10.0, 0.1),
        "fed_adam": (10.0, 0.01),
    },
    "stackoverflow_word": {
        "fed_avg": (10.0, 1.0),
        "fed_avgm": (10.0, 1.0),
        "fed_adagrad": (10.0, 10.0),
        "fed_adam": (10.0, 1.0),
    },
}
_OF_LARGE_COHORT = ("fed_sgd", "fed_lars", "fed_lamb", "normalized_fed_avg")
_OF_FED_OPT = ("fed_avg", "fed_avgm", "fed_adagrad", "fed_adam", "fed_yogi")
_OF_ADABEST = ("fed_avg", "scaffold_m", "scaffold", "fed_dyn", "adabest")
_OF_UGA = ("fed_avg", "fed_share", "fed_prox", "uga", "fed_meta", "fed_meta_uga")


def with_protocol(given: Flags, algorithm: str) -> Flags:
    """Returns the flags of a run with those of `--protocol`, if any, where not given.

    Args:
      given: The values of the flags that are given, by name.
      algorithm: The run's algorithm.

    Raises:
      UserError: If the paper does not have the task or the algorithm.
    """
    protocol = given.get("protocol")
    if protocol not in NAMES:
        return given
    known = declarations.flags_of(TRAIN)
    task = given.get("task", known["task"].value)
    if task not in _TASKS[protocol]:
        raise errors.UserError(
            f"--protocol={protocol} has no task {task}, but "
            f"{', '.join(_TASKS[protocol])}."
        )
    flags = {**of_task(protocol, task), **_rates(protocol, task, algorithm)}
    has = {
        *(name for name, flag in known.items() if not flag.options),
        *declarations.options(ALGORITHM, algorithm),
        *declarations.options(TASK, task),
    }
    values = declarations.values(known, {**flags, **given})
    without = validate.ignored(values, algorithm)
    kept = {name: flags[name] for name in flags if name in has and name not in without}
    return validate.below(kept, given)


def of_task(protocol: str, task: str) -> dict[str, Any]:
    """Returns the flags of a paper on one of its tasks, whatever the algorithm.

    Args:
      protocol: One of `NAMES`.
      task: The task.
    """
    return {**_SHARED[protocol], **_TASKS[protocol][task]}


def _rates(protocol: str, task: str, algorithm: str) -> dict[str, Any]:
    """Returns the rates of an algorithm, and what else its paper tuned."""
    papers = {
        "fed_opt": _OF_FED_OPT,
        "large_cohort": (*_LARGE_COHORT.get(task, ()), *_OF_LARGE_COHORT),
        "adabest": _OF_ADABEST,
        "uga": _OF_UGA,
    }
    if algorithm not in papers[protocol]:
        raise errors.UserError(
            f"--protocol={protocol} has no algorithm {algorithm}, but "
            f"{', '.join(papers[protocol])}."
        )
    if protocol == "large_cohort" and algorithm in _LARGE_COHORT[task]:
        client, server = _LARGE_COHORT[task][algorithm]
        first = {"beta_1": 0.0} if algorithm == "fed_adagrad" else {}
        rates = Rates(client, server, first, cohort=50)
    elif protocol in ("large_cohort", "fed_opt"):
        rates = published_rates.rates(task, algorithm)
    else:
        is_sum = task == "emnist_digits" and algorithm in ("uga", "fed_meta_uga")
        server = 0.2 if is_sum else 0.002 if "uga" in algorithm else 1.0
        return {"server_learning_rate": server}
    cohort = {} if rates.cohort is None else {"reference_clients_per_round": 50}
    return {
        "client_learning_rate": rates.client,
        "server_learning_rate": rates.server,
        **cohort,
        **rates.hyperparameters,
    }
