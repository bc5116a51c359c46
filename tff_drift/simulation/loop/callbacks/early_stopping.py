"""The end of runs that improve no more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from absl import logging

from tff_drift import checks
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records import metrics


class EarlyStopping(Callback):
    """Ends a run when a metric has not improved for some rounds.

    The rounds are counted from the best value so far to the latest round that has the
    metric: a metric of evaluations is looked at when the model is evaluated. A value
    that is not finite is not an improvement. A metric that no row has is warned of
    once, after `patience` rounds at the latest. `TrainingResult.stop_reason` says why
    the run ended.

    What is decided follows from the run's rows alone: a run that was killed and is
    resumed ends in the same round, and one that has ended so, started again, trains no
    further.
    """

    def __init__(
        self,
        metric: str = "test_loss",
        *,
        patience: int = 50,
        min_change: float = 0.0,
        higher_is_better: bool = False,
    ) -> None:
        """Initializes the callback.

        Args:
          metric: The column to watch, such as `test_loss`, `test_accuracy` or
            `train_loss`.
          patience: The rounds without an improvement after which the run ends.
          min_change: What a value must be better by than the best one, in the metric's
            own unit, to be an improvement.
          higher_is_better: Whether larger values are better, as for an accuracy.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If `metric` is empty, `patience` is below 1, or `min_change` is
            negative.
        """
        checks.check_text("metric", metric)
        checks.check_integer("patience", patience)
        checks.check_non_negative("min_change", min_change)
        checks.check_flag("higher_is_better", higher_is_better)
        self._metric = metric
        self._patience = int(patience)
        self._min_change = float(min_change)
        self._sign = 1.0 if higher_is_better else -1.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The conditions under which the run ends."""
        return {
            "metric": self._metric,
            "patience": self._patience,
            "min_change": self._min_change,
            "higher_is_better": self._sign > 0,
        }

    def before_training(self, run: TrainingRun) -> None:
        """Looks at the rounds of earlier programs."""
        self._run = run
        self._best, self._best_round = -math.inf, 0
        # Whether a record had the metric, or its absence has been reported.
        self._is_settled = False
        for row in run.rows:
            self._look(row)

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Ends the run, if it is time.

        Raises:
          ValueError: If the row should have the metric, and neither it nor a row
            before it has.
        """
        self._look(row)
        # Another callback's columns of its kind may come in rounds without it.
        if self._is_settled:
            return
        kinds = (metrics.TEST_PREFIX, metrics.TRAIN_PREFIX)
        own = tuple(kind for kind in kinds if self._metric.startswith(kind))
        number = int(row[metrics.ROUND])
        if any(name.startswith(own) for name in row):
            raise ValueError(
                f"EarlyStopping watches {checks.shown(self._metric)}, but the columns "
                f"of round {number} are {checks.listed(row)}. Name one of them."
            )
        # Callbacks of one's own may give a column in some rounds only.
        others = [kind + self._metric for kind in kinds if kind + self._metric in row]
        if not others and number < self._patience:
            return
        self._is_settled = True
        hint = f" It has {' and '.join(map(checks.shown, others))}." if others else ""
        logging.warning(
            "EarlyStopping watches %s, which no row up to round %d has: as long as "
            "none has it, the run is not ended.%s",
            checks.shown(self._metric),
            number,
            hint,
        )

    def _look(self, row: Mapping[str, Any]) -> None:
        if self._metric not in row:
            return
        self._is_settled = True
        value, number = self._sign * row[self._metric], int(row[metrics.ROUND])
        if math.isfinite(value) and (
            self._best == -math.inf or value > self._best + self._min_change
        ):
            self._best, self._best_round = value, number
        elif number - self._best_round >= self._patience:
            self._run.stop(
                f"{self._metric} has not improved for {number - self._best_round} "
                f"rounds: its best value, {self._sign * self._best:.6g}, is that of "
                f"round {self._best_round}"
                if math.isfinite(self._best)
                else f"{self._metric} was not finite for {number} rounds"
            )
