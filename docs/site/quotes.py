"""Figures that documents quote from committed results: `make quotes` renews them.

A quoted figure stands before a comment, which no page shows:

    96.19 ± 1.16 %<!-- drift_comparison/digits_low fed_avg accuracy -->

that names a source, a row and a column. The source is a folder of
`experiments/results`, for its `table.csv`, or a file in one; a comment of two words
has the source of the one before it. The row is a value of the first column, or
`column=value,column=value`; `a-b` and `a/b` are the difference and the ratio of two.
What stands after ± is the column with `_sd` in its name. In `metrics.csv.gz` a row is a
method, or `run` in a run's own file, and a column has a place, as in `test_loss@last`:
`first`, `last`, `max`, `min` or a round; the figure is the mean over seeds, or, as a
list such as `14.0, 29.1, 25.3 %`, each seed's.

Figures in per cent and in points are a hundred times the number; where the unit stands
elsewhere, the column has a `%` at its end. `> 60` is what was not reached in as many
`rounds`. A figure keeps the decimals that it is written with. `<!-- paper -->` marks
one that is a paper's, where no table has it. `scales.py` has a study's scale in words.

python docs/site/quotes.py            # says which figures are not those of the results
python docs/site/quotes.py --write    # writes them anew
"""

from __future__ import annotations

import argparse
import functools
import math
import pathlib
import re
import sys
from typing import NamedTuple

import pandas as pd
import scales

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"

_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
_TEXT = rf"(?:> )?{_NUMBER}(?: ± {_NUMBER}|(?:, {_NUMBER})+)?(?: %| points)?"
# After a figure may come the end of what is bold or in parentheses.
_QUOTE = re.compile(rf"(?P<text>{_TEXT})(?P<between>\**\)?)<!-- (?P<words>.*?) -->")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PLACES = {"first": 0, "last": -1}


class Found(NamedTuple):
    """What a row and a column hold.

    Attributes:
      mean: The figure.
      sd: Its standard deviation over seeds, NaN if there is none.
      seeds: The figure of every seed, none in tables of means.
      rounds: The rounds of the runs, NaN if the table does not say.
    """

    mean: float
    sd: float = math.nan
    seeds: tuple[float, ...] = ()
    rounds: float = math.nan


def documents() -> list[pathlib.Path]:
    """Returns the documents in which figures are quoted."""
    patterns = (
        *("README.md", "docs/results.md", "docs/choosing.md"),
        *("docs/methods/notes/*.md", "experiments/results/**/README.md"),
    )
    return [path for each in patterns for path in sorted(ROOT.glob(each))]


def renewed(text: str, results: pathlib.Path = RESULTS) -> str:
    """Returns a document with the figures of its sources.

    Args:
      text: The document.
      results: The folder of results.

    Raises:
      ValueError: If a comment names what there is not.
    """
    source = ""

    def renew(match: re.Match[str]) -> str:
        nonlocal source
        words = match["words"].split()
        if words == ["paper"]:
            return match[0]
        if len(words) == 3:
            source = words.pop(0)
        try:
            row, column = words
            found = look_up(results / source, row, column.rstrip("%"))
            written = match["text"]
            is_share = column.endswith("%") or written.endswith((" %", " points"))
            figure = _rewrite(written, found, 100 if is_share else 1)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{match[0]!r} of {source!r}: {error}") from error
        return f"{figure}{match['between']}<!-- {match['words']} -->"

    return _QUOTE.sub(renew, scales.renewed(text, results))


def unquoted(text: str) -> list[str]:
    """Returns the means and deviations of a document that name no source.

    Args:
      text: The document.
    """
    rest = _QUOTE.sub("", scales.SCALE.sub("", text))
    return re.findall(rf"{_NUMBER} ± {_NUMBER}", rest)


def misplaced(text: str) -> list[str]:
    """Returns the comments of three words that follow no figure.

    Args:
      text: The document.
    """
    return _COMMENT.findall(_QUOTE.sub("", scales.SCALE.sub("", text)))


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
    table = _read(path)
    if "@" in column:
        table = _at(table, *column.rsplit("@", 1))
        column = "value"
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


def _rewrite(written: str, found: Found, scale: int) -> str:
    """Returns a figure in the form in which it is written."""
    numbers = list(re.finditer(_NUMBER, written))
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
        between.join(_number(form, scale * value) for form, value in zip(forms, values))
        + end
    )


def _number(form: str, value: float) -> str:
    mantissa, exponent = (*form.split("e"), "")[:2]
    decimals = len(mantissa.partition(".")[2])
    if exponent:
        return f"{value:.{decimals}e}"
    group = "," if "," in form else ""
    return f"{value:{group}.{decimals}f}"


def main() -> int:
    """Checks or writes the figures of all documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    differing = 0
    for path in documents():
        text = path.read_text("utf-8")
        new = renewed(text)
        for old_line, new_line in zip(text.splitlines(), new.splitlines()):
            if old_line != new_line:
                differing += 1
                print(f"{path.relative_to(ROOT)}:\n- {old_line}\n+ {new_line}")
        if write and new != text:
            path.write_text(new, "utf-8")
    return 0 if write or not differing else 1


if __name__ == "__main__":
    sys.exit(main())
