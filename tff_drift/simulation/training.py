"""Simulated federated training: rounds, callbacks, records, resume."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import tensorflow_federated as tff
import tree
from absl import logging

from tff_drift import checks, compat
from tff_drift.client_states import ClientStates
from tff_drift.simulation import configuration as configurations
from tff_drift.simulation import metrics
from tff_drift.simulation.callbacks import (
    Callback,
    FailureWatch,
    Progress,
    ReleaseRows,
    TrainingRun,
)
from tff_drift.simulation.client_datasets import ClientDatasets
from tff_drift.simulation.output_dir import OutputDir
from tff_drift.simulation.records import Position, Record, RowsOnly
from tff_drift.simulation.results import TrainingResult, build_result
from tff_drift.simulation.rounds import RoundRunner, build_round_runner
from tff_drift.simulation.run_folder import RunFolder
from tff_drift.simulation.sampling import Sampling, build_uniform_sampling
from tff_drift.simulation.traffic import Traffic, model_traffic

# What takes part in a run: TFF's release managers are given its rows.
Participant = Union[Callback, compat.ReleaseManager]
Output = Optional[Union[str, "os.PathLike[str]", OutputDir, Record]]

_PROCESS_MEMBERS = ("initialize", "next", "get_model_weights", "get_hparams")


def run_training(
    process: tff.learning.templates.LearningProcess,
    train: ClientDatasets,
    *,
    rounds: int,
    cohort_size: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    client_states: ClientStates | None = None,
    initial_state: Any = None,
    callbacks: Sequence[Participant] = (),
    output_dir: Output = None,
) -> TrainingResult:
    """Trains for some rounds and resumes an earlier run by itself.

    In every round the sampled cohort's datasets go through `process.next`. Any
    `tff.learning.templates.LearningProcess` of type
    `(<S@SERVER, {B*}@CLIENTS> -> <state=S@SERVER, metrics=M@SERVER>)` works, and
    the `StatefulLearningProcess`es of `tff_drift.algorithms`, whose clients' states
    are kept between the rounds and saved in step with the server state.

    With `output_dir` the run is kept in that folder, see `OutputDir`. A program that
    is killed at any moment and started again with the same arguments goes on from the
    checkpoint, and ends with the same metrics (but for times) and bit-identical
    weights as one that was not killed, given that the process itself is
    deterministic. A finished run returns what it returned before; with more `rounds`
    it is extended.

    The columns of a row, beyond those that `tff_drift.simulation.metrics` names after
    the process's metrics and those of the callbacks:

    * `round`: from 1; the row of the initial model, if a callback measures it, has 0;
    * `cohort_size`: the clients of this round;
    * `bytes_down`, `bytes_up`: what the cohort received and sent;
    * `total_examples`, `total_bytes`: sums over the rounds so far;
    * `seconds`: the wall-clock time of the training.

    Args:
      process: The learning process.
      train: The clients to train on.
      rounds: The number of rounds in all, those of an earlier run included.
      cohort_size: The clients per round, sampled uniformly without replacement;
        needed unless `sampling` is given.
      seed: The seed of the sampling.
      sampling: A function of a round number (from 0) that returns the ids of the
        round's clients; it replaces uniform sampling. For a run that resumes
        identically it must depend on nothing else.
      client_states: Where the clients' states are kept, if the process's clients have
        any: by default in RAM and in the checkpoint. A
        `tff_drift.client_states.DiskClientStates` keeps them on disk; it is left open.
      initial_state: The server state to begin with, or a
        `tff.learning.models.ModelWeights`, which takes the place of the model in the
        process's own initial state; by default that state as it is.
      callbacks: What takes part in the run, see `tff_drift.simulation.callbacks`:
        `PeriodicEvaluation` evaluates the model, `TensorBoard` writes events,
        `SoftInterrupt` minds Ctrl-C. A `FailureWatch` and a `Progress` are added if
        none is given. To a `tff.program.ReleaseManager` among them every row is
        released under its round number.
      output_dir: The folder of the run, as a path or an `OutputDir`; or a `Record` of
        one's own. `None`, the default, writes nothing.

    Returns:
      The result of the whole run, including rounds of earlier programs.

    Raises:
      CheckpointError: If the checkpoint is damaged or does not fit the process.
      ClientStatesError: If the store of the clients' states is damaged, or does not
        belong to the run.
      KeyboardInterrupt: On Ctrl-C; the rounds completed are kept in `output_dir`.
      MetricsFileError: If the metrics file is damaged.
      OutputDirError: If `output_dir` cannot be written, is in use, holds other
        files, or holds a run with another configuration, cohort size, seed, data,
        hyperparameters or settings of callbacks.
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range, `cohort_size` is above the
        number of clients, `rounds` is below the rounds completed, an argument is given
        without the one that it needs, or a callback gives a column that is there.
    """
    _check_process_and_data(process, train)
    checks.check_integer("rounds", rounds)
    choose = _choose_sampling(train, cohort_size, seed, sampling)
    participants = _with_defaults(callbacks)
    runner = build_round_runner(process, train, client_states)
    training = _training_arguments(
        train, rounds, cohort_size, seed, initial_state, participants
    )
    record, rounds_per_checkpoint = _open_record(output_dir, training, runner)
    with contextlib.closing(record):
        loop = _Loop(runner, choose, record, participants, rounds_per_checkpoint)
        return loop.train(process, train, rounds, initial_state)


def _check_process_and_data(process: Any, train: Any) -> None:
    missing = [name for name in _PROCESS_MEMBERS if not hasattr(process, name)]
    if missing:
        raise TypeError(
            "process must be a tff.learning.templates.LearningProcess, such as the "
            f"functions of tff_drift.algorithms build, found {process!r}, which has no "
            f"{missing[0]}."
        )
    if not isinstance(train, ClientDatasets):
        raise TypeError(
            f"train must be a tff_drift.simulation.ClientDatasets, found {train!r}. "
            "ClientDatasets.from_arrays makes one of arrays, from_client_data of TFF's "
            "ClientData."
        )


def _choose_sampling(
    train: ClientDatasets,
    cohort_size: int | None,
    seed: int,
    sampling: Sampling | None,
) -> Sampling:
    if sampling is not None:
        if not callable(sampling):
            raise TypeError(
                f"sampling must be a function of a round number, found {sampling!r}."
            )
        if cohort_size is not None:
            checks.check_integer("cohort_size", cohort_size)
        checks.check_integer("seed", seed, at_least=0)
        return sampling
    if cohort_size is None:
        raise ValueError(
            "cohort_size is None. Give the number of clients per round, or sampling."
        )
    return build_uniform_sampling(train.client_ids, cohort_size, seed)


def _with_defaults(callbacks: Sequence[Participant]) -> list[Callback]:
    """Returns the callbacks of a run, the watch first and the progress last."""
    if isinstance(callbacks, (Callback, compat.ReleaseManager)):
        raise TypeError(f"callbacks must be a list, found {callbacks!r} alone.")
    participants: list[Callback] = []
    for callback in callbacks:
        if isinstance(callback, compat.ReleaseManager):
            callback = ReleaseRows(callback)
        if not isinstance(callback, Callback):
            raise TypeError(
                "callbacks must hold callbacks of tff_drift.simulation.callbacks and "
                f"release managers of tff.program, found {callback!r}."
            )
        participants.append(callback)
    if not any(isinstance(callback, FailureWatch) for callback in participants):
        participants.insert(0, FailureWatch())
    if not any(isinstance(callback, Progress) for callback in participants):
        participants.append(Progress())
    return participants


def _training_arguments(
    train: ClientDatasets,
    rounds: int,
    cohort_size: int | None,
    seed: int,
    initial_state: Any,
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """Returns the arguments that the results depend on, to compare runs."""
    ids = hashlib.sha256("\n".join(train.client_ids).encode()).hexdigest()
    arguments: dict[str, Any] = {
        "rounds": int(rounds),
        "cohort_size": None if cohort_size is None else int(cohort_size),
        "seed": int(seed),
        "train": {
            "clients": len(train.client_ids),
            "client_ids_sha256": ids,
            "batch_size": train.batch_size,
            "epochs": train.epochs,
            "max_examples": train.max_examples,
            "shuffle": train.shuffle,
            "seed": train.seed,
        },
    }
    if initial_state is not None:
        digest = hashlib.sha256()
        for leaf in tree.flatten(initial_state):
            digest.update(np.asarray(leaf).tobytes())
        arguments["initial_state_sha256"] = digest.hexdigest()
    for callback in callbacks:
        arguments.update(callback.settings)
    return configurations.to_json("training", arguments)


def _open_record(
    output_dir: Output, training: Mapping[str, Any], runner: RoundRunner
) -> tuple[Record, int]:
    """Returns where the run is kept, and the rounds from checkpoint to checkpoint."""
    if output_dir is None:
        return RowsOnly(), 1
    if isinstance(output_dir, Record):
        return output_dir, 1
    if not isinstance(output_dir, OutputDir):
        output_dir = OutputDir(output_dir)
    folder = RunFolder(
        output_dir.path,
        user_configuration=configurations.to_json(
            "configuration", output_dir.configuration
        ),
        training=training,
        client_states=runner.client_states,
    )
    return folder, output_dir.rounds_per_checkpoint


class _Loop:
    """The rounds of one program."""

    def __init__(
        self,
        runner: RoundRunner,
        sampling: Sampling,
        record: Record,
        callbacks: Sequence[Callback],
        rounds_per_checkpoint: int,
    ) -> None:
        self._runner = runner
        self._sampling = sampling
        self._record = record
        self._callbacks = callbacks
        self._rounds_per_checkpoint = rounds_per_checkpoint
        self._position = Position(0, None)
        self._result: TrainingResult | None = None
        # The rounds completed of the last checkpoint.
        self._saved = 0

    def train(
        self,
        process: tff.learning.templates.LearningProcess,
        train: ClientDatasets,
        rounds: int,
        initial_state: Any,
    ) -> TrainingResult:
        """Trains from where the record stands to the last round."""
        traffic = model_traffic(process)
        initial_state = _build_initial_state(process, initial_state)
        hyperparameters = metrics.flatten_metrics(process.get_hparams(initial_state))
        position = self._record.resume(initial_state, hyperparameters)
        begins = position is None
        self._position = position or Position(0, initial_state)
        self._saved = self._position.rounds_completed
        if self._saved > rounds:
            raise ValueError(
                f"rounds is {rounds}, but the run in output_dir has completed "
                f"{self._saved}. Ask for at least as many, or choose another "
                "output_dir."
            )
        self._runner.begin(self._position.state)
        run = TrainingRun(
            process,
            train,
            rounds,
            self._runner.client_states,
            self._record,
            lambda: self._position,
        )
        with contextlib.ExitStack() as ending:
            self._start_callbacks(run, begins, ending)
            self._run_rounds(run, traffic)
            self._result = result = build_result(
                run.state,
                process.get_model_weights(run.state),
                self._record.rows,
                run.stop_reason if run.rounds_completed < rounds else None,
            )
        return result

    def _start_callbacks(
        self, run: TrainingRun, begins: bool, ending: contextlib.ExitStack
    ) -> None:
        """Calls `before_training`, keeps round 0, and has `after_training` called."""
        row: metrics.Row = {metrics.ROUND: 0}
        for callback in self._callbacks:
            # Before the call, which may have begun something when it fails.
            ending.callback(self._end, callback)
            _add_columns(row, callback.before_training(run), callback)
        if not begins:
            return
        if len(row) > 1:
            self._record.add(row)
            for callback in self._callbacks:
                callback.after_row(types.MappingProxyType(row))
        # Initial weights may be random: a kill before the first regular checkpoint
        # must not draw others.
        self._record.save(self._position)

    def _end(self, callback: Callback) -> None:
        callback.after_training(self._result)

    def _run_rounds(self, run: TrainingRun, traffic: Traffic) -> None:
        try:
            while run.rounds_completed < run.rounds and run.stop_reason is None:
                self._run_round(run, traffic)
                due = run.rounds_completed % self._rounds_per_checkpoint == 0
                if due or run.rounds_completed == run.rounds or run.stop_reason:
                    self._save(run)
        except KeyboardInterrupt:
            # Else the clients' states are of a later round than the server's.
            if self._runner.is_in_step(run.state):
                self._save(run)
            self._tell_interrupted(run)
            raise

    def _save(self, run: TrainingRun) -> None:
        if run.rounds_completed > self._saved:
            self._record.save(self._position)
            self._saved = run.rounds_completed

    def _tell_interrupted(self, run: TrainingRun) -> None:
        if run.folder is None:
            logging.warning("Interrupted. Without output_dir nothing is kept.")
        else:
            logging.warning(
                "Interrupted. Start the same run again to go on after round %d from "
                "%s.",
                self._saved,
                run.folder,
            )

    def _run_round(self, run: TrainingRun, traffic: Traffic) -> None:
        """Trains one round, and keeps its row and position."""
        round_number = run.rounds_completed
        start = time.perf_counter()
        cohort = self._sampling(round_number)
        state, found = self._runner.run(run.state, cohort, round_number)
        seconds = metrics.seconds_since(start)
        row: metrics.Row = {
            metrics.ROUND: round_number + 1,
            **metrics.training_columns(found),
            metrics.SECONDS: seconds,
        }
        _count(run, traffic, cohort, row)
        view = types.MappingProxyType(row)
        for callback in self._callbacks:
            columns = callback.after_round(round_number + 1, state, view)
            _add_columns(row, columns, callback)
        if any(name.startswith(metrics.TEST_PREFIX) for name in row):
            for callback in self._callbacks:
                columns = callback.after_evaluation(round_number + 1, state, view)
                _add_columns(row, columns, callback)
        # The row comes first: a position without its row must not be saved.
        self._record.add(row)
        self._position = Position(round_number + 1, state)
        for callback in self._callbacks:
            callback.after_row(view)


def _build_initial_state(
    process: tff.learning.templates.LearningProcess, initial_state: Any
) -> Any:
    if initial_state is None:
        return process.initialize()
    if isinstance(initial_state, tff.learning.models.ModelWeights):
        return process.set_model_weights(process.initialize(), initial_state)
    return initial_state


def _add_columns(
    row: metrics.Row, columns: Mapping[str, Any] | None, callback: Callback
) -> None:
    """Adds to a row the columns that a callback returned."""
    if columns is None:
        return
    name = type(callback).__name__
    if not isinstance(columns, Mapping):
        raise TypeError(
            f"callbacks: {name} returned {columns!r}. Return a mapping of numbers by "
            "column name, or None."
        )
    for column, value in metrics.flatten_metrics(columns).items():
        if column in row:
            raise ValueError(
                f"callbacks: {name} returned the column {column!r}, which the row has "
                "already. Choose another name."
            )
        row[column] = value


def _count(
    run: TrainingRun, traffic: Traffic, cohort: Sequence[str], row: metrics.Row
) -> None:
    """Adds the round's examples and traffic to its row."""
    previous = run.rows[-1] if run.rows else {}
    examples = row.get("train_num_examples")
    if examples is None:
        examples = run.train.epochs * sum(map(run.train.num_examples, cohort))
    bytes_down = traffic.bytes_down * len(cohort)
    bytes_up = traffic.bytes_up * len(cohort)
    row["cohort_size"] = len(cohort)
    row["bytes_down"] = bytes_down
    row["bytes_up"] = bytes_up
    row["total_examples"] = previous.get("total_examples", 0) + int(examples)
    row["total_bytes"] = previous.get("total_bytes", 0) + bytes_down + bytes_up
