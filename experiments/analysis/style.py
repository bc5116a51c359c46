"""The style of figures: colours, lines, panels and files."""

from __future__ import annotations

import io
import math
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.axes
import matplotlib.axis
import matplotlib.figure
import matplotlib.ticker
import numpy as np
import PIL.Image
from matplotlib.backends import backend_agg

from tff_drift import files

_DOTS_PER_INCH = 150
_PALETTE = 128  # Colours of a figure in a file, with the shades of its letters.
# Okabe and Ito's colours, which colour-blind readers can tell apart. Their yellow,
# hardly seen on white, gives way to a grey and a brown.
COLOURS = (
    "#000000",
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#7F7F7F",
    "#7A4B2A",
)
_LINE_STYLES = ("-", "--", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_PANELS_ACROSS = 4
# Points of a line, more than a panel has dots across.
_MOST_POINTS = 2000
# More names than these stand upright.
_SLANTED_NAMES = 8


def colour(position: int) -> str:
    """Returns the colour of the line at a position, from 0."""
    return COLOURS[position % len(COLOURS)]


def line_style(position: int) -> str:
    """Returns the style of the line at a position, from 0."""
    # Lines that lie on one another differ in style too, and so do colours that come
    # round again.
    turn = position // len(COLOURS)
    return _LINE_STYLES[(position + turn) % len(_LINE_STYLES)]


def marker(position: int) -> str:
    """Returns the marker of the line at a position, from 0."""
    return _MARKERS[position % len(_MARKERS)]


def outline(
    lines: Sequence[np.ndarray], marked: Sequence[int] | np.ndarray = ()
) -> np.ndarray:
    """Returns the points of long lines that look like all of them.

    Of each short stretch these are the smallest and the largest of each line, and
    besides the ends of lines and of gaps. An SVG has all points that are drawn.

    Args:
      lines: The heights of lines at the same points, of a band's borders for instance.
      marked: The points to keep.

    Returns:
      The numbers of points, in order; all of them if they are few.
    """
    count = len(lines[0])
    if count <= _MOST_POINTS:
        return np.arange(count)
    starts = np.arange(_MOST_POINTS // 2) * count // (_MOST_POINTS // 2)
    kept = [np.array([0, count - 1]), np.asarray(marked, int)]
    for line in lines:
        is_there = np.isfinite(line)
        before_change = np.flatnonzero(np.diff(is_there))
        kept += [before_change, before_change + 1]
        for missing, find in ((np.inf, np.argmin), (-np.inf, np.argmax)):
            stretches = np.split(np.where(is_there, line, missing), starts[1:])
            kept.append(starts + [find(stretch) for stretch in stretches])
    return np.unique(np.concatenate(kept))


def panels(
    count: int, inches: tuple[float, float] = (5.0, 5.0)
) -> tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]:
    """Returns a figure with panels side by side, in rows of at most four.

    Args:
      count: The number of panels.
      inches: The width and the height of one.
    """
    width, height = inches
    across = min(count, _PANELS_ACROSS)
    down = math.ceil(count / across)
    figure = matplotlib.figure.Figure(
        figsize=(width * across, height * down),
        dpi=_DOTS_PER_INCH,
        layout="constrained",
    )
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def plain(axes: matplotlib.axes.Axes) -> None:
    """Removes a panel's frame, and gives it a light grid."""
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def is_accuracy(column: str) -> bool:
    """Returns whether a column holds accuracies, rather than rounds to one."""
    return "accuracy" in column and " " not in column


def in_percent(axis: matplotlib.axis.Axis, column: str) -> None:
    """Labels an axis in percent if a column is an accuracy."""
    if is_accuracy(column):
        axis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))


def rename_axes(figure: matplotlib.figure.Figure, names: Mapping[str, str]) -> None:
    """Gives axes that are labelled with a column the column's name for people."""
    for axes in figure.axes:
        axes.set_ylabel(names.get(axes.get_ylabel(), axes.get_ylabel()))
        axes.set_xlabel(names.get(axes.get_xlabel(), axes.get_xlabel()))


def size_for_places(names: Sequence[str]) -> tuple[float, float]:
    """Returns the width and height, in inches, of a panel with names below it."""
    if len(names) <= _SLANTED_NAMES:
        return max(5.0, 1.2 * len(names) + 2), 5.0
    return 0.4 * len(names) + 2, 5.0 + 0.08 * max(map(len, names))


def name_places(axes: matplotlib.axes.Axes, names: Sequence[str]) -> None:
    """Names the places 0, 1, ... along the horizontal axis."""
    axes.set_xticks(range(len(names)), names)
    if len(names) > _SLANTED_NAMES:
        axes.tick_params(axis="x", rotation=90)
    # Long names would run into each other.
    elif len(names) > 3 or max(map(len, names), default=0) > 18:
        for text in axes.get_xticklabels():
            text.set(rotation=20, horizontalalignment="right")


def legend(figure: matplotlib.figure.Figure, title: str = "") -> None:
    """Adds the legend of the first panel below all of them.

    Args:
      figure: The figure.
      title: What to say above it.
    """
    handles, names = figure.axes[0].get_legend_handles_labels()
    longest = max(map(len, names), default=0)
    # About 13 letters to an inch, and a line and a gap before each name.
    across = int(13 * figure.get_figwidth()) // (longest + 9)
    columns = max(1, min(len(names), 5, across))
    # A few lines of names fit below panels as they are; more need room of their own.
    more = max(0, math.ceil(len(names) / columns) - 5)
    figure.set_figheight(figure.get_figheight() + 0.22 * more)
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        title=title or None,
    )


def as_svg(figure: matplotlib.figure.Figure) -> bytes:
    """Returns a figure as SVG, the same for the same figure."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "tff_drift"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def save(figure: matplotlib.figure.Figure, path: pathlib.Path) -> None:
    """Writes a figure in one step, in few colours: a third of the bytes.

    Args:
      figure: The figure.
      path: The file, a PNG.

    Raises:
      OSError: If the file cannot be written.
    """
    drawn = io.BytesIO()
    backend_agg.FigureCanvasAgg(figure).print_png(drawn)
    image = PIL.Image.open(drawn).convert("RGB")
    few = image.quantize(_PALETTE, dither=PIL.Image.Dither.NONE)
    files.replace_file(path, lambda file: few.save(file, format="png", optimize=True))
