"""Norms and similarities of updates, by the size of the cohort.

Charles et al. (2021), On Large-Cohort Training for Federated Learning, section 4 and
appendix B.6: Figures 8 and 32 to 39. https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

import math

import matplotlib.figure
import pandas as pd

from experiments import escape
from experiments.analysis import measures, style
from experiments.analysis.arguments import checked
from experiments.analysis.finished import FinishedRuns

# ‖θ‖, ‖Δ‖ and the mean norm of what clients send, of every run.
NORMS = ("model_norm", "finalizer/pseudo_gradient_norm", "client_work/drift")
_PSEUDO_GRADIENT_NORM = NORMS[1]
_COSINE = "/mean_pairwise_cosine"
_COHORT = "clients_per_round"


@checked
def cosine_column(runs: FinishedRuns) -> str | None:
    """Returns the column of the mean pairwise cosine of clients' updates, if any.

    Args:
      runs: The runs; those with `--cohort_measurements` have it.
    """
    found = [name for name in runs.rounds if str(name).endswith(_COSINE)]
    return str(found[0]) if found else None


@checked
def predicted_norms(runs: FinishedRuns) -> pd.DataFrame:
    """Returns ‖Δ‖ by round, and what the smallest cohort's lets expect.

    The mean of M independent updates without a common direction is shorter than that
    of M₁ by √(M₁ / M). Where updates of clients are nearly orthogonal, as FedAvg's are,
    ‖Δ‖ follows that; where they are alike, as FedSGD's, it does not.

    Args:
      runs: Runs with cohorts of several sizes.

    Returns:
      A row per label, cohort size and round: `label` (which distinguishes the runs
      besides seed and cohort), `clients_per_round`, `round`, `measured` (the mean over
      seeds) and `predicted`, NaN in a round that the smallest cohort lacks.

    Raises:
      ValueError: If no run measured ‖Δ‖.
    """
    rows = measures.measured(runs, _PSEUDO_GRADIENT_NORM)
    labels = measures.labels(runs, measures.telling(runs, _COHORT))
    rows = rows.assign(
        label=rows["run"].map(labels),
        clients_per_round=rows["run"].map(runs.settings[_COHORT]),
    )
    keys = ["label", _COHORT, "round"]
    # Without those of a seed that broke down or has ended there is no mean.
    by_key = rows.groupby(keys, sort=False)[_PSEUDO_GRADIENT_NORM]
    seeds = rows.groupby(keys[:2])["run"].nunique()
    table = by_key.mean()
    table = table.where(
        by_key.count() == seeds.reindex(table.index.droplevel("round")).to_numpy()
    )
    table = table.rename("measured").reset_index().sort_values(keys)
    smallest = table.groupby("label")[_COHORT].transform("min")
    of_smallest = table[table[_COHORT] == smallest].set_index(["label", "round"])
    at = pd.MultiIndex.from_frame(table[["label", "round"]])
    reference = of_smallest["measured"].reindex(at).to_numpy()
    shrinking = (smallest / table[_COHORT]).map(math.sqrt)
    return table.assign(predicted=reference * shrinking).reset_index(drop=True)


@checked
def draw_predicted_norms(runs: FinishedRuns) -> matplotlib.figure.Figure:
    """Draws ‖Δ‖ over rounds by cohort size, dashed what √(M₁ / M) predicts.

    Args:
      runs: As for `predicted_norms`, which raises what this does.
    """
    table = predicted_norms(runs)
    labels = list(dict.fromkeys(table["label"]))
    figure, panels = style.panels(len(labels))
    for axes, label in zip(panels, labels, strict=True):
        of_label = table[table["label"] == label]
        for position, (cohort, lines) in enumerate(of_label.groupby(_COHORT)):
            colour = style.colour(position)
            bounds = [lines[each].to_numpy(float) for each in ("measured", "predicted")]
            lines = lines.iloc[style.outline(bounds)]
            axes.plot(
                lines["round"],
                lines["measured"],
                color=colour,
                linewidth=2,
                label=f"{cohort} clients",
            )
            if position:  # The smallest cohort predicts the others.
                axes.plot(lines["round"], lines["predicted"], "--", color=colour)
        style.plain(axes)
        axes.set_yscale("log")
        axes.set_xlabel("round of communication")
        axes.set_ylabel("norm of the mean pseudo-gradient ‖Δ‖")
        axes.set_title(escape.figure(label), fontsize=10)
    style.legend(figure, "dashed: predicted from the smallest cohort by 1/√M")
    return figure
