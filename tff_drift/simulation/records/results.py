"""The result of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_drift import summaries
from tff_drift.simulation.records import failures, metrics, result_summary


@dataclasses.dataclass(frozen=True)
class Totals:
    """The totals of a whole run.

    Attributes:
      rounds: The rounds trained.
      examples: The examples that clients processed, every epoch counted.
      bytes_down: What the server sent to clients.
      bytes_up: What clients sent to the server.
      seconds: The wall-clock time of training rounds.
      seconds_evaluation: The wall-clock time of evaluations.
    """

    rounds: int
    examples: int
    bytes_down: int
    bytes_up: int
    seconds: float
    seconds_evaluation: float


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingResult:
    """A run at its end.

    Attributes:
      state: The server state, to go on with `process.next`.
      model_weights: The model, as `process.get_model_weights` gives it.
      rows: One mapping per round, see `run_training`.
      failures: The rounds in which training broke down.
      totals: Examples, traffic and time of the whole run.
      stop_reason: Why a callback ended the run before its last round; None if none
        did.
    """

    state: Any
    model_weights: Any
    rows: Sequence[metrics.MetricsRecord]
    failures: Sequence[failures.Failure]
    totals: Totals
    stop_reason: str | None = None

    def __repr__(self) -> str:
        return summaries.text(*self._summary())

    def _repr_html_(self) -> str:
        return summaries.html(*self._summary(), result_summary.small_curve(self.rows))

    def _summary(self) -> tuple[str, dict[str, str]]:
        """Returns a title, and what the result is, by names."""
        totals = self.totals
        fields = {
            "last metrics": result_summary.last_metrics(self.rows),
            "model": result_summary.model(self.model_weights),
            "totals": (
                f"{totals.examples:,} examples, "
                f"{totals.bytes_down / 1e6:,.1f} MB down, "
                f"{totals.bytes_up / 1e6:,.1f} MB up, {totals.seconds:,.1f} s"
            ),
            "failures": result_summary.first_failure(self.failures),
        }
        if self.stop_reason is not None:
            fields["stopped"] = self.stop_reason
        return f"TrainingResult of {totals.rounds:,} rounds", fields

    def plot(self, *columns: str, ax: Any = None) -> Any:
        """Draws columns of the rows over the rounds; values not finite are gaps.

        Args:
          *columns: The columns' names; by default those of accuracies in training and
            evaluation or, without any, of losses.
          ax: The `matplotlib.axes.Axes` to draw into; by default new ones.

        Returns:
          The axes.

        Raises:
          ValueError: If there is no such column, or none to draw by default.
        """
        return result_summary.plot_rows(self.rows, columns, ax)


def build_result(
    state: Any,
    model_weights: Any,
    rows: Sequence[metrics.MetricsRecord],
    stop_reason: str | None,
) -> TrainingResult:
    """Returns the result of a run, its failures and totals taken from the rows."""

    def total(column: str) -> Any:
        return sum(row.get(column, 0) for row in rows)

    totals = Totals(
        rounds=int(max((row[metrics.ROUND] for row in rows), default=0)),
        examples=int(rows[-1].get("total_examples", 0)) if rows else 0,
        bytes_down=total("bytes_down"),
        bytes_up=total("bytes_up"),
        seconds=float(total(metrics.SECONDS)),
        seconds_evaluation=float(total(metrics.SECONDS_EVALUATION)),
    )
    return TrainingResult(
        state=state,
        model_weights=model_weights,
        rows=tuple(rows),
        failures=tuple(failures.failures_of(rows)),
        totals=totals,
        stop_reason=stop_reason,
    )
