"""UGA and FedMeta on 100 digit writers, beside FedAvg, FedShare and FedProx.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, https://arxiv.org/abs/1910.08234, Tables 2 and 3: rounds to
70, 80 and 90 % of test accuracy and the accuracy at the end, for E = 5 and B = 64, with
10 of 100 writers per round. The test examples are those of the same writers, after
every round.

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

The tables are written seed by seed, and the same command goes on after an interrupt.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from experiments.flags.presets import Request
from experiments.presets import searches, studies
from experiments.presets.studies import Study, Variant
from experiments.reports import texts, writing
from experiments.reports.results import Result
from experiments.training import log
from tff_drift import from_source

MILESTONES_FILE = "milestones.md"
MILESTONES_DATA_FILE = "milestones.csv"
THRESHOLDS = (0.7, 0.8, 0.9)


class Paper(NamedTuple):
    """A row of the paper's Tables 2 and 3.

    Attributes:
      rounds: Rounds to 70, 80 and 90 %.
      accuracy: The accuracy at convergence.
    """

    rounds: tuple[int, int, int]
    accuracy: float


PAPER = {
    "fed_avg": Paper((68, 111, 437), 0.9022),
    "fed_share": Paper((65, 93, 385), 0.9074),
    "fed_prox": Paper((32, 50, 144), 0.9527),
    "fed_meta": Paper((30, 49, 155), 0.9498),
    "uga": Paper((27, 48, 137), 0.9587),
    "fed_meta_uga": Paper((21, 31, 59), 0.9818),
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
# The accuracy at the end is the mean over the last tenth of the rounds.
_LAST_PART = 10
_PAPER_RATES, _TUNED_RATES = "paper_rates", "tuned_rates"


class Scale(NamedTuple):
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


SCALES = {
    "local": Scale(
        80, 60, 20, 60, 20, (0.1,), (0.03, 0.1), (0.1, 0.3, 1.0), (0.03, 0.1)
    ),
    "paper": Scale(
        1000,
        1000,
        1000,
        1000,
        100,
        (0.01, 0.03, 0.1),
        (0.01, 0.03, 0.1),
        (0.1, 0.3, 1.0),
        (0.01, 0.03, 0.1),
    ),
}


def run(request: Request) -> None:
    """Runs the parts asked for, seed by seed.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    log.show()
    scale = SCALES[request.scale]
    for part in request.parts:
        study = build_study(part, scale)
        if part == _TUNED_RATES:
            study = _tune(request, study, scale)
        for count in range(1, len(request.seeds) + 1):
            some = dataclasses.replace(request, seeds=request.seeds[:count])
            done = studies.run_study(some, study)
            write_milestones(request, study, done)
            columns = {name: name for name in (done[0].headline, "test_loss")}
            studies.write_metrics(request, study, done, columns)


def build_study(part: str, scale: Scale) -> Study:
    """Returns the methods at the paper's rates, of which a search changes some.

    Args:
      part: "paper_rates" or "tuned_rates".
      scale: How much is run.
    """
    variants = []
    for name, options in _METHODS.items():
        flags = {"client_learning_rate": 0.002, **options}
        if not from_source.methods()[name].sends_gradients:
            variants.append(Variant(name, name, flags))
            continue
        flags["server_learning_rate"] = 0.002
        if part == _TUNED_RATES:
            variants.append(Variant(name, name, flags))
            continue
        still = {**flags, "rounds": scale.still_rounds}
        variants.append(Variant(name, name, still))
        summed = {**flags, "rounds": scale.summed_rounds}
        summed["server_learning_rate"] = _SUMMED_SERVER_RATE
        variants.append(Variant(_SUMMED.format(name), name, summed))
    rounds = {
        _PAPER_RATES: scale.paper_rates_rounds,
        _TUNED_RATES: scale.tuned_rates_rounds,
    }
    return Study(part, {**_FLAGS, "rounds": rounds[part]}, variants)


def build_grids(scale: Scale) -> dict[str, dict[str, Sequence[float]]]:
    """Returns what each method's search tries, FedMeta with UGA left out.

    Args:
      scale: How much is run.
    """
    client_rates = {"client_learning_rate": scale.client_rates}
    return {
        "fed_avg": client_rates,
        "fed_share": client_rates,
        "fed_prox": client_rates,
        "fed_meta": {**client_rates, "meta_learning_rate": scale.meta_rates},
        "uga": {
            "client_learning_rate": scale.uga_client_rates,
            "server_learning_rate": scale.server_rates,
        },
    }


def _tune(request: Request, study: Study, scale: Scale) -> Study:
    """Returns the study with searched rates."""
    chosen = searches.choose(request, study, build_grids(scale), scale.search_rounds)
    of_uga = {variant.label: variant.flags for variant in chosen.variants}["uga"]
    grid: dict[str, Sequence[float]] = {
        flag: (of_uga[flag],)
        for flag in ("client_learning_rate", "server_learning_rate")
    }
    grid["meta_learning_rate"] = scale.meta_rates
    searched = dataclasses.replace(chosen, part=f"{study.part}_fed_meta_uga")
    searched = searches.choose(
        request, searched, {"fed_meta_uga": grid}, scale.search_rounds
    )
    return dataclasses.replace(searched, part=study.part)


def tabulate(done: Sequence[Result]) -> pd.DataFrame:
    """Returns one row per method: its milestones beside the paper's.

    A milestone that a seed did not reach is NaN, for the mean over seeds too.

    Args:
      done: The results.
    """
    rows = []
    for label in dict.fromkeys(result.settings.label for result in done):
        of_method = [result for result in done if result.settings.label == label]
        paper = PAPER[of_method[0].settings.algorithm]
        accuracies = pd.Series([_final_accuracy(result) for result in of_method])
        row = {
            "method": label,
            "seeds": len(of_method),
            "rounds": of_method[0].rows[-1]["round"],
            "accuracy": accuracies.mean(),
            "accuracy_sd": accuracies.std(),
            "accuracy_paper": paper.accuracy,
        }
        for threshold, rounds in zip(THRESHOLDS, paper.rounds):
            name = f"rounds_to_{100 * threshold:.0f}"
            found = pd.Series([_rounds_to(result, threshold) for result in of_method])
            row[name] = found.mean(skipna=False)
            row[f"{name}_paper"] = rounds
        rows.append(row)
    return pd.DataFrame(rows)


def _rounds_to(result: Result, threshold: float) -> float:
    for row in result.rows:
        if row.get(result.headline, 0.0) >= threshold:
            return row["round"]
    return math.nan


def _final_accuracy(result: Result) -> float:
    values = [row[result.headline] for row in result.rows if result.headline in row]
    # Beside the rounds stands the initial model.
    count = max(1, (len(values) - 1) // _LAST_PART)
    return sum(values[-count:]) / count


def write_milestones(request: Request, study: Study, done: Sequence[Result]) -> None:
    """Writes the table of milestones.

    Args:
      request: What is asked for.
      study: The study.
      done: Its results.

    Raises:
      OSError: If a file cannot be written.
    """
    table = tabulate(done)
    folder = request.folder / study.part
    writing.write_table(folder / MILESTONES_DATA_FILE, table)
    seeds = dict.fromkeys(result.settings.seed for result in done)
    missing = [seed for seed in request.seeds if seed not in seeds]
    state = f", NOT yet {', '.join(map(str, missing))}" if missing else ""
    title = (
        f"{study.part}, seeds {', '.join(map(str, seeds))}{state}. Rounds to an "
        "accuracy on test examples, and the mean accuracy of the last tenth of the "
        "rounds. In parentheses: Yao et al. (2019), Tables 2 and 3.\n\n"
    )
    headers = ["method", "rounds", *(f"{100 * each:.0f} %" for each in THRESHOLDS)]
    headers.append("accuracy")
    cells = [_cells(row) for row in table.to_dict(orient="records")]
    text = title + texts.markdown_table(headers, cells)
    writing.write_text(folder / MILESTONES_FILE, text)
    print(text)


def _cells(row: Mapping[str, Any]) -> list[str]:
    rounds = row["rounds"]
    cells = [row["method"], str(rounds)]
    for threshold in THRESHOLDS:
        name = f"rounds_to_{100 * threshold:.0f}"
        found = row[name]
        ours = f"> {rounds}" if math.isnan(found) else f"{found:.4g}"
        cells.append(f"{ours} ({row[f'{name}_paper']})")
    accuracy = texts.metric_with_deviation(
        "accuracy", row["accuracy"], row["accuracy_sd"]
    )
    return [*cells, f"{accuracy} ({100 * row['accuracy_paper']:.2f} %)"]
