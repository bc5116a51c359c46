"""The folder of a run: its configuration, metrics and checkpoint.

The checkpoint is what counts: rows of later rounds, temporary files and events
are left-overs of a kill, dropped when the run goes on. A folder with a checkpoint
of this run is resumed; an empty one is begun; anything else is refused before a
byte is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, files
from tff_drift.client_states import (
    ClientStates,
    ClientStatesError,
    InMemoryClientStates,
)
from tff_drift.simulation.records import checkpoint, configuration, run_folder
from tff_drift.simulation.records.metrics import MetricsRecord
from tff_drift.simulation.records.metrics_file import (
    MetricsFile,
    MetricsFileError,
    RowsDigest,
    rows_until,
)
from tff_drift.simulation.records.output_dir import (
    CHECKPOINT_FILE,
    CONFIGURATION_FILE,
    FROZEN_FILE,
    METRICS_FILE,
    TENSORBOARD_FOLDER,
)
from tff_drift.simulation.records.run_store import TrainingState, check_rounds

_SERVER_STATE = "server_state"
_CLIENT_STATES = "client_states"
_ROWS = "rows_sha256"
_TRAINING = "training"
_COHORT = "cohort_sha256"
# Of the version of the clients' states, if they are not in the checkpoint.
_FINGERPRINT = "client_states_fingerprint"


def holds_client_states(folder: pathlib.Path) -> bool:
    """Returns whether the checkpoint in a folder holds the clients' states itself.

    Args:
      folder: The folder of a run whose clients keep a state.

    Raises:
      CheckpointError: If its checkpoint is damaged.
      OSError: If that cannot be read.
    """
    return _CLIENT_STATES in checkpoint.saved_names(folder / CHECKPOINT_FILE)


class RunDirectory:
    """Keeps a run in a folder, from which the run can be resumed.

    Only one program at a time may have a folder open.

    Attributes:
      folder: The folder.
      rows: The rows kept so far.
    """

    def __init__(self, output_dir: str | os.PathLike[str]) -> None:
        """Opens the folder, which holds a run or nothing.

        Args:
          output_dir: The folder; it is created if necessary.

        Raises:
          run_folder.OutputDirError: If the folder cannot be written, is in use, or
            holds files of others.
          checkpoint.CheckpointError: If the checkpoint is damaged.
          metrics_file.MetricsFileError: If the metrics are damaged.
        """
        # The same folder wherever the program goes.
        self.folder = pathlib.Path(output_dir).absolute()
        self._shown: dict[str, Mapping[str, Any]] = {}
        self._description: dict[str, Any] = {}
        self._client_states: ClientStates | None = None
        self._closing = contextlib.ExitStack()
        self._checkpoint: checkpoint.Checkpoint | None = None
        self._metrics: MetricsFile | None = None
        self._resumed_rows: list[MetricsRecord] = []
        self._rows_digest = RowsDigest()
        # The round of the checkpoint; None before the run has begun.
        self._kept: int | None = None
        # Whether the folder holds the whole run: then it is read alone.
        self._is_over = False
        with self._closed_on_errors(), self._explained_errors():
            self._open()

    @property
    def saved_rounds(self) -> int | None:
        """The rounds of the checkpoint to go on from, `None` if there is none."""
        return None if self._checkpoint is None else self._checkpoint.rounds_completed

    def identify(
        self,
        user_configuration: Mapping[str, Any],
        training: Mapping[str, Any] | None = None,
        client_states: ClientStates | None = None,
    ) -> None:
        """Says which run the folder is to hold, and checks that it holds no other.

        Args:
          user_configuration: What the user says the run is, in JSON values.
          training: The arguments of the training that its results depend on, in
            JSON values; by default they are not compared.
          client_states: The store of the clients' states, if they have any: one in
            RAM is saved in the checkpoint, any other is committed in step with it.

        Raises:
          run_folder.OutputDirError: If the folder holds a run with another
            configuration, or one with rounds to go and cannot be written.
          metrics_file.MetricsFileError: If the metrics do not belong to the
            checkpoint.
          ValueError: If the run has completed more than `rounds` of the arguments.
        """
        self._shown["configuration"] = user_configuration
        if training is not None:
            self._shown[_TRAINING] = training
        self._description = {
            # A run may be extended.
            name: {field: section[field] for field in section if field != "rounds"}
            for name, section in self._shown.items()
        }
        self._client_states = client_states
        saved = self._checkpoint
        if saved is None:
            return
        with self._closed_on_errors(), self._explained_errors():
            self._check_same_run(saved, tuple(self._shown))
            if training is not None:
                # Now, because `resume` writes the new number.
                completed = saved.rounds_completed
                check_rounds(training.get("rounds", completed), completed)
            self._resumed_rows = rows_until(
                self.folder / METRICS_FILE, saved.rounds_completed
            )
            self._check_rows(saved)
            self._is_over = run_folder.is_over(
                self.folder,
                saved.rounds_completed,
                len(self._resumed_rows),
                self._shown,
            )
            if not self._is_over:
                run_folder.check_writable(self.folder)

    def check_data(self, training: Mapping[str, Any]) -> None:
        """Checks that the run in the folder, if any, is of data that is there now.

        Args:
          training: Those of the arguments of `identify` that say of which data a run
            is, in JSON values. One that the run was saved without is not compared.

        Raises:
          run_folder.OutputDirError: If the data has changed.
        """
        if self._checkpoint is not None:
            was = self._checkpoint.description.get(_TRAINING, {})
            run_folder.check_data(self.folder, was, training)

    @contextlib.contextmanager
    def _closed_on_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = "Choose a folder that can be created and written."
            if self._kept is not None:
                remedy = (
                    f"The run is kept up to round {self._kept}: remove the cause, such "
                    "as a full disk, and start the same run again."
                )
            raise run_folder.refusal(
                self.folder, f"cannot be written: {error}. {remedy}"
            ) from error

    def _check_in_place(self) -> None:
        """Raises if the folder has been moved or replaced since it was opened."""
        if not self._lock.is_in_place():
            raise run_folder.refusal(
                self.folder,
                "has been moved or removed while in use. The run is kept up to round "
                f"{self._kept}: move it back, or start the same run with its new path.",
            )

    @property
    def rows(self) -> Sequence[MetricsRecord]:
        """The rows kept so far."""
        return self._resumed_rows if self._metrics is None else self._metrics.rows

    def _open(self) -> None:
        files.make_folder(self.folder)
        run_folder.own_folder(self.folder, TENSORBOARD_FOLDER)
        self._lock = run_folder.FolderLock(self.folder)
        self._closing.callback(self._lock.close)
        run_folder.check_configuration_file(self.folder)
        try:
            self._checkpoint = checkpoint.load_checkpoint(self.folder / CHECKPOINT_FILE)
        except FileNotFoundError:
            run_folder.check_unused(self.folder)
            # Of a run that was killed before its first checkpoint.
            (self.folder / FROZEN_FILE).unlink(missing_ok=True)
            run_folder.check_writable(self.folder)

    def _check_same_run(
        self, saved: checkpoint.Checkpoint, sections: Sequence[str]
    ) -> None:
        phrases: list[str] = []
        for section in sections:
            was, now = saved.description.get(section, {}), self._description[section]
            if section == _TRAINING:
                now = configuration.as_then(now, was)
            phrases += configuration.differences(was, now)
        run_folder.check_same(self.folder, phrases)

    def _check_rows(self, saved: checkpoint.Checkpoint) -> None:
        """Raises unless the rows are those that the checkpoint was written with."""
        for row in self._resumed_rows:
            self._rows_digest.add(row)
        if saved.description.get(_ROWS, self._rows_digest.hex) != self._rows_digest.hex:
            raise MetricsFileError(
                f"{self.folder / METRICS_FILE} has been changed since the checkpoint "
                "beside it was written. Restore the file, or choose another output_dir."
            )

    def _write_configuration(self) -> None:
        content = {
            "format": run_folder.CONFIGURATION_FORMAT,
            **self._shown,
            "versions": {
                "tensorflow": tf.__version__,
                "tensorflow_federated": tff.__version__,
            },
        }
        text = json.dumps(content, indent=2) + "\n"
        files.replace_file(
            self.folder / CONFIGURATION_FILE, lambda file: file.write(text.encode())
        )

    def resume(
        self, initial_state: Any, hyperparameters: Mapping[str, Any]
    ) -> TrainingState | None:
        """Returns where the run in the folder stopped, and drops what came later.

        Args:
          initial_state: The process's initial state, whose structure the saved
            state must have.
          hyperparameters: The hyperparameters of the initial state, in JSON
            values.

        Returns:
          The training state of the checkpoint; `None` if the run has not begun.

        Raises:
          checkpoint.CheckpointError: If the saved state does not fit.
          run_folder.OutputDirError: If the run had other hyperparameters, or the folder
            cannot be written.
        """
        self._description["hyperparameters"] = hyperparameters
        saved, training_state = self._checkpoint, None
        if saved is not None:
            self._check_same_run(saved, ("hyperparameters",))
            training_state = TrainingState(
                saved.rounds_completed,
                saved.restore(_SERVER_STATE, initial_state),
                saved.description.get(_COHORT, ""),
            )
        self._restore_client_states()
        # Its arrays need not stay in RAM for the whole run.
        self._checkpoint = saved = None
        if not self._is_over:
            with self._explained_errors():
                # First, because it identifies the files of a run.
                self._write_configuration()
                rows = self._resumed_rows
                self._metrics = MetricsFile(self.folder / METRICS_FILE, rows)
                self._closing.callback(self._metrics.close)
        self._kept = 0 if training_state is None else training_state.rounds_completed
        return training_state

    def _restore_client_states(self) -> None:
        """Brings the clients' states to the round of the checkpoint, if any."""
        store, saved = self._client_states, self._checkpoint
        folder = checks.shown(str(self.folder))
        if store is None:
            return
        if saved is None:
            # Those in RAM are kept in the first checkpoint. A store of its own may be
            # that of another run, which would lose them.
            if len(store) and not isinstance(store, InMemoryClientStates):
                raise ClientStatesError(
                    f"client_states holds the states of {len(store)} clients, but "
                    f"output_dir {folder} holds no run of theirs. Begin with an empty "
                    "store, or gather the states into an InMemoryClientStates and give "
                    "the server state that they belong to as initial_state."
                )
        elif isinstance(store, InMemoryClientStates):
            store.load_leaves(saved.leaves.get(_CLIENT_STATES, {}))
        elif _CLIENT_STATES in saved.leaves:
            raise ClientStatesError(
                f"{store} is not where the run in {folder} keeps its clients' states: "
                "its checkpoint holds them. Leave client_states out, or choose another "
                "output_dir."
            )
        else:
            # A checkpoint of an earlier version says nothing; the next one will.
            store.restore(saved.rounds_completed, saved.description.get(_FINGERPRINT))

    def add(self, row: MetricsRecord) -> None:
        """Keeps a row.

        Args:
          row: The row; its column `round` is its number.

        Raises:
          run_folder.OutputDirError: If the metrics cannot be written.
          RuntimeError: If `resume` has not been called.
        """
        if self._metrics is None:
            raise RuntimeError("Call resume before add.")
        self._check_in_place()
        with self._explained_errors():
            self._metrics.append(row)
        self._rows_digest.add(row)

    def save(self, training_state: TrainingState) -> None:
        """Replaces the checkpoint.

        Args:
          training_state: Where the run stands; the rows up to it have been added, and
            at most one that Ctrl-C kept from becoming part of it.

        Raises:
          checkpoint.CheckpointError: If the state cannot be saved.
          ClientStatesError: If the store of the clients' states cannot be written.
          run_folder.OutputDirError: If the checkpoint cannot be written; the old one is
            untouched.
        """
        self._check_in_place()
        with self._explained_errors():
            self._save(training_state)
        self._kept = training_state.rounds_completed

    def _save(self, training_state: TrainingState) -> None:
        if self._metrics is not None:
            self._metrics.sync()
        structures = {_SERVER_STATE: training_state.state}
        description = {
            **self._description,
            _ROWS: self._rows_digest.until(training_state.rounds_completed),
            _COHORT: training_state.cohort_sha256,
        }
        store = self._client_states
        if isinstance(store, InMemoryClientStates):
            structures[_CLIENT_STATES] = store.leaves()
            store = None
        if store is not None:
            description[_FINGERPRINT] = store.commit(training_state.rounds_completed)
        checkpoint.save_checkpoint(
            self.folder / CHECKPOINT_FILE,
            training_state.rounds_completed,
            description,
            structures,
        )
        if store is not None:
            store.prune(training_state.rounds_completed)

    def close(self) -> None:
        """Closes the files and lets other programs use the folder."""
        self._closing.close()
