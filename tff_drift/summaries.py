"""Summaries of large objects, for terminals and notebooks."""

from __future__ import annotations

import html as html_module
import math
from collections.abc import Mapping, Sequence

from tff_drift import checks

_WIDTH, _HEIGHT = 240, 60
# Characters of a value where the whole is too long.
_LONGEST_VALUES = (400, 200, 100, 50)


def text(title: str, fields: Mapping[str, str]) -> str:
    """Returns a summary for a terminal: a title, and a line for each field.

    Args:
      title: What the object is.
      fields: What to show of it, by names.
    """
    width = max(map(len, fields), default=0) + 1

    def written(fields: Mapping[str, str]) -> str:
        lines = [f"  {name + ':':<{width}} {value}" for name, value in fields.items()]
        return "\n".join([title, *lines])

    whole = written(fields)
    for longest in _LONGEST_VALUES:
        if len(whole) <= checks.LONGEST_MESSAGE:
            break
        whole = written(_shortened(fields, longest))
    return whole


def lines(value: object) -> str:
    """Returns the text of what a user's function made, whole if it is short.

    Args:
      value: What was made, such as a table.

    Returns:
      The text; of a long one the first lines, and how many there are more.
    """
    text, kept = str(value), 0
    if len(text) <= checks.LONGEST_MESSAGE:
        return text
    shown: list[str] = []
    given = text.splitlines()
    for line in given:
        kept += len(line) + 1
        if kept > checks.LONGEST_MESSAGE:
            break
        shown.append(line)
    if not shown:
        return checks.within_limit(text)
    return "\n".join([*shown, f"... and {len(given) - len(shown)} lines more"])


def html(title: str, fields: Mapping[str, str], figure: str = "") -> str:
    """Returns a summary for a notebook: a title, a table, and a figure below it.

    Args:
      title: What the object is.
      fields: What to show of it, by names.
      figure: HTML or SVG, such as `curve` returns.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{html_module.escape(name)}</th>"
        f"<td style='text-align:left'>{html_module.escape(value)}</td></tr>"
        for name, value in _shortened(fields, _LONGEST_VALUES[0]).items()
    )
    return f"<b>{html_module.escape(title)}</b><table>{rows}</table>{figure}"


def _shortened(fields: Mapping[str, str], longest: int) -> dict[str, str]:
    return {name: checks.shortened(each, longest) for name, each in fields.items()}


def curve(name: str, values: Sequence[float]) -> str:
    """Returns a small curve as SVG, with gaps where a value is not finite.

    Args:
      name: What the values are.
      values: The values, from left to right.

    Returns:
      The SVG; the empty string if fewer than two values are finite.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    across = _WIDTH / (len(values) - 1)
    up = (_HEIGHT - 4) / (high - low) if high > low else 0.0
    pieces: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if math.isfinite(value):
            y = _HEIGHT - 2 - (value - low) * up
            pieces[-1].append(f"{index * across:.1f},{y:.1f}")
        elif pieces[-1]:
            pieces.append([])
    lines = "".join(
        f"<polyline fill='none' stroke='#1f77b4' points='{' '.join(piece)}'/>"
        for piece in pieces
    )
    caption = html_module.escape(f"{name}, lowest {low:.4g}, highest {high:.4g}")
    return (
        f"<div>{caption}</div><svg width='{_WIDTH}' height='{_HEIGHT}' "
        f"viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{caption}'>"
        f"{lines}</svg>"
    )
