"""Stores of runs: none at all, or a folder to resume from."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tff_drift import checks
from tff_drift.simulation.records.metrics import MetricsRecord, MetricsTable


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """The state of a run at the end of a round.

    Attributes:
      rounds_completed: The number of rounds trained.
      state: The server state.
      cohort_sha256: A hash of the ids of the last round's clients; empty if it is not
        known, or there was none.
    """

    rounds_completed: int
    state: Any
    cohort_sha256: str = ""

    __repr__ = checks.shown_fields


def check_rounds(rounds: int, rounds_completed: int) -> None:
    """Raises if a run has completed more rounds than it is asked for.

    Args:
      rounds: The rounds asked for.
      rounds_completed: Those completed.

    Raises:
      ValueError: If they are more.
    """
    if rounds_completed > rounds:
        raise ValueError(
            f"rounds is {rounds}, but the run in output_dir has completed "
            f"{rounds_completed}. Ask for at least as many, or choose another "
            "output_dir."
        )


@runtime_checkable
class RunStore(Protocol):
    """Keeps a run's metrics, and training states to resume from."""

    @property
    def folder(self) -> pathlib.Path | None:
        """The folder to resume from, `None` if there is none."""

    @property
    def rows(self) -> Sequence[MetricsRecord]:
        """The rows kept so far."""

    def resume(
        self, initial_state: Any, hyperparameters: Mapping[str, Any]
    ) -> TrainingState | None:
        """Returns where an earlier run stopped, `None` if there is none."""

    def add(self, row: MetricsRecord) -> None:
        """Keeps a row."""

    def save(self, training_state: TrainingState) -> None:
        """Keeps a training state to resume from, in place of the one before."""

    def close(self) -> None:
        """Ends the keeping."""


class InMemoryRunStore:
    """Keeps metrics in RAM, and no training state to resume from."""

    def __init__(self) -> None:
        self.folder = None
        self.rows = MetricsTable()

    def resume(
        self, initial_state: Any, hyperparameters: Mapping[str, Any]
    ) -> TrainingState | None:
        """Returns `None`: there is no earlier run."""
        del initial_state, hyperparameters
        return None

    def add(self, row: MetricsRecord) -> None:
        """Keeps a row."""
        self.rows.append(row)

    def save(self, training_state: TrainingState) -> None:
        """Keeps nothing: the run ends with the program."""

    def close(self) -> None:
        """Does nothing."""
