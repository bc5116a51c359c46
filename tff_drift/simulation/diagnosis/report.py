"""The report of a diagnosis."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_drift import checks, summaries
from tff_drift.simulation.diagnosis import findings
from tff_drift.simulation.diagnosis.statistics import Estimate

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd

Estimates = Mapping[str, Estimate]


@dataclasses.dataclass
class Diagnosis:
    """What `diagnose` measured, and what follows.

    Attributes:
      clients: N, the number of all clients.
      cohort_size: M, the clients per round.
      sizes: The examples of each measured client.
      steps: The local steps of each, in a round.
      labels: For each the total variation between its labels and everyone's, and what
        chance gives clients of its size; None where labels are no numbers.
      differences: By rounds completed, estimates of how different gradients are:
        `mean_squared_length`, `squared_length_of_mean`, `g2`, `agreement`, which is
        1 / B², `agreement_of_others`, of pairs of clients, `g2_naive`, without halves,
        and `noise_share`.
      drift: By local steps K, the same for all clients, estimates of what they lead to:
        `drift`, the mean ‖y_i − x‖; `drift_over_mean`, over the length of the mean
        update; `cosine`, of a client's update and the others' mean; `shrinkage`, by how
        much the mean update's part along that with control variates differs from it;
        `bias`, the squared length of the rest, relative to that of this part; and what
        follows.
      as_trained: The same for the steps that clients take in a round; relative to the
        same part the `cohort_noise` and `minibatch_noise`; the three errors' shares of
        their sum, and `variates_share`, what control variates take away of it at most;
        `bias_of_unequal_work`, what FedNova's weights would remove, and `noise_scale`,
        the cohort whose noise is as large as the update.
      race: The table of a race, if there was one.
    """

    clients: int
    cohort_size: int
    sizes: np.ndarray
    steps: np.ndarray
    labels: tuple[np.ndarray, np.ndarray] | None
    differences: Mapping[int, Estimates]
    drift: Mapping[int, Estimates]
    as_trained: Estimates
    race: Any = None

    def b2(self, number: int) -> Estimate:
        """Returns B² after some rounds, infinite where the mean may be zero.

        It is NaN where gradients cannot be told from noise.

        Args:
          number: The rounds completed, of `differences`.
        """
        if self.differences[number]["mean_squared_length"].low <= 0:
            return Estimate(np.nan, np.nan, np.nan)
        found = self.differences[number]["agreement"]
        value, high, low = (1 / each if each > 0 else np.inf for each in found)
        return Estimate(value, low, high)

    @property
    def finding(self) -> str:
        """What limits training, a word: see `docs/diagnosis.md`."""
        return findings.find(self)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that answer it, besides FedAvg."""
        return findings.methods(self)

    @property
    def sentences(self) -> list[str]:
        """Differences, labels, drift, cost and what follows, each told in turn."""
        return findings.sentences(self)

    @property
    def gains(self) -> dict[str, float]:
        """The share of a round's squared error that remedies remove at most."""
        return findings.gains(self)

    def to_frame(self) -> pd.DataFrame:
        """Returns all estimates, a row each.

        Returns:
          A table with `part`, "differences", "labels", "drift" or "as_trained"; `at`,
          the rounds completed, the client in ascending order of its distance, or the
          local steps; `name`, `value`, `low` and `high`.
        """
        # Slow to import, and of no use to programs that make no table.
        import pandas as pd

        labels = enumerate(sorted(zip(*self.labels or (), strict=True)))
        parts: list[tuple[str, Any, Mapping[str, Any]]] = [
            *(("differences", at, each) for at, each in self.differences.items()),
            *(("drift", at, each) for at, each in self.drift.items()),
            ("as_trained", np.mean(self.steps), self.as_trained),
            *(
                ("labels", at, {"distance": [far] * 3, "by_chance": [chance] * 3})
                for at, (far, chance) in labels
            ),
        ]
        rows = [
            (part, at, name, *estimate)
            for part, at, each in parts
            for name, estimate in each.items()
        ]
        columns = ["part", "at", "name", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def _fields(self) -> tuple[str, dict[str, str]]:
        fields = {f"B² after {n} rounds": str(self.b2(n)) for n in self.differences}
        for name, text in findings.ERRORS.items():
            fields[text] = str(self.as_trained[name])
        for remedy, share in self.gains.items():
            fields[f"{remedy}, gain at most"] = f"{share:.0%} of the error"
        fields["finding"] = self.finding
        fields["methods to race"] = ", ".join(("fed_avg", *self.methods))
        title = (
            f"Drift of {len(self.sizes)} measured clients of {self.clients}, "
            f"{self.cohort_size} per round"
        )
        return title, fields

    def __repr__(self) -> str:
        told = [f"{n}. {text}" for n, text in enumerate(self.sentences, 1)]
        race = [] if self.race is None else ["race:", summaries.lines(self.race)]
        return "\n".join([summaries.text(*self._fields()), *told, *race])

    def _repr_html_(self) -> str:
        """The table, the sentences, and pictures, in a column where it is narrow."""
        from matplotlib.figure import Figure

        told = "".join(f"<li>{html.escape(each)}</li>" for each in self.sentences)
        race = ""
        if self.race is not None:
            as_html = getattr(self.race, "_repr_html_", None)
            race = as_html() if as_html else html.escape(summaries.lines(self.race))
        pictures, table = "", self.to_frame()
        for panel in _PANELS:
            figure = Figure(figsize=(3.7, 2.8), layout="constrained", facecolor="white")
            _draw(table, panel, figure.subplots())
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=144)
            data = base64.b64encode(file.getvalue()).decode()
            pictures += (
                f"<img alt='{panel[0]}' style='width:370px;max-width:100%' "
                f"src='data:image/png;base64,{data}'>"
            )
        style = "display:flex;flex-wrap:wrap;gap:8px"
        told = f"<ol>{told}</ol>{race}<div style='{style}'>{pictures}</div>"
        return summaries.html(*self._fields(), told)

    def plot(self, figure: Any = None) -> matplotlib.figure.Figure:
        """Draws differences, labels, drift and cost, a panel each.

        Args:
          figure: The `matplotlib.figure.Figure` to draw into; by default a new one.

        Returns:
          The figure.

        Raises:
          TypeError: If `figure` is no figure.
        """
        if figure is None:
            # Slow to import, and of no use to programs that draw nothing.
            import matplotlib.pyplot as plt

            figure = plt.figure(
                figsize=(7.4, 5.6), layout="constrained", facecolor="white"
            )
            # A notebook shows what it is given back; what is open, a second time.
            plt.close(figure)
        elif not hasattr(figure, "subplots"):
            raise TypeError(
                "figure must be a matplotlib.figure.Figure, found "
                f"{checks.shown(figure)}."
            )
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
    ax.margins(x=0.1)
    ax.set(title=title, xlabel=across, ylabel="" if across else "relative to the step")
    if across:
        ax.legend()
