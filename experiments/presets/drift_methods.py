"""Every method of the library on two tasks, at rates found by one budget.

`digits` is scikit-learn's digits, partitioned among 50 clients by Dirichlet 0.03, of
which five take part in a round: few labels to a client, clients that rarely come back.
`letters` is the first ten letters of EMNIST, partitioned among 20 clients by Dirichlet
0.3 and of log-normal sizes, all of which take part for one epoch: clients do unequal
work, and the loss of the logistic regression is convex.

Each method has four points to choose from, by its accuracy on held-out clients with a
seed that is not reported: four client rates, or two of them and two server rates where
the server's optimizer is what makes the method, or four server rates where clients take
no local steps. All else is the default of `tff-drift train`, except that Mime and
MimeLite have SGD with momentum as their base optimizer, without which MimeLite is
FedAvg, FedProx has a μ that makes a difference, and AdaBest its automatic β. All
clients have the same weight.
Scaffnew needs all clients in every round, on digits too; the mean of its numbers of
local steps is about the others' number. `central` trains on all data in one place, an
epoch a round; FedMeta's server has a part of the data, and so have FedShare's clients.
They show what the others lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.presets.preset import Output, Preset, Scale, Search, Study, Variant
from tff_drift import from_source

_CLIENT, _SERVER = "client_learning_rate", "server_learning_rate"
_MOMENTUM = {"client_optimizer": "momentum"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "adabest": {"beta": "auto"},
    "central": {"clients_per_round": 1, "client_epochs": 1},
    "fed_prox": {"fed_prox_mu": 0.1},
    "mime": _MOMENTUM,
    "mime_lite": _MOMENTUM,
}


def _study(
    part: str,
    task: Mapping[str, Any],
    epochs: int,
    rounds: tuple[int, int],
    client_rates: Sequence[float],
    server_rates: Mapping[str, Sequence[float]],
    scaffnew: Mapping[str, Any],
    thresholds: tuple[float, float],
) -> Study:
    """Returns all methods on a task.

    Args:
      part: The part's name.
      task: The flags of `tff-drift train` for the task.
      epochs: The epochs of clients that take local steps.
      rounds: The rounds of training, and those at each point of the search.
      client_rates: Four client rates to choose from.
      server_rates: Server rates to choose from, by the methods that have a choice.
      scaffnew: Scaffnew's own flags.
      thresholds: Two accuracies to reach.
    """
    options = {**_OPTIONS, "scaffnew": scaffnew}
    methods = from_source.read()
    flags = {
        **task,
        "rounds": rounds[0],
        "rounds_per_evaluation": 2,
        "weighting": "uniform",
    }
    variants = [
        Variant(
            name,
            name,
            {
                **({"client_epochs": epochs} if method.has_client_rate else {}),
                **options.get(name, {}),
            },
        )
        for name, method in methods.items()
    ]
    return Study(
        part,
        flags,
        variants,
        Search(
            rounds[1],
            {name: _grid(name, client_rates, server_rates) for name in methods},
        ),
        [
            Output("methods", "methods_table", {"thresholds": thresholds}),
            Output("accuracy", "methods", {"threshold": thresholds[0]}),
        ],
    )


def _grid(
    method: str,
    client_rates: Sequence[float],
    server_rates: Mapping[str, Sequence[float]],
) -> dict[str, Sequence[float]]:
    """Returns the four points of a method."""
    if method == "fed_sgd":
        return {_SERVER: server_rates[method]}
    if method in server_rates:
        return {_CLIENT: client_rates[1:3], _SERVER: server_rates[method]}
    if _OPTIONS.get(method) is _MOMENTUM:
        # With a momentum of 0.9 steps are ten times as long in the end.
        return {_CLIENT: [rate / 10 for rate in client_rates]}
    return {_CLIENT: client_rates}


def _server_rates(
    adaptive: Sequence[float],
    normalized: Sequence[float],
    of_gradients: Sequence[float],
) -> dict[str, Sequence[float]]:
    """Returns the server rates to choose from, two each, and four of FedSGD."""
    return {
        **dict.fromkeys(("fed_adagrad", "fed_adam", "fed_yogi"), adaptive),
        **dict.fromkeys(("fed_lars", "fed_lamb"), (0.01, 0.1)),
        "fed_avgm": (0.1, 0.3),
        "normalized_fed_avg": normalized,
        **dict.fromkeys(("uga", "fed_meta_uga"), of_gradients[1:3]),
        "fed_sgd": of_gradients,
    }


_STUDIES = (
    _study(
        "digits",
        {
            "task": "digits",
            "num_clients": 50,
            "alpha": 0.03,
            "clients_per_round": 5,
        },
        2,
        (60, 20),
        (0.03, 0.1, 0.3, 1.0),
        _server_rates((0.01, 0.03), (0.3, 1.0), (0.1, 0.3, 1.0, 3.0)),
        {"clients_per_round": 50, "client_epochs": 6, "scaffnew_probability": 1 / 6},
        (0.8, 0.9),
    ),
    _study(
        "letters",
        {
            "task": "emnist_letters",
            "network": "logistic",
            "letters": 10,
            "num_clients": 20,
            "alpha": 0.3,
            "size_sigma": 1.0,
            "batch_size": 40,
            "clients_per_round": 20,
        },
        1,
        (30, 10),
        (0.001, 0.003, 0.01, 0.03),
        _server_rates((0.003, 0.01), (0.1, 0.3), (0.003, 0.01, 0.03, 0.1)),
        {"client_epochs": 3, "scaffnew_probability": 0.2},
        (0.6, 0.65),
    ),
)
# The same at both scales.
_SCALE = Scale(_STUDIES, 1, 6)
PRESETS = (
    Preset(
        "drift_methods",
        "Every method of the library on digits of clients that rarely come back and on "
        "letters of clients of unequal sizes, at rates found by one budget: accuracy, "
        "rounds, traffic and what is kept.",
        "Not from a paper: one table of all methods.",
        _SCALE,
        _SCALE,
    ),
)
