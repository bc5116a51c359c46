"""Look-ups of figures in committed results, and the forms they are written in.

A look-up names a source, a row and a column. The source is a folder of
`experiments/results`, for its `table.csv`, or a file in one. The row is a value of the
first column, or `column=value,column=value`; `a-b` and `a/b` are the difference and
the ratio of two. In `metrics.csv.gz` a row is a method, or `run` in a run's own file,
and a column has a place, as in `test_loss@last`: `first`, `last`, `max`, `min` or a
round; the figure is the mean over seeds. So it is in `summary.json`, where a row is a
method, and a column what its last round measured. Elsewhere the standard deviation is
the column with `_sd` in its name.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
import re
from typing import NamedTuple

import pandas as pd

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"

NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
_PLACES = {"first": 0, "last": -1}


class Found(NamedTuple):
    """What a row and a column hold.

    Attributes:
      mean: The figure.
      sd: Its standard deviation over seeds, NaN if there is none.
      seeds: The figure of every seed, none in tables of means.
      rounds: The rounds of the runs, NaN if the table does not say.
      is_percentage: Whether the figure is in per cent.
    """

    mean: float
    sd: float = math.nan
    seeds: tuple[float, ...] = ()
    rounds: float = math.nan
    is_percentage: bool = False


def look_up(path: pathlib.Path, row: str, column: str) -> Found:
    """Returns what a table holds.

    Args:
      path: The table, or a folder with `table.csv`.
      row: The row.
      column: The column, in metrics with its place.

    Raises:
      ValueError: If there is no such row or column.
    """
    path = path / "table.csv" if path.is_dir() else path
    if path.suffix == ".json":
        table, column = _last_rounds(path, column), "value"
    elif "@" in column:
        table, column = _at(_read(path), *column.rsplit("@", 1)), "value"
    else:
        table = _read(path)
    if column not in table:
        raise ValueError(f"no column {column!r}, there are {', '.join(table)}")
    for sign in ("-", "/"):
        names = row.split(sign)
        if _rows(table, row).empty and len(names) == 2:
            left, right = (_found(_rows(table, name), name, column) for name in names)
            mean = left.mean - right.mean if sign == "-" else left.mean / right.mean
            return Found(mean)
    return _found(_rows(table, row), row, column)


@functools.cache
def _read(path: pathlib.Path) -> pd.DataFrame:
    # pandas 2 reads the last digit of some numbers wrongly, unless it is told.
    is_old = pd.__version__.startswith("2.")
    exactly = {"float_precision": "round_trip"} if is_old else {}
    return pd.read_csv(path, **exactly)


def _last_rounds(path: pathlib.Path, name: str) -> pd.DataFrame:
    """Returns what the last round of every run measured, as a table of runs."""
    runs = json.loads(path.read_text("utf-8"))["runs"]
    known = {key for run in runs for key in run["final"]}
    if name not in known:
        raise ValueError(f"no column {name!r}, there are {', '.join(sorted(known))}")
    return pd.DataFrame(
        {
            "method": run["algorithm"],
            "seed": run["seed"],
            "value": run["final"].get(name, math.nan),
        }
        for run in runs
    )


def _at(metrics: pd.DataFrame, name: str, place: str) -> pd.DataFrame:
    """Returns a column's value of every run at a place, as a table of runs."""
    metrics = metrics.dropna(subset=[name])
    if "method" not in metrics:
        metrics = metrics.assign(method="run", seed=1)
    by_run = metrics.groupby(["method", "seed"], sort=False)[name]
    if place in _PLACES:
        # Unlike `first` and `last` of pandas, by position.
        values = by_run.agg(lambda one: one.iloc[_PLACES[place]])
    elif place in ("max", "min"):
        values = by_run.agg(place)
    else:
        at = metrics[metrics["round"] == int(place)]
        values = at.set_index(["method", "seed"])[name]
    return values.rename("value").reset_index()


def _rows(table: pd.DataFrame, row: str) -> pd.DataFrame:
    named = table[table.iloc[:, 0].astype(str) == row]
    if not named.empty or "=" not in row:
        return named
    for condition in row.split(","):
        column, _, value = condition.partition("=")
        if column not in table:
            return named
        table = table[table[column].astype(str) == value]
    return table


def _found(rows: pd.DataFrame, row: str, column: str) -> Found:
    if rows.empty:
        raise ValueError(f"no row {row!r}")
    values = rows[column].astype(float)
    if column == "value" and "seed" in rows:
        return Found(values.mean(skipna=False), values.std(skipna=False), tuple(values))
    if len(values) > 1:
        raise ValueError(f"{len(values)} rows {row!r}")
    [record] = rows.to_dict(orient="records")
    return Found(
        mean=values.item(),
        sd=record.get(f"{column}_sd", math.nan),
        rounds=record.get("rounds", math.nan),
    )


def rewrite(written: str, found: Found, scale: int) -> str:
    """Returns a figure in the form in which one is written.

    Args:
      written: A text of that form, such as `0.00 ± 0.00 %`.
      found: The figure.
      scale: What it is multiplied by: 100 for per cent.
    """
    numbers = list(re.finditer(NUMBER, written))
    end = written[numbers[-1].end() :]
    if math.isnan(found.mean):
        return f"> {found.rounds:.0f}{end}"
    if " ± " in written:
        values, between = [found.mean, found.sd], " ± "
    elif len(numbers) > 1:
        values, between = list(found.seeds), ", "
    else:
        values, between = [found.mean], ""
    # A list may have become longer.
    forms = [match[0] for match in numbers]
    forms += forms[-1:] * (len(values) - len(forms))
    return (
        between.join(
            _number(form, scale * value)
            for form, value in zip(forms, values, strict=False)
        )
        + end
    )


def _number(form: str, value: float) -> str:
    mantissa, exponent = (*form.split("e"), "")[:2]
    decimals = len(mantissa.partition(".")[2])
    if exponent:
        return f"{value:.{decimals}e}"
    group = "," if "," in form else ""
    return f"{value:{group}.{decimals}f}"
