"""UGA and FedMeta on 100 digit writers, beside FedAvg, FedShare and FedProx.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, https://arxiv.org/abs/1910.08234, Tables 2 and 3: rounds to
70, 80 and 90 % of test accuracy and the accuracy at the end, for E = 5 and B = 64, with
10 of 100 writers per round. The test examples are those of the same writers, after
every round.

`paper_rates` has the paper's rates: η = 0.002 for clients, falling by 0.992 from round
to round, η_g = 0.002 for UGA's server, η_meta = η, μ = 2e-4 for FedProx. 1 % of the
examples is D_meta, or is split among the clients for FedShare.

`tuned_rates` has rates chosen for this library, whose losses are means over examples,
by a search on held-out writers. At the local scale η = 0.1 is that of Reddi et al.
(2021, https://arxiv.org/abs/2003.00295) on EMNIST, and only the rates of UGA, which
diverges at large ones, and of FedMeta are searched for.

The rounds come in stages, and the tables are written after each: an interrupted or
unfinished preset shows how far it came, and the same command goes on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from experiments import commands, results, texts
from experiments.presets import searches, studies
from experiments.presets.registry import Request
from experiments.presets.studies import Study, Variant
from experiments.results import Result
from tff_drift import simulation
from tff_drift.simulation import run_folder

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
_WITH_SERVER_RATE = ("uga", "fed_meta_uga")
_WITH_META_RATE = ("fed_meta", "fed_meta_uga")

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
_FIRST_STAGE = 5


class Scale(NamedTuple):
    """How much is run.

    Attributes:
      rounds: The rounds of every run.
      search_rounds: The rounds at each point of the search.
      client_rates: The client rates to choose from.
      uga_client_rates: Those of UGA.
      server_rates: UGA's server rates to choose from.
      meta_rates: FedMeta's rates to choose from.
    """

    rounds: int
    search_rounds: int
    client_rates: Sequence[float]
    uga_client_rates: Sequence[float]
    server_rates: Sequence[float]
    meta_rates: Sequence[float]


SCALES = {
    "local": Scale(80, 20, (0.1,), (0.03, 0.1), (0.1, 0.3, 1.0), (0.03, 0.1)),
    "paper": Scale(
        1000,
        100,
        (0.01, 0.03, 0.1),
        (0.01, 0.03, 0.1),
        (0.1, 0.3, 1.0),
        (0.01, 0.03, 0.1),
    ),
}


def run(request: Request) -> None:
    """Runs the parts asked for, stage by stage.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    commands.show_log()
    scale = SCALES[request.scale]
    for part in request.parts:
        study = build_study(part, scale)
        if part == "tuned_rates":
            grids = build_grids(scale)
            study = searches.choose(request, study, grids, scale.search_rounds)
        for rounds in stages(scale.rounds, rounds_reached(request, study)):
            flags = {**study.flags, "rounds": rounds}
            stage = dataclasses.replace(study, flags=flags)
            done = studies.run_study(request, stage)
            write_milestones(request, stage, done)
            columns = {name: name for name in (done[0].headline, "test_loss")}
            studies.write_metrics(request, stage, done, columns)


def build_study(part: str, scale: Scale) -> Study:
    """Returns the methods at the paper's rates, of which a search changes some.

    Args:
      part: "paper_rates" or "tuned_rates".
      scale: How much is run.
    """
    variants = []
    for name in PAPER:
        flags: dict[str, Any] = {"client_learning_rate": 0.002}
        if name in _WITH_SERVER_RATE:
            flags["server_learning_rate"] = 0.002
        if name == "fed_prox":
            flags["mu"] = 2e-4
        variants.append(Variant(name, name, flags))
    return Study(part, {**_FLAGS, "rounds": scale.rounds}, variants)


def build_grids(scale: Scale) -> dict[str, dict[str, Sequence[float]]]:
    """Returns what each method's search tries.

    Args:
      scale: How much is run.
    """
    grids: dict[str, dict[str, Sequence[float]]] = {}
    for name in PAPER:
        grids[name] = {"client_learning_rate": scale.client_rates}
        if name in _WITH_SERVER_RATE:
            grids[name]["client_learning_rate"] = scale.uga_client_rates
            grids[name]["server_learning_rate"] = scale.server_rates
        if name in _WITH_META_RATE:
            grids[name]["meta_learning_rate"] = scale.meta_rates
    return grids


def stages(rounds: int, reached: int) -> list[int]:
    """Returns the rounds at which tables are written, doubling to the last.

    Args:
      rounds: The rounds in all.
      reached: The rounds that some run has already, at most `rounds`.
    """
    doubling = [min(_FIRST_STAGE, rounds)]
    while doubling[-1] < rounds:
        doubling.append(min(2 * doubling[-1], rounds))
    return [stage for stage in doubling if stage >= reached]


def rounds_reached(request: Request, study: Study) -> int:
    """Returns the rounds of the run that came farthest.

    Args:
      request: What is asked for.
      study: The study.
    """
    reached = 0
    for seed in request.seeds:
        for variant in study.variants:
            run = studies.run_settings(request, study, variant, seed)
            path = run.folder / run_folder.METRICS_FILE
            if path.is_file():
                _, rows = simulation.read_rows(path)
                reached = max([reached, *(int(row["round"]) for row in rows)])
    return reached


def tabulate(done: Sequence[Result]) -> pd.DataFrame:
    """Returns one row per method: its milestones beside the paper's.

    A milestone that a seed did not reach is NaN, for the mean over seeds too.

    Args:
      done: The results.
    """
    rows = []
    for label in dict.fromkeys(result.settings.label for result in done):
        of_method = [result for result in done if result.settings.label == label]
        accuracies = pd.Series([_final_accuracy(result) for result in of_method])
        row = {
            "method": label,
            "seeds": len(of_method),
            "rounds": of_method[0].rows[-1]["round"],
            "accuracy": accuracies.mean(),
            "accuracy_sd": accuracies.std(),
            "accuracy_paper": PAPER[label].accuracy,
        }
        for threshold, paper in zip(THRESHOLDS, PAPER[label].rounds):
            name = f"rounds_to_{100 * threshold:.0f}"
            found = pd.Series([_rounds_to(result, threshold) for result in of_method])
            row[name] = found.mean(skipna=False)
            row[f"{name}_paper"] = paper
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
    results.write_table(folder / MILESTONES_DATA_FILE, table)
    rounds = study.flags["rounds"]
    planned = SCALES[request.scale].rounds
    state = "complete" if rounds == planned else "NOT complete"
    title = (
        f"{study.part}, {rounds} of {planned} rounds ({state}), seeds "
        f"{', '.join(map(str, request.seeds))}. Rounds to an accuracy on test "
        "examples, and the mean accuracy of the last tenth of the rounds. In "
        "parentheses: "
        "Yao et al. (2019), Tables 2 and 3.\n\n"
    )
    headers = ["method", *(f"{100 * each:.0f} %" for each in THRESHOLDS), "accuracy"]
    cells = [_cells(row, rounds) for row in table.to_dict(orient="records")]
    text = title + texts.markdown_table(headers, cells)
    results.write_text(folder / MILESTONES_FILE, text)
    print(text)


def _cells(row: Mapping[str, Any], rounds: int) -> list[str]:
    cells = [row["method"]]
    for threshold in THRESHOLDS:
        name = f"rounds_to_{100 * threshold:.0f}"
        found = row[name]
        ours = f"> {rounds}" if math.isnan(found) else f"{found:.4g}"
        cells.append(f"{ours} ({row[f'{name}_paper']})")
    accuracy = texts.metric_with_deviation(
        "accuracy", row["accuracy"], row["accuracy_sd"]
    )
    return [*cells, f"{accuracy} ({100 * row['accuracy_paper']:.2f} %)"]
