"""FedAdagrad, FedAdam, FedYogi, FedAvgM and FedAvg over the tasks of their paper.

Reddi et al. (2021), Adaptive Federated Optimization, https://arxiv.org/abs/2003.00295,
Table 1: the mean over the last 100 rounds of what test clients measure, at the rates
that the paper lists for each pair, which are the defaults of `tff-drift train`.

Shakespeare is the paper's own data, and its part is the paper's protocol at both
scales. The other parts have the paper's rounds at the scale `paper`, and fewer at
`local`, over the last tenth of which the mean is taken: they compare the methods with
each other. The paper's CIFAR-10 is left out: its rates for it are not among ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.flags.presets import Request
from experiments.presets import studies
from experiments.presets.studies import Study, Variant
from experiments.reports import texts, writing
from experiments.reports.results import Result
from experiments.training import log

TABLE = "last_rounds"
METHODS = ("fed_adagrad", "fed_adam", "fed_yogi", "fed_avgm", "fed_avg")
# Table 1, in the units of our metrics; the order is that of `METHODS`.
PAPER = {
    "shakespeare_character": (0.575, 0.570, 0.572, 0.573, 0.569),
    "emnist_character": (0.851, 0.856, 0.855, 0.852, 0.849),
    "emnist_autoencoder": (0.00420, 0.00101, 0.00098, 0.00165, 0.00647),
    "cifar100": (0.479, 0.525, 0.524, 0.524, 0.447),
    "stackoverflow_word": (0.238, 0.252, 0.252, 0.238, 0.195),
    "stackoverflow_tag": (0.671, 0.658, 0.659, 0.369, 0.300),
}
_LAST_ROUNDS = 100
# At the scale `local`, where it is not the paper's.
_LOCAL_ROUNDS = {
    "emnist_character": 200,
    "emnist_autoencoder": 100,
    "cifar100": 20,
    "stackoverflow_word": 20,
    "stackoverflow_tag": 50,
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
    for part in request.parts:
        study = build_study(part, request.scale)
        done = studies.run_study(request, study)
        studies.write_metrics(
            request, study, done, {done[0].headline: done[0].headline}
        )
        write_table(request, study, done)


def build_study(part: str, scale: str) -> Study:
    """Returns the methods on a part's task.

    Args:
      part: The task.
      scale: "local" or "paper".
    """
    flags: dict[str, Any] = {"task": part, "protocol": "fed_opt"}
    if scale == "local" and part in _LOCAL_ROUNDS:
        flags["rounds"] = _LOCAL_ROUNDS[part]
        flags["rounds_per_evaluation"] = max(1, flags["rounds"] // 50)
    return Study(part, flags, [Variant(name, name) for name in METHODS])


def tabulate(part: str, done: Sequence[Result]) -> pd.DataFrame:
    """Returns one row per method: its mean over the last rounds beside the paper's.

    Args:
      part: The task.
      done: The results.
    """
    rows = []
    for name, paper in zip(METHODS, PAPER[part]):
        of_method = [each for each in done if each.settings.algorithm == name]
        values = pd.Series([_mean_of_last(each) for each in of_method])
        rows.append(
            {
                "method": name,
                "seeds": len(of_method),
                "rounds": of_method[0].settings.rounds,
                "value": values.mean(skipna=False),
                "value_sd": values.std(skipna=False),
                "paper": paper,
            }
        )
    return pd.DataFrame(rows)


def _mean_of_last(result: Result) -> float:
    """Returns the mean of the last 100 rounds, of the last tenth if it is shorter."""
    rounds = result.settings.rounds
    first = rounds - min(_LAST_ROUNDS, max(1, rounds // 10))
    rows = [row for row in result.rows if result.headline in row]
    last = [row for row in rows if row["round"] > first] or rows[-1:]
    return math.fsum(row[result.headline] for row in last) / len(last)


def write_table(request: Request, study: Study, done: Sequence[Result]) -> None:
    """Writes and prints the table of a part.

    Args:
      request: What is asked for.
      study: The part's study.
      done: Its results.

    Raises:
      OSError: If a file cannot be written.
    """
    table = tabulate(study.part, done)
    folder = request.folder / study.part
    writing.write_table(folder / f"{TABLE}.csv", table)
    metric = done[0].headline.removeprefix("test_")
    headers = ["method", "rounds", f"{metric}, last rounds", "paper"]
    cells = [_cells(row, metric) for row in table.to_dict(orient="records")]
    seeds = sorted({result.settings.seed for result in done})
    text = (
        f"{study.part}, seeds {', '.join(map(str, seeds))}. Mean over the last 100 "
        "rounds, or the last tenth if those are fewer, on test clients; the paper's "
        "figure is of its own rounds and data.\n\n"
    )
    text += texts.markdown_table(headers, cells)
    writing.write_text(folder / f"{TABLE}.md", text)
    print(text)


def _cells(row: Mapping[str, Any], metric: str) -> list[str]:
    return [
        row["method"],
        f"{row['rounds']:,}",
        texts.metric_with_deviation(metric, row["value"], row["value_sd"]),
        texts.metric(metric, row["paper"]),
    ]
