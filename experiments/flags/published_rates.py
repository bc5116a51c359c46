"""Default settings per task, and default rates per task and algorithm.

Where a paper tuned a pair of task and algorithm, its values are the defaults:

*   [F] Reddi et al. (2021), Adaptive Federated Optimization,
    https://arxiv.org/abs/2003.00295, as their code lists them:
    https://github.com/google-research/federated, `optimization/docs/
    hyperparameters.md`. Cohorts of 10, one local epoch.
*   [L] Charles et al. (2021), On Large-Cohort Training for Federated Learning,
    https://arxiv.org/abs/2106.07820: cohorts of 50, one local epoch. Normalised
    FedAvg runs at the rates of FedAvg there (section 5.4).
*   [U] Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
    Controllable Meta Updating, https://arxiv.org/abs/1910.08234: a tenth of 100
    writers per round.

*   [A] Varno et al. (2022), AdaBest, https://arxiv.org/abs/2204.13170: a tenth of 100
    clients per round. Its client rate falls from round to round:
    `--client_rate_schedule=per_round_factor --client_rate_decay=0.998`.

`emnist_digits` runs at the rates of `emnist_character`, whose images are of the
same kind. The FedAvg of [U] itself is slower, and is had by
`--client_learning_rate=0.002 --client_rate_schedule=per_round_factor
--client_rate_decay=0.992 --client_epochs=5`.

The rates of `digits` are the best of a grid, by the mean over the seeds 1, 2 and 3 of
the accuracy on a fifth of the training clients, held out: client rates of 0.1, 0.3 and
1, and on the server 0.3, 1 and 3 (FedAvg), 0.1, 0.3 and 1 (FedAvgM, normalised FedAvg,
and 3 for FedSGD), 0.01 to 0.3 (the adaptive methods) or 0.003 to 0.1 (FedLARS,
FedLamb) by factors of about 3. `tff-drift sweep` searches such a grid. Those of
`quadratic` come from a like search by a replica of the task in NumPy:
the server rate, of 0.003, 0.01, 0.03 and so on, with the least mean loss after 40
rounds. That of `fed_avgm` was found by training with TFF.
What was not tuned runs at FedAvg's client rate.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from experiments.flags.errors import UserError
from tff_drift import from_source, value_types


@dataclasses.dataclass(frozen=True)
class TaskDefaults:
    """The settings of a task that do not depend on the algorithm.

    Attributes:
      rounds: Rounds of training.
      clients_per_round: The cohort size, which the rates are tuned for.
      rounds_per_evaluation: Rounds from one evaluation to the next.
      client_epochs: Local epochs; `None` is the task's own default.
    """

    rounds: int
    clients_per_round: int
    rounds_per_evaluation: int
    client_epochs: int | None = None

    def flags(self) -> dict[str, int]:
        """Returns the settings by the names of their flags."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Rates:
    """The settings of an algorithm on a task.

    Attributes:
      client: The clients' learning rate; without effect where they do not train.
      server: The server's learning rate; `None` if nobody has tuned it, for a method
        whose steps do not follow the size of the pseudo-gradient.
      hyperparameters: Those that differ from the builder's defaults.
      cohort: The cohort size that the rates were tuned for, `None` for the task's.
    """

    client: float
    server: float | None
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cohort: int | None = None


def _powers(client: float, server: float, tau: float | None = None) -> Rates:
    """Returns rates given by their decimal logarithms, as [F] lists them."""

    def power(exponent: float) -> float:
        return float(f"{10**exponent:.4g}")

    return Rates(
        power(client), power(server), {} if tau is None else {"tau": power(tau)}
    )


def _large(client: float, server: float) -> Rates:
    """Returns rates of [L], which were tuned for cohorts of 50 (section 5.1)."""
    return Rates(client, server, cohort=50)


TASKS: dict[str, TaskDefaults] = {
    # Ours: ends in a minute or so.
    "digits": TaskDefaults(40, 10, 2),
    # Ours: every client in every round, so that drift alone is seen.
    "quadratic": TaskDefaults(40, 10, 1),
    "emnist_character": TaskDefaults(1500, 10, 10),  # [F]
    "emnist_digits": TaskDefaults(200, 10, 10),  # [U], except for the rounds.
    "shakespeare_character": TaskDefaults(1200, 10, 10),  # [F]
    "emnist_autoencoder": TaskDefaults(3000, 10, 10),  # [F]
    "cifar100": TaskDefaults(4000, 10, 10),  # [F]
    # [F], except for the evaluations, which take long.
    "stackoverflow_word": TaskDefaults(1500, 50, 50),
    "stackoverflow_tag": TaskDefaults(1500, 10, 50),
    "emnist_letters": TaskDefaults(1200, 10, 10, 5),  # [A]
    "cifar10": TaskDefaults(1200, 10, 10, 5),  # [A]
    "own_data": TaskDefaults(100, 10, 10),
    "own_numbers": TaskDefaults(100, 10, 10),
    # [U], except for the rounds.
    "shakespeare_character_gru": TaskDefaults(400, 10, 10),
}

_EMNIST: dict[str, Rates] = {
    "fed_avg": _powers(-1, 0),  # [F]
    "fed_avgm": _powers(-1.5, -0.5),  # [F]
    "fed_adagrad": _powers(-1.5, -1, -2),  # [F]
    "fed_adam": _powers(-1.5, -2.5, -4),  # [F]
    "fed_yogi": _powers(-1.5, -2.5, -4),  # [F]
    "fed_lars": _large(0.1, 0.001),  # [L]
    "fed_lamb": _large(0.1, 0.01),  # [L]
    "normalized_fed_avg": _large(0.1, 1.0),  # [L]
    "fed_sgd": _large(1.0, 0.1),  # [L]
}

_RATES: dict[str, dict[str, Rates]] = {
    "digits": {
        "fed_avg": Rates(0.3, 1.0),
        "fed_avgm": Rates(0.3, 1.0),
        "fed_adagrad": Rates(0.3, 0.1),
        "fed_adam": Rates(0.3, 0.03),
        "fed_yogi": Rates(0.1, 0.1),
        "fed_lars": Rates(0.1, 0.03),
        "fed_lamb": Rates(0.1, 0.03),
        "normalized_fed_avg": Rates(0.3, 0.3),
        "fed_sgd": Rates(0.3, 0.3),  # Its clients do not train.
    },
    # The client rate is the same everywhere, so that drift is seen and compared.
    "quadratic": {
        "fed_avg": Rates(0.1, 1.0),
        "fed_avgm": Rates(0.1, 0.3),
        "fed_adagrad": Rates(0.1, 1.0),
        "fed_adam": Rates(0.1, 0.3),
        "fed_yogi": Rates(0.1, 0.3),
        "fed_lars": Rates(0.1, 0.1),
        "fed_lamb": Rates(0.1, 0.1),
        "normalized_fed_avg": Rates(0.1, 0.3),
        "fed_sgd": Rates(0.1, 1.0),  # Its clients do not train.
    },
    "emnist_character": _EMNIST,
    "emnist_digits": _EMNIST,
    "shakespeare_character": {
        "fed_avg": _powers(0, 0),  # [F]
        "fed_avgm": _powers(0, -0.5),  # [F]
        "fed_adagrad": _powers(0, -0.5, -1),  # [F]
        "fed_adam": _powers(0, -2, -3),  # [F]
        "fed_yogi": _powers(0, -2, -3),  # [F]
        "fed_lars": _large(10.0, 0.01),  # [L]
        "fed_lamb": _large(10.0, 0.01),  # [L]
        "normalized_fed_avg": _large(1.0, 1.0),  # [L]
        "fed_sgd": _large(1.0, 1.0),  # [L]
    },
    "emnist_autoencoder": {
        "fed_avg": _powers(1, 0),  # [F]
        "fed_avgm": _powers(0.5, 0),  # [F]
        "fed_adagrad": _powers(1.5, -1.5, -3),  # [F]
        "fed_adam": _powers(1, -1.5, -3),  # [F]
        "fed_yogi": _powers(1, -1.5, -3),  # [F]
    },
    "cifar100": {
        "fed_avg": _powers(-1, 0.5),  # [F]
        "fed_avgm": _powers(-1.5, 0),  # [F]
        "fed_adagrad": _powers(-1, -1, -2),  # [F]
        "fed_adam": _powers(-1.5, 0, -1),  # [F]
        "fed_yogi": _powers(-1.5, 0, -1),  # [F]
        "fed_lars": _large(0.1, 0.01),  # [L]
        "fed_lamb": _large(0.01, 0.001),  # [L]
        "normalized_fed_avg": _large(0.1, 1.0),  # [L]
        "fed_sgd": _large(1.0, 0.1),  # [L]
    },
    "stackoverflow_word": {
        "fed_avg": _powers(-0.5, 0),  # [F]
        "fed_avgm": _powers(-0.5, 0),  # [F]
        "fed_adagrad": _powers(-0.5, -1.5, -4),  # [F]
        "fed_adam": _powers(-0.5, -2, -5),  # [F]
        "fed_yogi": _powers(-0.5, -2, -5),  # [F]
        "fed_lars": _large(1.0, 0.01),  # [L]
        "fed_lamb": _large(10.0, 0.01),  # [L]
        "normalized_fed_avg": _large(10.0, 1.0),  # [L]
        "fed_sgd": _large(1.0, 10.0),  # [L]
    },
    "stackoverflow_tag": {
        "fed_avg": _powers(2, 0),  # [F]
        "fed_avgm": _powers(2, 0),  # [F]
        "fed_adagrad": _powers(2, 1, -2),  # [F]
        "fed_adam": _powers(2, -0.5, -5),  # [F]
        "fed_yogi": _powers(2, -0.5, -5),  # [F]
    },
    "emnist_letters": {"fed_avg": Rates(0.1, 1.0)},  # [A]
    "cifar10": {"fed_avg": Rates(0.1, 1.0)},  # [A]
    "shakespeare_character_gru": {"fed_avg": Rates(0.1, 1.0)},  # [U]
}


# A server rate of 1 would move every weight by about 1, or every layer by its norm.
_OF_THEIR_OWN_LENGTH = (
    *("fed_adagrad", "fed_adam", "fed_yogi"),
    *("fed_lars", "fed_lamb", "normalized_fed_avg"),
)


def of_task(task: str) -> TaskDefaults:
    """Returns the default settings of a task.

    Args:
      task: The task's name. A task without an entry runs for 100 rounds with
        cohorts of 10.
    """
    return TASKS.get(task, TaskDefaults(100, 10, 10))


def rates(task: str, algorithm: str) -> Rates:
    """Returns the default rates of an algorithm on a task.

    Args:
      task: The task's name.
      algorithm: The algorithm's name.

    Returns:
      The rates that were tuned for the pair. A method that was not, such as those
      with client states, runs at the client rate of FedAvg on the task, or 0.1, and
      at 1 on the server, or, if its clients send gradients rather than differences of
      models, at the server rate of FedSGD; a method whose steps are of a length of
      their own has no server rate then.
    """
    of_task = _RATES.get(task, {})
    fed_avg = of_task.get("fed_avg", Rates(0.1, 1.0))
    server = None if algorithm in _OF_THEIR_OWN_LENGTH else 1.0
    if from_source.methods()[algorithm].sends_gradients and "fed_sgd" in of_task:
        server = of_task["fed_sgd"].server
    return of_task.get(algorithm, Rates(fed_avg.client, server))


def check_tuned(
    task: str, algorithm: str, server_rate: float | None, data: Mapping[str, Any]
) -> None:
    """Raises a `UserError` if a run has no server rate: given, or tuned by anybody.

    Args:
      task: The task's name.
      algorithm: The algorithm's name.
      server_rate: The run's server rate, `None` without.
      data: The flags that are given to have the task and the algorithm, by name.
    """
    if server_rate is None:
        flags = {"task": task, "algorithm": algorithm, **data}
        words = [f"--{name}={value_types.show(each)}" for name, each in flags.items()]
        raise UserError(
            f"--server_learning_rate must be given for {algorithm} on {task}, where "
            "nobody has tuned it. To find it on held-out clients: tff-drift sweep "
            f"server_learning_rate=log:0.001:1:4 {shlex.join(words)}, then --settings "
            "with the best.json it writes."
        )
