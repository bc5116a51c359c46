"""The report of a diagnosis."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_drift import summaries
from tff_drift.simulation.diagnosis import findings
from tff_drift.simulation.diagnosis.measurements import Measurements
from tff_drift.simulation.diagnosis.statistics import Estimate

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#777777"


@dataclasses.dataclass
class Diagnosis(Measurements):
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
        1 / B², `agreement_of_others`, of pairs of clients, the same without halves
        (`g2_naive`, `agreement_naive`), and `noise_share`.
      drift: By local steps K, the same for all clients, estimates of what they lead to:
        `drift`, the mean ‖y_i − x‖; `drift_over_mean`, over the length of the mean
        update; `cosine`, of a client's update and the others' mean; `shrinkage`, by how
        much the mean update's part along that of K steps on everyone's examples differs
        from it; and `bias`, `cohort_noise` and `minibatch_noise`, the squared lengths
        of what is not along it, relative to that of this part, with their shares.
      as_trained: The same for the steps that clients take in a round, with
        `bias_of_unequal_work`, what FedNova's weights would remove, and `noise_scale`,
        the cohort whose noise is as large as the update.
      race: The table of a race, if there was one.
    """

    race: Any = None

    @property
    def finding(self) -> str:
        """What limits training, a word: see `docs/diagnosis.md`."""
        return findings.find(self).name

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that answer it, besides FedAvg."""
        return findings.find(self).methods

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
          A table with `part`, "differences", "drift" or "as_trained"; `at`, the rounds
          completed or the local steps; `name`, `value`, `low` and `high`.
        """
        # Slow to import, and of no use to programs that make no table.
        import pandas as pd

        mean_steps = float(np.mean(self.steps))
        parts = [
            *(("differences", at, each) for at, each in self.differences.items()),
            *(("drift", at, each) for at, each in self.drift.items()),
            ("as_trained", mean_steps, self.as_trained),
        ]
        rows = [
            (part, at, name, *estimate)
            for part, at, each in parts
            for name, estimate in each.items()
        ]
        columns = ["part", "at", "name", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def _fields(self) -> tuple[str, dict[str, str]]:
        fields = {}
        for number in self.differences:
            name = f"B² after {number} round{'s' * (number != 1)}"
            fields[name] = str(self.b2(number))
        for name, text in findings.ERRORS.items():
            fields[f"{text}"] = str(self.as_trained[name])
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
        return "\n".join([summaries.text(*self._fields()), *told, *self._race_lines()])

    def _race_lines(self) -> list[str]:
        return [] if self.race is None else ["race:", str(self.race)]

    def _repr_html_(self) -> str:
        told = "".join(f"<li>{html.escape(each)}</li>" for each in self.sentences)
        told = f"<ol>{told}</ol>"
        if self.race is not None:
            render = getattr(
                self.race, "_repr_html_", lambda: html.escape(str(self.race))
            )
            told += render()
        return summaries.html(*self._fields(), told + self._figures())

    def _figures(self) -> str:
        """Returns the panels as pictures, below each other where it is narrow."""
        from matplotlib.figure import Figure

        pictures = []
        for draw in _PANELS:
            figure = Figure(figsize=(3.7, 2.8), layout="constrained")
            draw(self, figure.subplots())
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=144, facecolor="white")
            data = base64.b64encode(file.getvalue()).decode()
            alt = html.escape(figure.axes[0].get_title())
            pictures.append(
                f"<img alt='{alt}' style='width:370px;max-width:100%' "
                f"src='data:image/png;base64,{data}'>"
            )
        style = "display:flex;flex-wrap:wrap;gap:8px"
        return f"<div style='{style}'>{''.join(pictures)}</div>"

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
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7.4, 5.6), layout="constrained", facecolor="white")
        elif not hasattr(figure, "subplots"):
            raise TypeError(
                f"figure must be a matplotlib.figure.Figure, found {figure!r}."
            )
        for draw, ax in zip(_PANELS, figure.subplots(2, 2).flat, strict=True):
            draw(self, ax)
        return figure


def _bars(estimates: list[Estimate]) -> dict[str, Any]:
    values = np.array([each.value for each in estimates])
    low, high = (
        np.array([getattr(each, end) for each in estimates]) for end in ("low", "high")
    )
    return {"y": values, "yerr": np.abs(np.stack([values - low, high - values]))}


def _draw_differences(report: Diagnosis, ax: matplotlib.axes.Axes) -> None:
    numbers = list(report.differences)
    for name, label, color in (
        ("g2_naive", "as it is", _GREY),
        ("g2", "without noise", _BLUE),
    ):
        found = [report.differences[number] for number in numbers]
        ax.errorbar(
            numbers,
            **_bars([each[name] for each in found]),
            color=color,
            label=label,
            marker="o",
            capsize=3,
        )
    ax.axhline(0, color="0.8", zorder=0)
    ax.set(title="How different clients are", xlabel="rounds", ylabel="G²")
    ax.set_xticks(numbers)
    ax.legend(frameon=False)


def _draw_labels(report: Diagnosis, ax: matplotlib.axes.Axes) -> None:
    ax.set(
        title="How different their labels are",
        xlabel="client",
        ylabel="total variation",
    )
    if report.labels is None:
        ax.text(0.5, 0.5, "labels are no numbers", ha="center", transform=ax.transAxes)
        return
    distances, chance = report.labels
    order = np.argsort(distances)
    ax.plot(distances[order], color=_BLUE, marker=".", linestyle="", label="measured")
    ax.plot(chance[order], color=_GREY, label="by chance")
    ax.set_ylim(0, 1)
    ax.legend(frameon=False)


def _draw_drift(report: Diagnosis, ax: matplotlib.axes.Axes) -> None:
    steps = [*report.drift, float(np.mean(report.steps))]
    found = [*report.drift.values(), report.as_trained]
    biases = [max(0.0, each["bias"].value) ** 0.5 for each in found]
    cosines = [each["cosine"].value for each in found]
    ax.plot(steps, biases, color=_ORANGE, marker="o", label="bias / step")
    ax.plot(steps, cosines, color=_BLUE, marker="s", label="cosine with others")
    ax.axhline(0, color="0.8", zorder=0)
    ax.set(title="How far they drift", xlabel="local steps", xscale="log")
    ax.set_xticks(steps, [f"{each:.3g}" for each in steps])
    ax.minorticks_off()
    ax.legend(frameon=False)


def _draw_costs(report: Diagnosis, ax: matplotlib.axes.Axes) -> None:
    estimates = [report.as_trained[name] for name in findings.ERRORS]
    bars = _bars(estimates)
    ax.bar(
        range(len(estimates)),
        bars["y"],
        yerr=bars["yerr"],
        capsize=3,
        color=[_ORANGE, _BLUE, _GREY],
    )
    ax.set_xticks(
        range(len(estimates)), ["bias of\ndrift", "cohort's\nnoise", "minibatch\nnoise"]
    )
    ax.axhline(0, color="0.8", zorder=0)
    ax.set(title="What limits a round", ylabel="relative to the step")


_PANELS = (_draw_differences, _draw_labels, _draw_drift, _draw_costs)
