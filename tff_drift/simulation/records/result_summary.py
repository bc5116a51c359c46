"""Summaries of a result: a few lines, and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from tff_drift import checks, summaries
from tff_drift.simulation.records import metrics
from tff_drift.simulation.records.failures import Failure

_SHOWN_METRICS = 4
# The columns to show first, of those that there are.
_ACCURACIES = ("test_accuracy", "train_accuracy")
_LOSSES = ("test_loss", "train_loss")


def last_metrics(rows: Sequence[metrics.MetricsRecord]) -> str:
    """Returns the headline metrics, each of the last round that has it.

    Args:
      rows: The rows.
    """
    last: dict[str, str] = {}
    for name in _shown(rows)[:_SHOWN_METRICS]:
        for row in reversed(rows):
            if name in row:
                last[name] = f"{name} {row[name]:.4g}"
                break
    return ", ".join(last.values()) or "none"


def _shown(rows: Sequence[metrics.MetricsRecord]) -> list[str]:
    """Returns the columns that measure a model, the most important first."""
    # The last evaluation may be some rounds ago.
    columns = dict.fromkeys(name for row in rows[-200:] for name in row)
    kinds = (metrics.TEST_PREFIX, metrics.TRAIN_PREFIX)
    first = [name for name in (*_ACCURACIES, *_LOSSES) if name in columns]
    others = [
        name
        for name in columns
        if name.startswith(kinds) and "num_" not in name and "_client_" not in name
    ]
    return list(dict.fromkeys([*first, *others]))


def model(model_weights: Any) -> str:
    """Returns how large a model is.

    Args:
      model_weights: Its weights.
    """
    try:
        leaves = tree.flatten((model_weights.trainable, model_weights.non_trainable))
    except AttributeError:
        return type(model_weights).__name__
    count = sum(np.size(leaf) for leaf in leaves)
    return f"{count:,} weights in {len(leaves)} arrays"


def first_failure(failures: Sequence[Failure]) -> str:
    """Returns the first failure, and how many there are more.

    Args:
      failures: The failures.
    """
    if not failures:
        return "none"
    first = str(failures[0]).rstrip(".")
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    return first + more


def small_curve(rows: Sequence[metrics.MetricsRecord]) -> str:
    """Returns the headline metric over the rounds as SVG, if there is any.

    Args:
      rows: The rows.
    """
    for name in _shown(rows):
        values = [float(row[name]) for row in rows if name in row]
        if curve := summaries.curve(name, values):
            return curve
    return ""


def default_columns(rows: Sequence[metrics.MetricsRecord]) -> list[str]:
    """Returns the headline columns to draw, none if a model measures nothing.

    Args:
      rows: The rows.
    """
    known = dict.fromkeys(name for row in rows for name in row)
    kinds = [
        [name for name in kind if name in known] for kind in (_ACCURACIES, _LOSSES)
    ]
    return next(filter(None, kinds), _shown(rows)[:1])


def plot_rows(
    rows: Sequence[metrics.MetricsRecord], columns: Sequence[str], ax: Any
) -> Any:
    """Draws columns over the rounds; see `TrainingResult.plot`.

    Args:
      rows: The rows.
      columns: The columns' names, none for the headline metrics.
      ax: The axes, or `None`.

    Returns:
      The axes.

    Raises:
      ValueError: If there is no such column, or none to draw by default.
    """
    known = dict.fromkeys(name for row in rows for name in row)
    columns = columns or default_columns(rows)
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        found = f"{checks.shown(unknown[0])} is none of" if unknown else "name some of"
        raise ValueError(f"columns: {found} the run's columns: {checks.listed(known)}.")
    if ax is None:
        # Slow to import, and of no use to programs that draw nothing.
        import matplotlib.pyplot as plt

        ax = plt.figure().subplots()
    for name in columns:
        points = [(row[metrics.ROUND], row[name]) for row in rows if name in row]
        rounds, values = zip(*points, strict=True)
        gaps = [value if math.isfinite(value) else math.nan for value in values]
        ax.plot(rounds, gaps, label=name)
    ax.set_xlabel("round")
    ax.legend()
    return ax
