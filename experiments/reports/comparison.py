"""Several algorithms with several seeds: one table, one figure, one summary.

Where it says algorithm, two runs of one algorithm with different settings are two,
each with a label of its own.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments import analysis
from experiments.analysis import style
from experiments.flags.settings import RunSettings
from experiments.reports import plots, results, texts, writing
from experiments.reports.results import Result
from tff_drift import algorithms
from tff_drift.simulation.records import failures, run_directory

TABLE_FILE = "table.md"
DATA_FILE = "table.csv"
FORMAT = "tff_drift comparison"
# The columns for people that fit 80 columns of a terminal.
_ESSENTIAL = 5
# What the summary reports of each run.
_OF_RUNS = (
    *("final", "best", "failures", "arithmetic"),
    *("client_state_bytes", "server_state_bytes"),
)


def tabulate(runs: Sequence[Result]) -> pd.DataFrame:
    """Returns one row per algorithm: means over seeds of the runs' last figures.

    A column `<name>_sd` holds the standard deviation of a sample over seeds, NaN
    for a single seed. A figure that is NaN for one seed is NaN in the table.
    `failures` is a sum.

    Args:
      runs: The runs, of one task.

    Returns:
      The table, in full precision.
    """
    figures = pd.DataFrame([_figures(run) for run in runs])
    labels = pd.Series([run.settings.label for run in runs], name="algorithm")
    table = analysis.over_seeds(figures, labels)
    shown = (f"{runs[0].headline.removeprefix('test_')}_sd", "loss_sd")
    others = [name for name in table if str(name).endswith("_sd") and name not in shown]
    table = table.drop(columns=others)
    sums = figures["failures"].groupby(labels).sum()
    return table.assign(failures=sums).reset_index()


def _figures(run: Result) -> dict[str, Any]:
    """Returns the figures of a run that enter the table."""
    configuration, headline = run.settings.configuration, run.headline
    metric = headline.removeprefix("test_")
    last = [row for row in run.rows if headline in row][-1]
    return {
        "client_learning_rate": _number(configuration["client_learning_rate"]),
        "server_learning_rate": _number(configuration["server_learning_rate"]),
        metric: last[headline],
        f"best_{metric}": _number(run.summary["best"].get(headline, {}).get("value")),
        f"{metric}_client_p5": last[f"{headline}_client_p5"],
        f"{metric}_client_p50": last[f"{headline}_client_p50"],
        f"{metric}_client_p95": last[f"{headline}_client_p95"],
        "loss": last["test_loss"],
        "examples": run.rows[-1]["total_examples"],
        "bytes": run.rows[-1]["total_bytes"],
        **_arithmetic(run),
        "seconds": run.summary["totals"]["seconds"]
        + run.summary["totals"]["seconds_evaluation"],
        "failures": len(run.summary["failures"]) + _num_lost(run),
    }


def _num_lost(run: Result) -> int:
    """Returns the number of rounds without a finite update that are no failure yet."""
    known = {failure["round"] for failure in run.summary["failures"]}
    return sum(
        failures.all_rejected(row) and row["round"] not in known for row in run.rows
    )


def _arithmetic(run: Result) -> dict[str, float]:
    """Returns a client's arithmetic beyond SGD in a mean round, in units of n."""
    known = results.arithmetic(run.settings, run.rows)
    operations = dict.fromkeys(("sums", "products"), math.nan)
    if known is not None:
        operations = known["client"]
    return {f"client_{name}": value for name, value in operations.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def readable(
    table: pd.DataFrame, metric: str, short: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Returns the headers and the cells of a table for people.

    Args:
      table: The full table.
      metric: The task's headline metric.
      short: Whether to leave out what does not fit 80 columns.
    """
    rows = [_cells(row, metric) for _, row in table.iterrows()]
    headers = list(rows[0])[: _ESSENTIAL if short else None]
    return headers, [[row[name] for name in headers] for row in rows]


def _cells(row: pd.Series, metric: str) -> dict[str, str]:
    """Returns a row's cells by their headers, the essential ones first."""
    return {
        "algorithm": row["algorithm"],
        metric: texts.metric_with_deviation(metric, row[metric], row[f"{metric}_sd"]),
        "client 5th percentile": texts.metric(metric, row[f"{metric}_client_p5"]),
        "loss": texts.metric_with_deviation("loss", row["loss"], row["loss_sd"]),
        "failures": str(row["failures"]),
        "best": texts.metric(metric, row[f"best_{metric}"]),
        "client rate": texts.rate(row["client_learning_rate"]),
        "server rate": texts.rate(row["server_learning_rate"]),
        "examples": f"{row['examples']:,.0f}",
        "traffic": texts.size(row["bytes"]),
        "extra work": texts.units(row["client_sums"] + row["client_products"]),
        "time": texts.duration(row["seconds"]),
    }


def _federated(runs: Sequence[Result]) -> Sequence[Result]:
    """Returns the runs whose clients are the task's; all if all put them together."""
    methods = algorithms.methods()
    found = [run for run in runs if not methods[run.settings.algorithm].pools_data]
    return found or runs


def describe(runs: Sequence[Result]) -> str:
    """Returns one sentence on what a comparison's table shows."""
    seeds = list(dict.fromkeys(run.settings.seed for run in runs))
    over_seeds = (
        f"seeds {', '.join(map(str, seeds))} (mean ± standard deviation)"
        if len(seeds) > 1
        else f"seed {seeds[0]}"
    )
    cohorts, clients = (
        texts.distinct(run.summary[name] for run in _federated(runs))
        for name in ("clients_per_round", "clients")
    )
    return (
        f"{runs[0].settings.task}, {cohorts} of {clients} clients per round, "
        f"{texts.distinct(run.settings.rounds for run in runs)} rounds, {over_seeds}"
    )


def write(folder: pathlib.Path, runs: Sequence[Result]) -> None:
    """Writes table, figure and summary of a comparison.

    Args:
      folder: The folder of the comparison.
      runs: Its runs, all of them.

    Raises:
      OSError: If a file cannot be written.
    """
    table = tabulate(runs)
    headers, cells = readable(table, runs[0].headline.removeprefix("test_"))
    markdown = f"{describe(runs)}.\n\n{texts.markdown_table(headers, cells)}"
    writing.write_text(folder / TABLE_FILE, markdown)
    writing.write_table(folder / DATA_FILE, table)
    figure = plots.draw_comparison(*plots.gather(runs))
    style.save(figure, folder / plots.CURVES_FILE)
    writing.write_json(folder / results.SUMMARY_FILE, _summarize(runs, table))


def _summarize(runs: Sequence[Result], table: pd.DataFrame) -> dict[str, Any]:
    totals = [run.summary["totals"] for run in runs]
    first = _federated(runs)[0]
    summary = {
        "format": "tff_drift comparison summary",
        "task": first.settings.task,
        "algorithms": list(table["algorithm"]),
        "seeds": list(dict.fromkeys(run.settings.seed for run in runs)),
        "rounds": first.settings.rounds,
        "clients": first.summary["clients"],
        "clients_per_round": first.summary["clients_per_round"],
        "table": table.to_dict(orient="records"),
        "runs": [
            {
                "algorithm": run.settings.label,
                "seed": run.settings.seed,
                **{name: run.summary.get(name) for name in _OF_RUNS},
            }
            for run in runs
        ],
        "totals": {name: sum(each[name] for each in totals) for name in totals[0]},
        **results.provenance(),
    }
    return results.json_values(summary)


def write_configuration(
    folder: pathlib.Path, flags: Mapping[str, Any], runs: Sequence[RunSettings]
) -> None:
    """Writes the configuration of a comparison.

    Args:
      folder: The folder of the comparison.
      flags: The command's flags as given, defaults included.
      runs: Its runs.

    Raises:
      OSError: If the file cannot be written.
    """
    content = {
        "format": FORMAT,
        "flags": flags,
        "runs": [
            {"folder": str(run.folder.relative_to(folder)), **run.configuration}
            for run in runs
        ],
    }
    writing.write_json(folder / run_directory.CONFIGURATION_FILE, content)
