"""Simulated federated training: rounds, evaluation, records, resume."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_federated as tff
from absl import logging

from tff_drift import checks
from tff_drift.client_states import ClientStates
from tff_drift.simulation import configuration as configurations
from tff_drift.simulation import failures, metrics
from tff_drift.simulation.client_datasets import ClientDatasets
from tff_drift.simulation.evaluation import Evaluation
from tff_drift.simulation.progress import Progress, build_progress
from tff_drift.simulation.records import MemoryRecord, Position, Record
from tff_drift.simulation.rounds import RoundRunner, build_round_runner
from tff_drift.simulation.run_folder import RunFolder
from tff_drift.simulation.sampling import Sampling, build_uniform_sampling
from tff_drift.simulation.traffic import Traffic, model_traffic


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a whole run amounts to.

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


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """A run at its end.

    Attributes:
      state: The server state, to go on with `process.next`.
      model_weights: The model, as `process.get_model_weights` gives it.
      rows: One mapping per round, see `run_training`.
      failures: The rounds in which training broke down.
      totals: Examples, traffic and time of the whole run.
    """

    state: Any
    model_weights: Any
    rows: Sequence[metrics.Row]
    failures: Sequence[failures.Failure]
    totals: Totals


@dataclasses.dataclass(frozen=True)
class _Run:
    """What stays the same from round to round."""

    process: tff.learning.templates.LearningProcess
    train: ClientDatasets
    runner: RoundRunner
    sampling: Sampling
    rounds: int
    evaluation: Evaluation | None
    rounds_per_evaluation: int
    rounds_per_checkpoint: int
    accuracy_metric: str
    traffic: Traffic
    measure_mismatch: bool


def run_training(
    process: tff.learning.templates.LearningProcess,
    train: ClientDatasets,
    *,
    rounds: int,
    cohort_size: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    client_states: ClientStates | None = None,
    evaluation: Evaluation | None = None,
    rounds_per_evaluation: int = 10,
    accuracy_metric: str = "accuracy",
    output_dir: str | os.PathLike[str] | None = None,
    rounds_per_checkpoint: int = 10,
    configuration: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    tensorboard: bool = False,
    measure_mismatch: bool = False,
) -> TrainingResult:
    """Trains for some rounds and resumes an earlier run by itself.

    In every round the sampled cohort's datasets go through `process.next`. Any
    `tff.learning.templates.LearningProcess` of type
    `(<S@SERVER, {B*}@CLIENTS> -> <state=S@SERVER, metrics=M@SERVER>)` works, and
    the `StatefulLearningProcess`es of `tff_drift.algorithms`, whose clients' memory
    is kept between the rounds and saved in step with the server state.

    With `output_dir` the run is kept in that folder: `config.json` says what the
    run is, `metrics.csv` has one row per round, `checkpoint.npz` holds the server
    state of a round. A program that is killed at any moment and started again with
    the same arguments goes on from the checkpoint, and ends with the same metrics
    (but for times) and bit-identical weights as one that was not killed, given
    that the process itself is deterministic. A finished run returns what it
    returned before; with more `rounds` it is extended.

    The columns of a row, beyond those that `tff_drift.simulation.metrics` names
    after the process's and the evaluation's metrics:

    * `round`: from 1; an evaluation of the initial model has round 0;
    * `cohort_size`: the clients of this round;
    * `bytes_down`, `bytes_up`: what the cohort received and sent;
    * `total_examples`, `total_bytes`: sums over the rounds so far;
    * `catastrophic_failure`, `non_finite`: 1 if training broke down in this round,
      see `tff_drift.simulation.failures`;
    * `seconds`, `seconds_evaluation`: wall-clock times.

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
      client_states: Where the memory of clients is kept, if the process's clients
        have any: by default in the program's memory and in the checkpoint. A
        `tff_drift.client_states.DiskClientStates` keeps it on disk; it is left open.
      evaluation: A function of the model weights that returns metrics, such as
        `build_evaluation` returns.
      rounds_per_evaluation: The rounds from one evaluation to the next. The
        initial and the final model are always evaluated.
      accuracy_metric: The name of the training metric that is shown and watched
        for catastrophic failures. A model may have none of this name.
      output_dir: The folder of the run; `None`, the default, writes nothing.
      rounds_per_checkpoint: The rounds from one checkpoint to the next; a kill
        loses at most so many. The last round always makes a checkpoint.
      configuration: What the run is, in JSON values by field names (algorithm,
        task, rates, ...): written to `config.json`, and compared when the run is
        resumed. A field `rounds` may change.
      progress: `True` draws a progress bar, `False` shows nothing; by default a
        bar is drawn on a terminal or in a notebook.
      tensorboard: Whether to write the rows to `output_dir` for TensorBoard too,
        in the subfolder `tensorboard`.
      measure_mismatch: Whether rows of rounds that end with an evaluation have
        `control_variate_mismatch`, see the function of that name. It reads the
        memory of all clients seen, and changes no result.

    Returns:
      The result of the whole run, including rounds of earlier programs.

    Raises:
      CheckpointError: If the checkpoint is damaged or does not fit the process.
      ClientStatesError: If the store of the clients' memory is damaged, or does not
        belong to the run.
      KeyboardInterrupt: On Ctrl-C; the rounds completed are kept in `output_dir`.
      MetricsFileError: If the metrics file is damaged.
      OutputDirError: If `output_dir` cannot be written, is in use, holds other
        files, or holds a run with another configuration, cohort size, seed, data
        or hyperparameters.
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range, `cohort_size` is above the
        number of clients, `rounds` is below the rounds completed, or an argument
        is given without the one that it needs.
    """
    checks.check_integer("rounds", rounds)
    checks.check_integer("rounds_per_evaluation", rounds_per_evaluation)
    checks.check_integer("rounds_per_checkpoint", rounds_per_checkpoint)
    if tensorboard and output_dir is None:
        raise ValueError("tensorboard is True, but output_dir is None. Give a folder.")
    arguments = _training_arguments(
        train, rounds, cohort_size, seed, rounds_per_evaluation, accuracy_metric
    )
    runner = build_round_runner(process, train, client_states)
    run = _Run(
        process=process,
        train=train,
        runner=runner,
        sampling=_choose_sampling(train, cohort_size, seed, sampling),
        rounds=rounds,
        evaluation=evaluation,
        rounds_per_evaluation=rounds_per_evaluation,
        rounds_per_checkpoint=rounds_per_checkpoint,
        accuracy_metric=accuracy_metric,
        traffic=model_traffic(process),
        measure_mismatch=measure_mismatch,
    )
    record: Record = MemoryRecord()
    user_configuration = configurations.to_json("configuration", configuration or {})
    if output_dir is not None:
        record = RunFolder(
            output_dir,
            user_configuration=user_configuration,
            training=arguments,
            client_states=runner.client_states,
            tensorboard=tensorboard,
        )
    with contextlib.closing(record):
        position = _train(
            run, record, build_progress(progress, accuracy_metric=accuracy_metric)
        )
        return TrainingResult(
            state=position.state,
            model_weights=process.get_model_weights(position.state),
            rows=tuple(record.rows),
            failures=tuple(failures.failures_of(record.rows)),
            totals=_totals(record.rows),
        )


def _training_arguments(
    train: ClientDatasets,
    rounds: int,
    cohort_size: int | None,
    seed: int,
    rounds_per_evaluation: int,
    accuracy_metric: str,
) -> dict[str, Any]:
    """Returns the arguments that the results depend on, to compare runs."""
    ids = hashlib.sha256("\n".join(train.client_ids).encode()).hexdigest()
    arguments = {
        "rounds": int(rounds),
        "cohort_size": None if cohort_size is None else int(cohort_size),
        "seed": int(seed),
        "rounds_per_evaluation": int(rounds_per_evaluation),
        "accuracy_metric": accuracy_metric,
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
    return configurations.to_json("training", arguments)


def _choose_sampling(
    train: ClientDatasets,
    cohort_size: int | None,
    seed: int,
    sampling: Sampling | None,
) -> Sampling:
    if sampling is not None:
        return sampling
    if cohort_size is None:
        raise ValueError(
            "cohort_size is None. Give the number of clients per round, or sampling."
        )
    return build_uniform_sampling(train.client_ids, cohort_size, seed)


def _train(run: _Run, record: Record, progress: Progress) -> Position:
    """Trains from where the record stands to the last round."""
    position = _begin_or_resume(run, record)
    saved = position.rounds_completed
    progress.start(run.rounds, position.rounds_completed)
    try:
        while position.rounds_completed < run.rounds:
            state, row = _run_round(run, position, record.rows)
            record.add(row)
            # The row comes first: a position without its row must not be saved.
            position = Position(position.rounds_completed + 1, state)
            progress.update(position.rounds_completed, row)
            if _is_due(run, position.rounds_completed, run.rounds_per_checkpoint):
                record.save(position)
                saved = position.rounds_completed
    except KeyboardInterrupt:
        progress.stop()
        if _is_in_step(run, position) and position.rounds_completed > saved:
            record.save(position)
        _tell_interrupted(record, position)
        raise
    finally:
        progress.stop()
    return position


def _is_in_step(run: _Run, position: Position) -> bool:
    """Whether the clients' memory is of the same round as the server state."""
    return (
        run.runner.client_states is None
        or run.runner.rounds_kept == position.rounds_completed
    )


def _is_due(run: _Run, rounds_completed: int, every: int) -> bool:
    return rounds_completed % every == 0 or rounds_completed == run.rounds


def _tell_interrupted(record: Record, position: Position) -> None:
    if record.folder is None:
        logging.warning("Interrupted. Without output_dir nothing is kept.")
    else:
        logging.warning(
            "Interrupted. Start the same run again to go on after round %d from %s.",
            position.rounds_completed,
            record.folder,
        )


def _begin_or_resume(run: _Run, record: Record) -> Position:
    """Returns where an earlier run stopped, or the initial, saved position."""
    initial_state = run.process.initialize()
    hyperparameters = metrics.flatten_metrics(run.process.get_hparams(initial_state))
    position = record.resume(initial_state, hyperparameters)
    if position is None:
        position = Position(0, initial_state)
        if run.evaluation is not None:
            record.add({metrics.ROUND: 0, **_evaluate(run, initial_state)})
        # Initial weights may be random: a kill before the first regular checkpoint
        # must not draw others.
        record.save(position)
    run.runner.begin(position.rounds_completed)
    if position.rounds_completed > run.rounds:
        raise ValueError(
            f"rounds is {run.rounds}, but the run in output_dir has completed "
            f"{position.rounds_completed}. Ask for at least as many, or choose another "
            "output_dir."
        )
    return position


def _run_round(
    run: _Run, position: Position, rows: Sequence[metrics.Row]
) -> tuple[Any, metrics.Row]:
    """Trains one round; returns the new state and the round's row."""
    round_number = position.rounds_completed
    previous = rows[-1] if rows else {}
    start = time.perf_counter()
    cohort = run.sampling(round_number)
    state, round_metrics = run.runner.run(position.state, cohort, round_number)
    seconds = _seconds_since(start)
    row: metrics.Row = {
        metrics.ROUND: round_number + 1,
        **metrics.training_columns(round_metrics),
        metrics.SECONDS: seconds,
    }
    _count(run, cohort, previous, row)
    _watch(run, state, previous, row)
    if _is_due(run, round_number + 1, run.rounds_per_evaluation):
        if run.measure_mismatch:
            row.update(run.runner.mismatch(state))
        row.update(_evaluate(run, state))
    return state, row


def _evaluate(run: _Run, state: Any) -> metrics.Row:
    """Returns the columns of an evaluation, none if the run has no evaluation."""
    if run.evaluation is None:
        return {}
    start = time.perf_counter()
    columns = metrics.evaluation_columns(
        run.evaluation(run.process.get_model_weights(state))
    )
    columns[metrics.SECONDS_EVALUATION] = _seconds_since(start)
    return columns


def _seconds_since(start: float) -> float:
    return round(time.perf_counter() - start, 6)


def _count(
    run: _Run, cohort: Sequence[str], previous: metrics.Row, row: metrics.Row
) -> None:
    """Adds the round's examples and traffic to its row."""
    examples = row.get("train_num_examples")
    if examples is None:
        examples = run.train.epochs * sum(map(run.train.num_examples, cohort))
    bytes_down = run.traffic.bytes_down * len(cohort)
    bytes_up = run.traffic.bytes_up * len(cohort)
    row["cohort_size"] = len(cohort)
    row["bytes_down"] = bytes_down
    row["bytes_up"] = bytes_up
    row["total_examples"] = previous.get("total_examples", 0) + int(examples)
    row["total_bytes"] = previous.get("total_bytes", 0) + bytes_down + bytes_up


def _watch(run: _Run, state: Any, previous: metrics.Row, row: metrics.Row) -> None:
    """Adds to the row whether training broke down, and warns."""
    accuracy = metrics.TRAIN_PREFIX + run.accuracy_metric
    # Only the standard state of a learning process shows its model without a
    # computation; the model that is deployed is made of this one.
    weights = getattr(state, "global_model_weights", ())
    row[failures.CATASTROPHIC_FAILURE] = int(
        failures.is_catastrophic(previous.get(accuracy), row.get(accuracy))
    )
    row[failures.NON_FINITE] = int(
        failures.is_non_finite(row.get(f"{metrics.TRAIN_PREFIX}loss"), weights)
    )
    for failure in failures.failures_of([row]):
        # A model that is not finite stays so: one warning is enough.
        if not previous.get(failure.kind):
            logging.warning("%s", failure)


def _totals(rows: Sequence[metrics.Row]) -> Totals:
    def total(column: str) -> Any:
        return sum(row.get(column, 0) for row in rows)

    return Totals(
        rounds=int(max((row[metrics.ROUND] for row in rows), default=0)),
        examples=int(rows[-1].get("total_examples", 0)) if rows else 0,
        bytes_down=total("bytes_down"),
        bytes_up=total("bytes_up"),
        seconds=float(total(metrics.SECONDS)),
        seconds_evaluation=float(total(metrics.SECONDS_EVALUATION)),
    )
