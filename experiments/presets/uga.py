"""Yao et al. (2019), Unbiased Gradient Aggregation and Controllable Meta Updating.

Federated Learning with Unbiased Gradient Aggregation and Controllable Meta Updating,
https://arxiv.org/abs/1910.08234, Tables 2 and 3: rounds to 70, 80 and 90 % of test
accuracy and the accuracy at the end, for E = 5 and B = 64, with 10 of 100 writers per
round. The test examples are those of the same writers, after every round.

`paper_rates` has the paper's rates: η = 0.002 for clients, falling by 0.992 from round
to round, η_g = 0.002 for UGA's server, η_meta = η, μ = 2e-4 for FedProx. 1 % of the
examples is D_meta, or is split among the clients for FedShare. Losses are means over
examples here. The paper's section 2 writes a client's as a sum, and a client has about
100 examples: `uga_summed` and `fed_meta_uga_summed` have η_g = 0.2, the same server
step on sums.

`tuned_rates` has rates chosen for this library by a search on held-out writers. At the
local scale η = 0.1 is that of Reddi et al. (2021, https://arxiv.org/abs/2003.00295) on
EMNIST, and only the rates of UGA, which diverges at large ones, and of FedMeta are
searched for. FedMeta with UGA has UGA's choice, and its own η_meta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.presets.preset import Output, Preset, Scale, Search, Study, Variant
from tff_drift import from_source

THRESHOLDS = (0.7, 0.8, 0.9)
# Tables 2 and 3: rounds to 70, 80 and 90 %, and the accuracy at convergence.
TABLES = {
    "fed_avg": ((68, 111, 437), 0.9022),
    "fed_share": ((65, 93, 385), 0.9074),
    "fed_prox": ((32, 50, 144), 0.9527),
    "fed_meta": ((30, 49, 155), 0.9498),
    "uga": ((27, 48, 137), 0.9587),
    "fed_meta_uga": ((21, 31, 59), 0.9818),
}
# The methods, with the paper's values of their options.
_METHODS: dict[str, dict[str, Any]] = {
    "fed_avg": {},
    "fed_share": {},
    "fed_prox": {"fed_prox_mu": 2e-4},
    "fed_meta": {},
    "uga": {},
    "fed_meta_uga": {},
}
# UGA's server step on losses that are sums.
_SUMMED = "{}_summed"
_SUMMED_SERVER_RATE = 0.2

_FLAGS = {
    "task": "emnist_digits",
    "num_clients": 100,
    "clients_per_round": 10,
    "client_epochs": 5,
    "batch_size": 64,
    "client_rate_schedule": "per_round_factor",
    "client_rate_decay": 0.992,
    "rounds_per_evaluation": 1,
}
_MILESTONES = Output(
    "milestones",
    "milestones",
    {
        "thresholds": THRESHOLDS,
        "paper": TABLES,
        "source": "Yao et al. (2019), Tables 2 and 3",
    },
)


class _Size(NamedTuple):
    """How much is run.

    Attributes:
      paper_rates_rounds: The rounds at the paper's rates.
      summed_rounds: Those of UGA with losses that are sums, whose rounds take longer.
      still_rounds: Those of UGA at its server rate, which hardly moves the model.
      tuned_rates_rounds: The rounds at tuned rates.
      search_rounds: The rounds at each point of the search.
      client_rates: The client rates to choose from.
      uga_client_rates: Those of UGA.
      server_rates: UGA's server rates to choose from.
      meta_rates: FedMeta's rates to choose from.
    """

    paper_rates_rounds: int
    summed_rounds: int
    still_rounds: int
    tuned_rates_rounds: int
    search_rounds: int
    client_rates: Sequence[float]
    uga_client_rates: Sequence[float]
    server_rates: Sequence[float]
    meta_rates: Sequence[float]


_RATES = (0.01, 0.03, 0.1)
_SERVER_RATES = (0.1, 0.3, 1.0)
_LOCAL = _Size(80, 60, 20, 60, 20, (0.1,), (0.03, 0.1), _SERVER_RATES, (0.03, 0.1))
_PAPER = _Size(1000, 1000, 1000, 1000, 100, _RATES, _RATES, _SERVER_RATES, _RATES)


def _flags(name: str) -> dict[str, Any]:
    flags = {"client_learning_rate": 0.002, **_METHODS[name]}
    if from_source.methods()[name].sends_gradients:
        flags["server_learning_rate"] = 0.002
    return flags


def _paper_rates(size: _Size) -> Study:
    variants = []
    for name in _METHODS:
        flags = _flags(name)
        if "server_learning_rate" not in flags:
            variants.append(Variant(name, name, flags))
            continue
        still = {**flags, "rounds": size.still_rounds}
        variants.append(Variant(name, name, still))
        summed = {**flags, "rounds": size.summed_rounds}
        summed["server_learning_rate"] = _SUMMED_SERVER_RATE
        variants.append(Variant(_SUMMED.format(name), name, summed))
    flags = {**_FLAGS, "rounds": size.paper_rates_rounds}
    return Study("paper_rates", flags, variants, outputs=[_MILESTONES])


def _tuned_rates(size: _Size) -> Study:
    client_rates = {"client_learning_rate": size.client_rates}
    search = Search(
        size.search_rounds,
        {
            "fed_avg": client_rates,
            "fed_share": client_rates,
            "fed_prox": client_rates,
            "fed_meta": {**client_rates, "meta_learning_rate": size.meta_rates},
            "uga": {
                "client_learning_rate": size.uga_client_rates,
                "server_learning_rate": size.server_rates,
            },
            "fed_meta_uga": {"meta_learning_rate": size.meta_rates},
        },
        {"fed_meta_uga": ("uga", ("client_learning_rate", "server_learning_rate"))},
    )
    variants = [Variant(name, name, _flags(name)) for name in _METHODS]
    flags = {**_FLAGS, "rounds": size.tuned_rates_rounds}
    return Study("tuned_rates", flags, variants, search, [_MILESTONES])


PRESETS = (
    Preset(
        "uga_table",
        "FedAvg, FedShare, FedProx, UGA and FedMeta on 100 digit writers: rounds "
        "to an accuracy, at the paper's rates and at tuned ones.",
        "Yao et al. (2019), Tables 2 and 3. https://arxiv.org/abs/1910.08234",
        Scale([_paper_rates(_LOCAL), _tuned_rates(_LOCAL)], 2, 2),
        Scale([_paper_rates(_PAPER), _tuned_rates(_PAPER)], 40, 2),
    ),
)
