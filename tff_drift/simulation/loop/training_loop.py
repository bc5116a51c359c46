"""The rounds of a run, with its callbacks and its store."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
from absl import logging

from tff_drift import checks
from tff_drift.client_states import ClientStates, ClientStatesError
from tff_drift.models import shared_values
from tff_drift.simulation.cohorts import Cohort, run_round
from tff_drift.simulation.data import label_errors
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import Described, Sampling
from tff_drift.simulation.loop import identity
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.loop.interrupts import Interrupts
from tff_drift.simulation.loop.traffic import Traffic, model_traffic
from tff_drift.simulation.records import failures, metrics
from tff_drift.simulation.records.results import TrainingResult, build_result
from tff_drift.simulation.records.run_directory import RunDirectory
from tff_drift.simulation.records.run_folder import OutputDirError
from tff_drift.simulation.records.run_store import (
    RunStore,
    TrainingState,
    check_rounds,
)


class TrainingLoop:
    """The rounds of one program."""

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        client_states: ClientStates | None,
        sampling: Sampling,
        run_store: RunStore,
        callbacks: Sequence[Callback],
        rounds_per_checkpoint: int,
    ) -> None:
        # A `ProcessWithClientStates`, if there is a store.
        self._process: Any = process
        self._client_states = client_states
        self._sampling = sampling
        self._run_store = run_store
        self._callbacks = callbacks
        self._rounds_per_checkpoint = rounds_per_checkpoint
        self._training_state = TrainingState(0, None)
        self._result: TrainingResult | None = None
        # The rounds completed of the last checkpoint.
        self._saved = 0
        # Of a round yet to come, if it has been sampled ahead.
        self._next_cohort: Sequence[str] | None = None

    def train(
        self,
        process: tff.learning.templates.LearningProcess,
        train: ClientDatasets,
        rounds: int,
        initial_state: Any,
        initial_weights: tff.learning.models.ModelWeights | None,
        settings: Mapping[str, Any],
    ) -> TrainingResult:
        """Trains from where the store stands to the last round."""
        traffic = model_traffic(process)
        initial_state_is_given = initial_state is not None
        if initial_state is None:
            initial_state = process.initialize()
            if initial_weights is not None:
                initial_state = process.set_model_weights(
                    initial_state, initial_weights
                )
        hyperparameters = metrics.flatten_metrics(
            _hyperparameters(process, initial_state)
        )
        initial_state = shared_values.shared(initial_state)
        training_state = self._run_store.resume(initial_state, hyperparameters)
        if training_state is None:
            self._check_store_is_new(initial_state_is_given)
        elif not isinstance(self._run_store, RunDirectory):
            self._check_store_is_at(training_state.rounds_completed)
        if training_state is not None:
            state = shared_values.shared(training_state.state)
            training_state = dataclasses.replace(training_state, state=state)
        self._training_state = training_state or TrainingState(0, initial_state)
        self._saved = self._training_state.rounds_completed
        check_rounds(rounds, self._saved)
        self._check_sampling()
        if self._client_states is not None:
            self._process.begin(self._training_state.state)
        run = TrainingRun(
            process,
            train,
            rounds,
            self._client_states,
            settings,
            self._run_store,
            lambda: self._training_state,
        )
        with Interrupts() as interrupts, contextlib.ExitStack() as ending:
            self._start_callbacks(run, training_state is None, ending)
            self._run_rounds(run, traffic, interrupts)
            self._result = result = build_result(
                run.state,
                process.get_model_weights(run.state),
                self._run_store.rows,
                run.stop_reason if run.rounds_completed < rounds else None,
            )
        return result

    def _check_sampling(self) -> None:
        """Raises unless the last round's clients are sampled once more."""
        kept, last = self._training_state.cohort_sha256, self._saved - 1
        if not kept or last < 0:
            return
        cohort = self._sample(last)
        if identity.cohort_digest(cohort) != kept:
            raise OutputDirError(
                f"sampling returns other clients for round {last} than the run in "
                "output_dir had. Give its sampling, which must depend on the round "
                "number alone, or choose another output_dir."
            )

    def _check_store_is_new(self, initial_state_is_given: bool) -> None:
        store = self._client_states
        if store is not None and len(store) and not initial_state_is_given:
            raise ClientStatesError(
                f"client_states has {len(store)} clients' states. Begin with an empty "
                "store, or give the server state that they belong to as initial_state."
            )

    def _check_store_is_at(self, rounds: int) -> None:
        """Raises if the clients' states are not of the round that a run goes on from.

        A folder brings the store there itself; of what others keep only this is known.
        """
        store = self._client_states
        if store is None or not rounds:
            return
        held = max(store.versions, default=rounds if len(store) else 0)
        if held != rounds:
            raise ClientStatesError(
                f"client_states holds the states of {len(store)} clients after {held} "
                f"rounds, but the run goes on after {rounds}. Have output_dir's resume "
                "restore them."
            )

    def _start_callbacks(
        self, run: TrainingRun, begins: bool, ending: contextlib.ExitStack
    ) -> None:
        """Calls `before_training`, keeps round 0, and has `after_training` called."""
        row: metrics.MetricsRecord = {metrics.ROUND: 0}
        for callback in self._callbacks:
            # Before the call, which may have begun something when it fails.
            ending.callback(self._end, callback)
            _add_columns(row, callback.before_training(run), callback)
        if not begins:
            return
        if len(row) > 1:
            self._run_store.add(row)
            for callback in self._callbacks:
                callback.after_row(types.MappingProxyType(row))
        # Initial weights may be random: a kill before the first regular checkpoint
        # must not draw others.
        self._run_store.save(self._training_state)

    def _end(self, callback: Callback) -> None:
        callback.after_training(self._result)

    def _run_rounds(
        self, run: TrainingRun, traffic: Traffic, interrupts: Interrupts
    ) -> None:
        try:
            interrupts.check()
            while run.rounds_completed < run.rounds and run.stop_reason is None:
                self._run_round(run, traffic)
                interrupts.check()
                due = run.rounds_completed % self._rounds_per_checkpoint == 0
                if due or run.rounds_completed == run.rounds or run.stop_reason:
                    self._save(run)
        except (KeyboardInterrupt, Exception) as error:
            # Else the clients' states are of a later round than the server's.
            if self._client_states is None or self._process.is_in_step(run.state):
                # What has failed may be the saving itself: the first error counts.
                with contextlib.suppress(OutputDirError, ClientStatesError):
                    self._save(run)
            if isinstance(error, KeyboardInterrupt):
                self._tell_interrupted(run)
            raise

    def _save(self, run: TrainingRun) -> None:
        if run.rounds_completed > self._saved:
            self._run_store.save(self._training_state)
            self._saved = run.rounds_completed

    def _tell_interrupted(self, run: TrainingRun) -> None:
        kept = "Without output_dir nothing is kept."
        if run.folder is not None:
            place = f"round {self._saved} from {run.folder}"
            kept = f"Start the same run again to continue after {place}."
        logging.warning("Interrupted. %s", kept)

    def _run_round(self, run: TrainingRun, traffic: Traffic) -> None:
        """Trains one round, and keeps its metrics and its training state."""
        round_number = run.rounds_completed
        start = time.perf_counter()
        cohort = self._next_cohort or self._sample(round_number)
        self._next_cohort = None
        if round_number + 1 < run.rounds:
            self._sample_ahead(round_number + 1)
        state, found = self._train_on(run, cohort)
        seconds = metrics.seconds_since(start)
        row: metrics.MetricsRecord = {
            metrics.ROUND: round_number + 1,
            **metrics.training_columns(found),
            metrics.SECONDS: seconds,
        }
        _count(run, traffic, cohort, row)
        if failures.nobody_counted(row):
            row = metrics.of_nobody(row)
        run.cohort = tuple(cohort)
        view = types.MappingProxyType(row)
        for callback in self._callbacks:
            columns = callback.after_round(round_number + 1, state, view)
            _add_columns(row, columns, callback)
        if any(name.startswith(metrics.TEST_PREFIX) for name in row):
            for callback in self._callbacks:
                columns = callback.after_evaluation(round_number + 1, state, view)
                _add_columns(row, columns, callback)
        # The row comes first: a training state without its row must not be saved.
        self._run_store.add(row)
        self._training_state = TrainingState(
            round_number + 1, state, identity.cohort_digest(cohort)
        )
        for callback in self._callbacks:
            callback.after_row(view)

    def _train_on(self, run: TrainingRun, cohort: Sequence[str]) -> tuple[Any, Any]:
        """Returns the next server state, and the metrics of the round."""
        number = run.rounds_completed
        if self._client_states is not None and len(set(cohort)) < len(cohort):
            raise ValueError(
                f"sampling returned a client more than once in round {number}: "
                f"{list(cohort)}. A client has one state: return each id once."
            )
        ahead = self._next_cohort or ()
        clients = Cohort(number, cohort, run.train, next_clients=ahead)
        with label_errors.naming_bad_labels(run.train, cohort):
            if self._client_states is None:
                output = run_round(self._process, run.state, clients)
            else:
                output = self._process.run_round(run.state, clients)
        return output.state, output.metrics

    def _sample(self, round_number: int) -> Sequence[str]:
        cohort: Any = self._sampling(round_number)
        if isinstance(cohort, np.ndarray):
            cohort = cohort.tolist()
        name = f"what sampling returns in round {round_number}"
        checks.check_list(name, cohort, "a list of client ids")
        return cohort

    def _sample_ahead(self, round_number: int) -> None:
        """Samples a round's clients before it begins: a context may load them.

        Another sampling than one of the library's may depend on what comes before.
        """
        sampling = self._sampling
        if isinstance(sampling, Described) and sampling.is_described_whole:
            self._next_cohort = self._sample(round_number)


def _hyperparameters(
    process: tff.learning.templates.LearningProcess, initial_state: Any
) -> Any:
    try:
        return process.get_hparams(initial_state)
    except TypeError as error:
        found = type(initial_state).__name__
        raise TypeError(
            f"initial_state must be a server state of process, found {found}. Give the "
            "weights of a model as initial_weights."
        ) from error


def _add_columns(
    row: metrics.MetricsRecord, columns: Mapping[str, Any] | None, callback: Callback
) -> None:
    """Adds to a row the columns that a callback returned."""
    if columns is None:
        return
    who = f"callbacks: {type(callback).__name__}"
    what = "a mapping of numbers by column name, or None"
    checks.check_instance(f"{who}: what it returns", columns, Mapping, what)
    for column, value in metrics.columns_of(who, columns).items():
        if column in row and column == metrics.SECONDS_EVALUATION:
            # Of several evaluations, to the microsecond as each of them.
            value = round(row[column] + value, 6)
        elif column in row:
            raise ValueError(
                f"{who} returned the column {checks.shown(column)}, which the row has "
                "already. Choose another name."
            )
        row[column] = value


def _count(
    run: TrainingRun,
    traffic: Traffic,
    cohort: Sequence[str],
    row: metrics.MetricsRecord,
) -> None:
    """Adds the round's examples and traffic to its row."""
    previous = run.rows[-1] if run.rows else {}
    examples = row.get("train_num_examples")
    if examples is None:
        examples = sum(map(run.train.num_examples_per_round, cohort))
    bytes_down = traffic.bytes_down * len(cohort)
    bytes_up = traffic.bytes_up * len(cohort)
    row["cohort_size"] = len(cohort)
    row["bytes_down"] = bytes_down
    row["bytes_up"] = bytes_up
    row["total_examples"] = previous.get("total_examples", 0) + int(examples)
    row["total_bytes"] = previous.get("total_bytes", 0) + bytes_down + bytes_up
