"""A watch for rounds in which training breaks down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from absl import logging

from tff_drift import checks
from tff_drift.simulation.data import not_finite
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records import failures, metrics

# A model whose norm grows so in a round has not learned but blown up.
_LARGEST_GROWTH = 1000.0
_REJECTED = "client_work/rejected_clients"


class FailureWatch(Callback):
    """Says of every round whether training broke down in it, and warns.

    The columns are `catastrophic_failure` and `non_finite`, 1 or 0: see
    `tff_drift.simulation.records.failures`. `run_training` adds this callback, with the
    metric "accuracy", if none of its kind is given.

    It warns besides when a client is rejected for the first time, because its update is
    not finite, and when all clients of a round are, which leaves the model as it is. It
    then looks for values that are not finite in the examples of the round's clients,
    and names them. It warns when the mean of the updates or the new model is not
    finite, which leaves the model as it is, too, and when the norm of the model grows a
    thousandfold in a round.
    """

    def __init__(self, accuracy_metric: str = "accuracy") -> None:
        """Initializes the callback.

        Args:
          accuracy_metric: The name of the training metric that is watched for a fall;
            a model may have none of this name.

        Raises:
          TypeError: If `accuracy_metric` is not a string.
        """
        checks.check_instance(
            "accuracy_metric", accuracy_metric, str, "the name of a metric"
        )
        self._metric = accuracy_metric

    @property
    def settings(self) -> Mapping[str, Any]:
        """The name of the metric."""
        return {"accuracy_metric": self._metric}

    def before_training(self, run: TrainingRun) -> None:
        """Remembers the run, whose rows hold the round before."""
        self._run = run
        self._norm = failures.weights_norm(_weights(run.state))
        self._has_told = any(row.get(_REJECTED) for row in run.rows)

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> metrics.MetricsRecord:
        """Compares the round with the one before."""
        previous = self._run.rows[-1] if self._run.rows else {}
        accuracy = metrics.TRAIN_PREFIX + self._metric
        loss = row.get(f"{metrics.TRAIN_PREFIX}loss")
        if failures.nobody_counted(row):
            loss = None
        norm = failures.weights_norm(_weights(state))
        columns: metrics.MetricsRecord = {
            failures.CATASTROPHIC_FAILURE: int(
                failures.is_catastrophic(previous.get(accuracy), row.get(accuracy))
            ),
            failures.NON_FINITE: int(failures.is_non_finite(loss, norm)),
        }
        for failure in failures.failures_of([{metrics.ROUND: round_number, **columns}]):
            # A model that is not finite stays so: one warning is enough.
            if not previous.get(failure.kind):
                logging.warning("%s", failure)
        self._warn_of_growth(round_number, norm)
        self._warn_of_rejected(round_number, row, previous)
        if failures.is_left_out(row) and not failures.is_left_out(previous):
            logging.warning(
                "Round %d: the mean of the updates or the new model is not finite, and "
                "the model stays as it is. Take smaller rates; have a model in half "
                "precision, whose sums overflow soon, in float32.",
                round_number,
            )
        return columns

    def _warn_of_growth(self, round_number: int, norm: float) -> None:
        # The norms of initial weights that are zeros, or small, say nothing.
        if norm > _LARGEST_GROWTH * max(self._norm, 1.0):
            logging.warning(
                "Round %d: the norm of the model has grown from %.3g to %.3g. Look at "
                "the examples' scale, or take a smaller rate.",
                round_number,
                self._norm,
                norm,
            )
        self._norm = norm

    def _warn_of_rejected(
        self, round_number: int, row: Mapping[str, Any], previous: Mapping[str, Any]
    ) -> None:
        rejected = row.get(_REJECTED, 0)
        if failures.all_rejected(row):
            if failures.all_rejected(previous):
                return
            what = "no client's update is finite, and the model stays as it is"
        elif rejected and not self._has_told:
            of_all = f"{rejected} of {row.get('cohort_size')} clients"
            what = f"{of_all} were rejected, because an update is not finite"
        else:
            return
        self._has_told = True
        otherwise = "Take a smaller rate, or a gradient_clipping_norm"
        remedy = not_finite.remedy(self._run.train, self._run.cohort, otherwise)
        logging.warning("Round %d: %s. %s.", round_number, what, remedy)


def _weights(state: Any) -> Any:
    # Only the standard state of a learning process shows its model without a
    # computation; the model that is deployed is made of this one.
    return getattr(state, "global_model_weights", ())
