"""A watch for rounds in which training breaks down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from absl import logging

from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records import failures, metrics


class FailureWatch(Callback):
    """Says of every round whether training broke down in it, and warns.

    It warns too when no client's update is finite, which leaves the model as it is. The
    columns are `catastrophic_failure` and `non_finite`, 1 or 0: see
    `tff_drift.simulation.records.failures`. `run_training` adds this callback, with the
    metric "accuracy", if none of its kind is given.
    """

    def __init__(self, accuracy_metric: str = "accuracy") -> None:
        """Initializes the callback.

        Args:
          accuracy_metric: The name of the training metric that is watched for a fall;
            a model may have none of this name.

        Raises:
          TypeError: If `accuracy_metric` is not a string.
        """
        if not isinstance(accuracy_metric, str):
            raise TypeError(
                "accuracy_metric must be the name of a metric, found "
                f"{accuracy_metric!r}."
            )
        self._metric = accuracy_metric
        self._run: TrainingRun | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The name of the metric."""
        return {"accuracy_metric": self._metric}

    def before_training(self, run: TrainingRun) -> None:
        """Remembers the run, whose rows hold the round before."""
        self._run = run

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> metrics.MetricsRecord:
        """Compares the round with the one before."""
        assert self._run is not None
        previous = self._run.rows[-1] if self._run.rows else {}
        accuracy = metrics.TRAIN_PREFIX + self._metric
        # Only the standard state of a learning process shows its model without a
        # computation; the model that is deployed is made of this one.
        weights = getattr(state, "global_model_weights", ())
        loss = row.get(f"{metrics.TRAIN_PREFIX}loss")
        columns: metrics.MetricsRecord = {
            failures.CATASTROPHIC_FAILURE: int(
                failures.is_catastrophic(previous.get(accuracy), row.get(accuracy))
            ),
            failures.NON_FINITE: int(failures.is_non_finite(loss, weights)),
        }
        for failure in failures.failures_of([{metrics.ROUND: round_number, **columns}]):
            # A model that is not finite stays so: one warning is enough.
            if not previous.get(failure.kind):
                logging.warning("%s", failure)
        if failures.all_rejected(row) and not failures.all_rejected(previous):
            logging.warning(
                "Round %d: no client's update is finite, and the model stays as it is. "
                "Take a smaller rate, or a gradient_clipping_norm.",
                round_number,
            )
        return columns
