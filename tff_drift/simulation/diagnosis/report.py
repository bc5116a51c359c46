"""The report of a diagnosis."""

from __future__ import annotations

import base64
import html
import io
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_drift import summaries
from tff_drift.simulation.diagnosis import findings

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd


class Diagnosis(findings.Findings):
    """A diagnosis in words, in a table and drawn."""

    def to_frame(self) -> pd.DataFrame:
        """Returns all estimates, a row each.

        Returns:
          A table with `part`, "differences", "labels", "drift" or "as_trained"; `at`,
          the rounds completed, the client in ascending order of its distance, or the
          local steps; `name`, `value`, `low` and `high`.
        """
        # Slow to import, and of no use to programs that make no table.
        import pandas as pd

        parts: list[tuple[str, Any, findings.Estimates]] = [
            *(("differences", *each) for each in self.differences.items()),
            *(("drift", *each) for each in self.drift.items()),
            ("as_trained", np.mean(self.steps), self.as_trained),
        ]
        rows = [
            (part, at, name, *estimate)
            for part, at, estimates in parts
            for name, estimate in estimates.items()
        ]
        for at, pair in enumerate(sorted(zip(*self.labels or (), strict=True))):
            for name, value in zip(("distance", "by_chance"), pair, strict=True):
                rows.append(("labels", at, name, value, value, value))
        columns = ["part", "at", "name", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def _fields(self) -> tuple[str, dict[str, str]]:
        title = (
            f"Drift of {len(self.sizes)} measured clients of {self.clients}, "
            f"{self.cohort_size} per round"
        )
        gains = self.gains.items()
        return title, {
            **{f"B² after {n} rounds": str(self.b2(n)) for n in self.differences},
            **{text: str(self.as_trained[k]) for k, text in findings.ERRORS.items()},
            **{f"{each}, gain at most": f"{n:.0%} of the error" for each, n in gains},
            "finding": self.finding,
            "methods to race": ", ".join(("fed_avg", *self.methods)),
        }

    def __repr__(self) -> str:
        sentences = [
            textwrap.fill(f"{n}. {text}", 79, subsequent_indent="   ")
            for n, text in enumerate(self.sentences, 1)
        ]
        race = [] if self.race is None else ["race:", summaries.lines(self.race)]
        return "\n".join([summaries.text(*self._fields()), *sentences, *race])

    def _repr_html_(self) -> str:
        """The table, the sentences, and pictures, in a column where it is narrow."""
        items = "".join(f"<li>{html.escape(each)}</li>" for each in self.sentences)
        race = ""
        if hasattr(self.race, "_repr_html_"):
            race = self.race._repr_html_()
        elif self.race is not None:
            race = f"<pre>{html.escape(summaries.lines(self.race))}</pre>"
        pictures = "".join(_picture(self.to_frame(), panel) for panel in _PANELS)
        style = "display:flex;flex-wrap:wrap;gap:8px"
        below = f"<ol>{items}</ol>{race}<div style='{style}'>{pictures}</div>"
        return summaries.html(*self._fields(), below)

    def plot(self, figure: Any = None) -> matplotlib.figure.Figure:
        """Draws differences, labels, drift and cost, a panel each.

        Args:
          figure: The `matplotlib.figure.Figure` to draw into; by default a new one.

        Returns:
          The figure.
        """
        if figure is None:
            # Slow to import, and of no use to programs that draw nothing.
            import matplotlib.pyplot as plt

            figure = plt.figure(figsize=(7.4, 5.6), **_style())
            # A notebook shows what it is given back; what is open, a second time.
            plt.close(figure)
        for panel, ax in zip(_PANELS, figure.subplots(2, 2).flat, strict=True):
            _draw(self.to_frame(), panel, ax)
        return figure


# Of each panel the title, what is across, and the parts and names of a report's table.
_Panel = tuple[str, str, tuple[str, ...], tuple[str, ...]]
_PANELS: tuple[_Panel, ...] = (
    ("How different clients are", "rounds", ("differences",), ("g2", "g2_naive")),
    ("How different labels are", "client", ("labels",), ("distance", "by_chance")),
    ("How far they drift", "local steps", ("drift", "as_trained"), ("bias", "cosine")),
    ("What limits a round", "", ("as_trained",), tuple(findings.ERRORS)),
)
_COLOURS = "#0072b2", "#d55e00", "#009e73"


def _style() -> dict[str, Any]:
    """Returns how figures look: as others, but opaque, also in a dark notebook."""
    from matplotlib import colors, rcParams

    red, green, blue, alpha = colors.to_rgba(rcParams["figure.facecolor"])
    paper = (red, green, blue) if alpha else "white"
    return {"layout": "constrained", "facecolor": paper}


def _picture(table: pd.DataFrame, panel: _Panel) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.7, 2.8), **_style())
    _draw(table, panel, figure.subplots())
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=144)
    data = base64.b64encode(file.getvalue()).decode()
    style = f"alt='{panel[0]}' style='width:370px;max-width:100%'"
    return f"<img {style} src='data:image/png;base64,{data}'>"


def _draw(table: pd.DataFrame, panel: _Panel, ax: matplotlib.axes.Axes) -> None:
    title, across, parts, names = panel
    for name, colour in zip(names, _COLOURS, strict=False):
        rows = table[table["part"].isin(parts) & (table["name"] == name)]
        values, low, high = rows[["value", "low", "high"]].to_numpy(float).T
        places: Any = rows["at"]
        if not across:
            places = [name.replace("_", "\n")]
        elif across != "client":  # Rounds and steps are few, and far apart.
            places = [f"{each:.3g}" for each in places]
        ends = np.array([values - low, high - values]).tolist()
        label = name.replace("_", " ")
        style: dict[str, Any] = {"color": colour, "marker": "o", "capsize": 3}
        ax.errorbar(places, values, yerr=ends, label=label, **style)
    ax.axhline(0, color="0.8", zorder=0)
    ax.margins(x=0.1, y=0.25)  # Room for the legend, which hides no interval.
    ax.set(title=title, xlabel=across, ylabel="" if across else "relative to the step")
    if across:
        ax.legend(loc="upper center", ncols=2, frameon=False)
