"""Runs, from their settings to the files in their folders."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from experiments import terminal
from experiments.analysis import style
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.flag import TASK
from experiments.flags.settings import RunSettings
from experiments.reports import plots, results, writing
from experiments.reports.summary import describe
from experiments.training import (
    cohorts,
    contexts,
    data_identity,
    one_run,
    participants,
    processes,
    run_folders,
    user_callbacks,
)
from tff_drift import (
    algorithms,
    client_states,
    compat,
    execution,
    files,
    models,
    simulation,
)
from tff_drift.simulation import callbacks
from tff_drift.simulation.records import run_directory

# The flags for what only takes part in training.
_IN_TRAINING = ("callbacks", "tensorboard", "measure_mismatch")
# What validation raises, with a message meant for the user.
_BAD_INPUT = (OSError, TypeError, ValueError)
# What ends a run for reasons outside the program, with such a message.
_TROUBLE = (
    client_states.ClientStatesError,
    execution.WorkerError,
    simulation.CheckpointError,
    simulation.MetricsFileError,
    simulation.OutputDirError,
    tasks.DataError,
)


@functools.lru_cache(maxsize=2)
def _load(
    name: str, cache_dir: str | None, seed: int, options: tuple[tuple[str, Any], ...]
) -> tasks.Task:
    return tasks.load(name, cache_dir=cache_dir, seed=seed, **dict(options))


def forget_tasks() -> None:
    """Has the next run load its task anew."""
    _load.cache_clear()


def load_task(settings: RunSettings) -> tasks.Task:
    """Loads the task of a run; runs that follow one another share it.

    Args:
      settings: The run.

    Returns:
      The task, with the data that the run's algorithm has clients train on.

    Raises:
      OSError: If its data is missing.
      TypeError: If an option has the wrong type.
      ValueError: If an option is out of its range, or the data is damaged.
    """
    task = load_clients(settings)
    return dataclasses.replace(task, train=processes.training_data(settings, task))


def check_data(settings: RunSettings) -> None:
    """Loads the task of a run, to know whether it can be had.

    Args:
      settings: The run.

    Raises:
      UserError: If its data is missing or damaged, or an option is out of its range.
    """
    with as_user_errors(*_BAD_INPUT):
        load_clients(settings)


def load_clients(settings: RunSettings) -> tasks.Task:
    """Loads the task of a run with its clients as they are.

    Args:
      settings: The run.

    Returns:
      The task; `load_task`, which raises what this does, makes of its data what the
      run's algorithm has clients train on.
    """
    return _load(
        settings.task,
        settings.circumstances["cache_dir"],
        settings.seed,
        tuple(settings.options[TASK].items()),
    )


class Runs:
    """The runs of a command, all checked before the first one trains.

    Attributes:
      settings: The runs.
    """

    def __init__(
        self,
        settings: Sequence[RunSettings],
        further: Callable[[], Sequence[callbacks.Callback]] = tuple,
        load: Callable[[RunSettings], tasks.Task] = load_task,
    ) -> None:
        """Checks the runs.

        Args:
          settings: The runs, of one command.
          further: Returns callbacks for a run beyond those that its flags ask for.
          load: Loads the task of a run.

        Raises:
          UserError: If data is missing, a setting is out of its range, or a folder
            cannot be used.
        """
        self.settings = tuple(settings)
        self._further = further
        self._load = load
        self._finished: dict[RunSettings, results.Result] = {}
        self._interrupt = callbacks.SoftInterrupt()
        self._processes: dict[RunSettings, tff.learning.templates.LearningProcess] = {}
        users = self.settings[0].circumstances["callbacks"]
        self._users_callbacks = user_callbacks.load(users or ())
        participants.check_trackers(self.settings[0].circumstances["track"])
        with as_user_errors(*_BAD_INPUT):
            contexts.set_execution_context(
                self.settings[0].configuration["execution"],
                self.settings[0].configuration["clients_per_round"],
                self.settings[0].circumstances,
            )
            data = {}
            for run in self.settings:
                task = self._load(run)
                check_cohort(run, task)
                # Unlike a path's own method, it takes any path.
                if os.path.exists(run.folder / run_directory.CHECKPOINT_FILE):
                    data[run] = data_identity.data_arguments(run, task)
            for run in self.settings:
                run_folders.check_folder(run, data.get(run, {}))
                finished = run_folders.read_finished(run)
                if finished is not None:
                    self._finished[run] = finished
            self._build_one_of_each()

    def _build_one_of_each(self) -> None:
        """Builds the first unfinished run of each label, which can then begin.

        A label's runs differ in their seeds alone: where one can be built, all can.
        """
        built = set()
        for run in self.settings:
            if run not in self._finished and run.label not in built:
                task = self._load(run)
                cohorts.build_cohorts(run.configuration, task.train)
                with terminal.saying(f"building {run.label}"):
                    process = processes.build_process(run, task)
                given = run.configuration["initial_weights"]
                if given is not None:
                    models.initial_weights_for(process, given)
                self._processes[run] = process
                built.add(run.label)

    def finished_before(self, settings: RunSettings) -> str:
        """Returns what to say of a run that was finished before, nothing of others.

        Args:
          settings: One of the runs.
        """
        if settings not in self._finished:
            return ""
        changed = run_folders.changed_circumstances(settings)
        idle = [
            f"--{name}"
            for name in _IN_TRAINING
            if name in changed and settings.circumstances[name]
        ]
        if not idle:
            return "finished before"
        return (
            f"finished before without {' and '.join(idle)}; for that, give another "
            "--output_dir"
        )

    def execute(
        self, settings: RunSettings, progress: bool | None = None
    ) -> results.Result:
        """Trains a run, from where its folder stands, and writes its files.

        Args:
          settings: One of the runs. Of one that was finished before nothing is
            written, unless its figure is gone.
          progress: As for `tff_drift.simulation.run_training`.

        Returns:
          The result.

        Raises:
          KeyboardInterrupt: On Ctrl-C; the rounds completed are kept.
          UserError: If the folder or the worker fails.
        """
        # In a comparison it may have come too late for the run before.
        self._interrupt.check()
        curves = settings.folder / plots.CURVES_FILE
        result = self._finished.get(settings)
        if result is not None:
            if not files.is_file(curves):
                style.save(plots.draw_run(result), curves)
            for tracker in participants.trackers(settings.circumstances["track"]):
                # It may have failed when the run was trained, or have been elsewhere.
                with as_user_errors(*_BAD_INPUT), participants.naming_trackers():
                    tracker.track_folder(settings.folder)
        else:
            task = self._load(settings)
            process = self._processes.pop(settings, None)
            if process is None:
                process = processes.build_process(settings, task)
            with as_user_errors(*_TROUBLE), participants.naming_trackers():
                taking_part = [
                    *participants.build_callbacks(settings, task, progress),
                    *self._further(),
                    *(build() for build in self._users_callbacks),
                    self._interrupt,
                ]
                training = one_run.train(
                    settings, task, process, taking_part, self._interrupt
                )
            summary = results.summarize(
                settings,
                training,
                len(task.train),
                _client_state_bytes(process),
                _server_state_bytes(process),
            )
            result = results.Result(settings, training.rows, summary)
            style.save(plots.draw_run(result), curves)
            # Last, because a run with a summary is finished.
            writing.write_json(settings.folder / results.SUMMARY_FILE, summary)
        return result


def train(settings: RunSettings) -> None:
    """Trains one run and prints what came of it.

    Args:
      settings: The run.

    Raises:
      KeyboardInterrupt: On Ctrl-C; the rounds completed are kept.
      UserError: As `Runs` and `Runs.execute` raise it.
    """
    checked = Runs([settings])
    if note := checked.finished_before(settings):
        print(f"{settings.folder}: {note}", file=sys.stderr)
    print(describe(checked.execute(settings)))
    print(
        f"Files in {settings.folder}: config.json, metrics.csv, summary.json, "
        "curves.png"
    )


def _client_state_bytes(process: tff.learning.templates.LearningProcess) -> int:
    if not isinstance(process, algorithms.StatefulLearningProcess):
        return 0
    leaves = tf.nest.flatten(process.initial_client_state)
    return sum(np.asarray(leaf).nbytes for leaf in leaves)


def _server_state_bytes(process: tff.learning.templates.LearningProcess) -> int:
    state_type: Any = process.initialize.type_signature.result
    specs = tf.nest.flatten(compat.type_to_tf_tensor_specs(state_type.member))
    return sum(spec.shape.num_elements() * spec.dtype.size for spec in specs)


def check_cohort(settings: RunSettings, task: tasks.Task) -> None:
    """Raises unless a run's algorithm can train its task with the clients per round.

    Args:
      settings: The run.
      task: Its task, loaded.

    Raises:
      UserError: If it cannot; the message names the flag.
    """
    cohort, algorithm = settings.configuration["clients_per_round"], settings.algorithm
    if cohort > len(task.train):
        raise UserError(
            f"--clients_per_round is {cohort}, but task {task.name} has only "
            f"{len(task.train)} training clients to sample without replacement. "
            f"Choose at most {len(task.train)}."
        )
    method = algorithms.methods()[algorithm]
    if method.needs_full_participation and cohort < len(task.train):
        raise UserError(
            f"--clients_per_round is {cohort}, but {algorithm} needs all "
            f"{len(task.train)} training clients of task {task.name} in every round. "
            f"Give --clients_per_round={len(task.train)}."
        )
    left_out = settings.configuration["straggler_left_out"]
    if method.needs_full_participation and left_out:
        raise UserError(
            f"--straggler_left_out is {left_out:g}, but {algorithm} needs all "
            "training clients in every round. Give --straggler_left_out=0."
        )
