"""Clients before and after local training, from the tables beside runs."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping

import matplotlib.figure
import numpy as np
import pandas as pd

from experiments import escape, stored_files
from experiments.analysis import measures, style
from experiments.analysis.finished import FinishedRuns

# What `tff_drift.simulation.evaluate_clients` returned, saved by its `to_csv`.
CLIENTS_FILE = "clients.csv"
GAINED = "clients that gained"
_LONGEST = 2**26  # Bytes.


def read(runs: FinishedRuns, column: str) -> dict[str, pd.DataFrame]:
    """Returns the clients of the runs whose folders hold a table of them.

    Args:
      runs: The runs.
      column: The column of the runs' metric, such as "test_accuracy". Where the table
        lacks it, the loss is taken.

    Returns:
      By run a table with a row per client, the columns `before` and `after`, and the
      metric's name in `attrs["metric"]`; `attrs["falls"]` says whether it is better
      the lower it is.

    Raises:
      ValueError: If a file is damaged.
    """
    found = {}
    allowance = stored_files.Allowance()
    for run in runs.settings.index:
        path = pathlib.Path(run) / CLIENTS_FILE
        if stored_files.is_file(path):
            found[run] = _read(path, column.removeprefix("test_"), allowance)
            metric = found[run].attrs["metric"]
            found[run].attrs["falls"] = measures.falls(runs, metric)
    return found


def _read(
    path: pathlib.Path, metric: str, allowance: stored_files.Allowance
) -> pd.DataFrame:
    try:
        content = stored_files.read_bytes(path, _LONGEST, allowance=allowance)
        frame = pd.read_csv(io.BytesIO(content), dtype={"client": str})
        if f"{metric}_after" not in frame:
            metric = "loss"
        table = frame[[f"{metric}_before", f"{metric}_after"]].astype(float)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} is not a table of clients before and after training: "
            f"{error}. "
            "Write there what evaluate_clients returned, with `train`."
        ) from error
    table.columns = ["before", "after"]
    table.attrs["metric"] = metric
    return table


def tabulate(tables: Mapping[str, pd.DataFrame], labels: pd.Series) -> pd.DataFrame:
    """Returns a row per label: clients, the metric before and after, and who gained.

    Where a client or a seed broke down the mean is NaN, rather than that of the others.

    Args:
      tables: What `read` returned.
      labels: What each run is called.
    """
    rows = []
    for run, table in tables.items():
        metric = table.attrs["metric"]
        change = table["after"] - table["before"]
        rows.append(
            {
                "label": labels[run],
                "clients": len(table),
                f"{metric} before": table["before"].mean(skipna=False),
                f"{metric} after": table["after"].mean(skipna=False),
                GAINED: (change < 0 if table.attrs["falls"] else change > 0).mean(),
            }
        )
    by_label = pd.DataFrame(rows).groupby("label", sort=False)
    return by_label.agg(lambda one: one.mean(skipna=False))


def draw(
    tables: Mapping[str, pd.DataFrame], labels: pd.Series
) -> matplotlib.figure.Figure:
    """Draws each client after local training against itself before, by label.

    Args:
      tables: What `read` returned.
      labels: What each run is called.
    """
    figure, (axes,) = style.panels(1)
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    shown = set()
    for run, table in tables.items():
        label = labels[run]
        axes.scatter(
            table["before"],
            table["after"],
            s=16,
            alpha=0.6,
            color=style.colour(places[label]),
            label=None if label in shown else escape.figure(label),
        )
        shown.add(label)
    everything = np.concatenate([table.to_numpy() for table in tables.values()])
    ends = [everything.min(), everything.max()]
    axes.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
    metric = escape.figure(next(iter(tables.values())).attrs["metric"])
    axes.set_xlabel(f"{metric} before local training")
    axes.set_ylabel(f"{metric} after local training")
    axes.legend()
    return figure
