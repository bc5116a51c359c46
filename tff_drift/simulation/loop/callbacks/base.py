"""The base class of callbacks of `run_training`, and the run that they see."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.client_states import ClientStates
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.records.metrics import MetricsRecord
from tff_drift.simulation.records.results import TrainingResult
from tff_drift.simulation.records.run_store import RunStore, TrainingState

# Columns by name, of numbers and of small structures of numbers; None is no column.
Columns = Mapping[str, Any] | None


class TrainingRun:
    """A run as callbacks see it; the driver brings it up to date after every round.

    Attributes:
      process: The learning process.
      train: The clients to train on.
      rounds: The number of rounds in all.
      settings: What the run is, in JSON values by name: what `config.json` has as
        `training`, except for a digest of the examples, and as `configuration`.
      client_states: The store of the clients' states; None if they keep none.
      stop_reason: Why the run was asked to stop; None while it was not.
      cohort: The clients of the latest round; none before the first.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        train: ClientDatasets,
        rounds: int,
        client_states: ClientStates | None,
        settings: Mapping[str, Any],
        run_store: RunStore,
        get_training_state: Callable[[], TrainingState],
    ) -> None:
        self.process = process
        self.train = train
        self.rounds = rounds
        self.client_states = client_states
        self.settings = settings
        self.stop_reason: str | None = None
        self.cohort: Sequence[str] = ()
        self._run_store = run_store
        self._get_training_state = get_training_state

    @property
    def rounds_completed(self) -> int:
        """The rounds trained so far, those of earlier programs included."""
        return self._get_training_state().rounds_completed

    @property
    def state(self) -> Any:
        """The server state after `rounds_completed` rounds."""
        return self._get_training_state().state

    @property
    def rows(self) -> Sequence[MetricsRecord]:
        """The rows kept so far."""
        return self._run_store.rows

    @property
    def folder(self) -> pathlib.Path | None:
        """The folder of the run; None if nothing is written."""
        return self._run_store.folder

    def stop(self, reason: str) -> None:
        """Asks the run to end after the round in progress, as if it were the last.

        The round's row is kept, a checkpoint is written, and `run_training` returns.
        Its result names the reason. The same run started again continues from there.

        Args:
          reason: The reason, for readers of the result.

        Raises:
          TypeError: If `reason` is not a string.
          ValueError: If it is empty.
        """
        checks.check_text("reason", reason)
        self.stop_reason = self.stop_reason or reason


class Callback:
    """Takes part in a run at certain moments; every method does nothing by default.

    The moments, in their order:

    1. `before_training`, once in a program;
    2. after every round `after_round`; then, if a callback has given a column whose
       name begins with `test_`, `after_evaluation`; then, when the row is complete
       and kept, `after_row`;
    3. `after_training`, whatever ended the training.

    The callbacks of a run are called in the order in which they were given, in
    `after_training` in the opposite order. What a callback returns becomes columns of
    the round's row, which the callbacks after it see, and is kept with the row. An
    exception ends the run: the row of that round is not kept, and the run can be
    resumed from its last checkpoint.

    For a run that resumes identically, columns must depend on the arguments of the
    method alone: what a callback has counted itself is gone after a kill. Times are an
    exception: columns whose names begin with `seconds` are not expected to be equal.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings on which the columns depend, JSON values by name.

        It is written to the run's `config.json`, and compared when the run is resumed.
        """
        return {}

    def before_training(self, run: TrainingRun) -> Columns:
        """Called when the run has its initial state, or that of its checkpoint.

        Args:
          run: The run, which stays the same object until its end.

        Returns:
          Columns of the row of round 0, which is that of the initial model. They are
          kept if `run.rounds_completed` is 0, and no row is if there are none.
        """
        del run
        return None

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> Columns:
        """Called after every round.

        Args:
          round_number: The round, from 1.
          state: The server state after the round.
          row: The columns of the round so far; read-only.

        Returns:
          Further columns, with names that the row does not have.
        """
        del round_number, state, row
        return None

    def after_evaluation(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> Columns:
        """Called after every round with an evaluation, when all have seen the round.

        Args:
          round_number: The round, from 1.
          state: The server state after the round.
          row: The columns of the round so far, those of the evaluation among them;
            read-only.

        Returns:
          Further columns, with names that the row does not have.
        """
        del round_number, state, row
        return None

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Called with every row that was kept in this program, that of round 0 too.

        Args:
          row: The whole row; read-only.
        """
        del row

    def after_training(self, result: TrainingResult | None) -> None:
        """Called at the end, if `before_training` was.

        Everything is saved by then. An exception goes to the caller of `run_training`.

        Args:
          result: What `run_training` is about to return; None if an exception has
            ended the run.
        """
        del result
