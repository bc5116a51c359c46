"""Analysis of finished runs, without training and without TensorFlow.

Tables are `pandas.DataFrame`s and figures `matplotlib` ones, so that notebooks use the
same functions as `tff-drift analyze`:

    from experiments import analysis

    runs = analysis.read("results/compare/digits")
    labels = analysis.labels(runs)
    found = analysis.to_thresholds(runs, "test_accuracy", [0.7, 0.8], axis="examples")
    analysis.over_seeds(found, labels)
    analysis.draw_curves(runs, ["test_accuracy", "test_loss"], axis="bytes")
"""

from experiments.analysis.figures import (
    draw_against,
    draw_clients,
    draw_curves,
    draw_heat_map,
    draw_train_and_test,
)
from experiments.analysis.finished import AXES, FinishedRuns, read
from experiments.analysis.measures import (
    PERCENTS,
    averaged_over,
    curves,
    failed,
    falls,
    headline,
    labels,
    last_mean,
    last_rounds,
    measured,
    over_seeds,
    percentile_columns,
    to_thresholds,
    varying,
)
from experiments.analysis.norms import (
    NORMS,
    cosine_column,
    draw_predicted_norms,
    predicted_norms,
)

__all__ = [
    "AXES",
    "NORMS",
    "PERCENTS",
    "FinishedRuns",
    "averaged_over",
    "cosine_column",
    "curves",
    "draw_against",
    "draw_clients",
    "draw_curves",
    "draw_heat_map",
    "draw_predicted_norms",
    "draw_train_and_test",
    "failed",
    "falls",
    "headline",
    "labels",
    "last_mean",
    "last_rounds",
    "measured",
    "over_seeds",
    "percentile_columns",
    "predicted_norms",
    "read",
    "to_thresholds",
    "varying",
]
