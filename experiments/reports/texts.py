"""Numbers, tables and summaries as people read them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

import pandas as pd
import rich.box
import rich.console
import rich.table
import rich.text

from experiments import escape

_UNITS = ("B", "kB", "MB", "GB", "TB")
_NOTHING = "-"
# The width of a table that goes to a file, which has no width.
_FILE_WIDTH = 200
_UNLIMITED = 10**6


def metric(name: str, value: float | None) -> str:
    """Returns the value of a metric: an accuracy in percent, others as they are.

    Args:
      name: The metric's name.
      value: Its value; `None` and NaN are shown as a dash.
    """
    if value is None or math.isnan(value):
        return _NOTHING
    return f"{100 * value:.2f} %" if name.endswith("accuracy") else f"{value:.4g}"


def metric_with_deviation(name: str, value: float, deviation: float) -> str:
    """Returns "81.20 ± 0.35 %", without the deviation where it is NaN."""
    if math.isnan(deviation) or math.isnan(value):
        return metric(name, value)
    if name.endswith("accuracy"):
        return f"{100 * value:.2f} ± {100 * deviation:.2f} %"
    return f"{value:.4g} ± {deviation:.2g}"


def count(value: float, deviation: float = math.nan) -> str:
    """Returns "12,300 ± 400", without the deviation where it is NaN.

    A mean of few, such as 2.5, has a decimal.
    """
    if math.isnan(value):
        return _NOTHING
    decimals = 1 if value < 100 and not float(value).is_integer() else 0
    text = f"{value:,.{decimals}f}"
    return text if math.isnan(deviation) else f"{text} ± {deviation:,.{decimals}f}"


def rate(value: float | None) -> str:
    """Returns a learning rate, a dash for none."""
    return _NOTHING if value is None or math.isnan(value) else f"{value:g}"


def size(num_bytes: float) -> str:
    """Returns a number of bytes, such as "12.3 MB"."""
    exponent = 0
    # From 999.5 on the three digits that are shown are those of the next unit.
    while num_bytes >= 999.5 and exponent < len(_UNITS) - 1:
        num_bytes, exponent = num_bytes / 1000, exponent + 1
    return f"{num_bytes:.3g} {_UNITS[exponent]}"


def units(count: float) -> str:
    """Returns a number of operations per trainable weight, such as "12.5 n"."""
    return _NOTHING if math.isnan(count) else f"{count:.3g} n"


def distinct(values: Iterable[float]) -> str:
    """Returns numbers that runs differ in, such as "5 or 15", the ends of many."""
    numbers = sorted({int(value) for value in values if math.isfinite(value)})
    if len(numbers) > 4:
        return f"{numbers[0]:,} to {numbers[-1]:,}"
    return " or ".join(f"{number:,}" for number in numbers)


def duration(seconds: float) -> str:
    """Returns a time, such as "42 s", "3 min 20 s" or "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def terminal_width() -> int:
    """Returns the columns of the standard output, many if it is not a terminal."""
    return _FILE_WIDTH if not sys.stdout.isatty() else rich.console.Console().width


class _Console(rich.console.Console):
    """A console that leaves a closed pipe to the program, as `print` does."""

    def on_broken_pipe(self) -> None:
        # Called where the error is handled; rich would exit with status 1.
        raise


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table to the standard output; the first column is of names."""
    console = _Console(highlight=False, width=terminal_width())
    console.print(_table(headers, rows))


def fits(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether a table can be printed without folding a cell."""
    console = rich.console.Console(width=_UNLIMITED)
    return console.measure(_table(headers, rows)).maximum <= terminal_width()


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for index, header in enumerate(headers):
        # Names that are cut off could not be told apart.
        justify: Literal["left", "right"] = "right" if index else "left"
        shown = rich.text.Text(escape.terminal(header))
        table.add_column(shown, justify=justify, overflow="fold")
    for row in rows:
        # As texts: rich would take brackets for markup.
        table.add_row(*(rich.text.Text(escape.terminal(cell)) for cell in row))
    return table


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown; the first column is of names."""
    rules = [":--"] + ["--:"] * (len(headers) - 1)
    escaped = [[escape.markdown(cell) for cell in line] for line in (headers, *rows)]
    lines = [escaped[0], rules, *escaped[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A table for people and for programs.

    Attributes:
      title: One sentence on what it shows.
      data: Its numbers in full.
      headers: The headers for people.
      cells: The rows for people.
    """

    title: str
    data: pd.DataFrame
    headers: Sequence[str]
    cells: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The title and the table in Markdown."""
        return f"{self.title}\n\n{markdown_table(self.headers, self.cells)}"
