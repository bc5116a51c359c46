"""The points that are drawn of long lines: what the picture shows, and no more."""

import numpy as np
import pandas as pd

from experiments.analysis import figures, style

_COUNT = 100_000


def test_short_lines_are_drawn_whole():
    line = np.random.default_rng(0).normal(size=2000)
    assert style.outline([line, -line], [3]).tolist() == list(range(2000))
    assert style.outline([line[:0]]).tolist() == []


def test_long_lines_keep_each_stretchs_smallest_and_largest_values():
    rng = np.random.default_rng(1)
    lines = [rng.normal(size=_COUNT), np.full(_COUNT, np.nan)]
    marked = [7, 4321, 99_998]
    kept = style.outline(lines, marked)
    assert len(kept) <= 2 * 1000 + 1000 + 2 + len(marked)
    assert np.all(np.diff(kept) > 0)
    assert {0, _COUNT - 1, *marked} <= set(kept.tolist())
    for start in range(0, _COUNT, 100):
        stretch = lines[0][start : start + 100]
        found = lines[0][kept[(kept >= start) & (kept < start + 100)]]
        assert (found.min(), found.max()) == (stretch.min(), stretch.max())


def test_gaps_stay_where_they_are():
    line = np.ones(_COUNT)
    line[500:50_020] = np.nan
    line[70_000] = np.inf  # Nor is what is infinite drawn.
    kept = style.outline([line])
    assert {499, 500, 50_019, 50_020, 69_999, 70_000, 70_001} <= set(kept.tolist())
    alternating = np.where(np.arange(_COUNT) % 2, np.nan, 1.0)
    assert len(style.outline([alternating])) == _COUNT


def test_a_curve_of_a_long_run_has_its_ends_extremes_and_markers():
    table = pd.DataFrame({"label": "a", "x": np.arange(_COUNT) + 1.0})
    table["mean"] = np.sin(np.arange(_COUNT) * 1.7) + np.arange(_COUNT) / _COUNT
    table["min"], table["max"] = table["mean"] - 1, table["mean"] + 1
    _, (axes,) = style.panels(1)
    figures._draw_lines(axes, table, pd.Series(["a"]), "range")
    (line,) = axes.get_lines()
    assert len(line.get_xdata()) < 8000
    assert line.get_xdata()[[0, -1]].tolist() == [1, _COUNT]
    assert line.get_ydata().min() == table["mean"].min()
    assert line.get_ydata().max() == table["mean"].max()
    # Eight markers, where they were.
    assert line.get_xdata()[line.get_markevery()].tolist() == list(
        np.arange(0, _COUNT, _COUNT // 8) + 1.0
    )
    assert axes.dataLim.y0 == table["min"].min()
    assert axes.dataLim.y1 == table["max"].max()
