"""What a run leaves behind: nothing, or a folder to resume from."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tff_drift.simulation.records.metrics import Row
from tff_drift.simulation.records.row_table import RowTable


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a run stands at the end of a round.

    Attributes:
      rounds_completed: The number of rounds trained.
      state: The server state.
    """

    rounds_completed: int
    state: Any


@runtime_checkable
class Record(Protocol):
    """Keeps a run's rows, and positions to resume from."""

    @property
    def folder(self) -> pathlib.Path | None:
        """The folder to resume from, `None` if there is none."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows kept so far."""

    def resume(
        self, initial_state: Any, hyperparameters: Mapping[str, Any]
    ) -> Position | None:
        """Returns where an earlier run stopped, `None` if there is none."""

    def add(self, row: Row) -> None:
        """Keeps a row."""

    def save(self, position: Position) -> None:
        """Keeps a position to resume from, in place of the one before."""

    def close(self) -> None:
        """Ends the record."""


class RowsOnly:
    """Keeps rows in RAM, and no position to resume from."""

    def __init__(self) -> None:
        self.folder = None
        self.rows = RowTable()

    def resume(
        self, initial_state: Any, hyperparameters: Mapping[str, Any]
    ) -> Position | None:
        """Returns `None`: there is no earlier run."""
        del initial_state, hyperparameters
        return None

    def add(self, row: Row) -> None:
        """Keeps a row."""
        self.rows.append(row)

    def save(self, position: Position) -> None:
        """Keeps nothing: the run ends with the program."""

    def close(self) -> None:
        """Does nothing."""
