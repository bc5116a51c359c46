"""The training of one run, into its folder."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence

import tensorflow_federated as tff

import tasks
from experiments.flags.errors import MachineError, UserError
from experiments.flags.settings import RunSettings
from experiments.reports import writing
from experiments.training import cohorts
from tff_drift import algorithms, client_states, files, simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.records import run_directory, run_folder

# Where clients' states are kept, by the value of --client_states.
_RAM, _DISK = "ram", "disk"


def train(
    settings: RunSettings,
    task: tasks.Task,
    process: tff.learning.templates.LearningProcess,
    taking_part: Sequence[callbacks.Callback],
    interrupt: callbacks.SoftInterrupt,
) -> simulation.TrainingResult:
    """Trains a run, from where its folder stands.

    Args:
      settings: The run.
      task: Its task, loaded.
      process: Its learning process.
      taking_part: The callbacks.
      interrupt: One of them, which hears of Ctrl-C.

    Raises:
      MachineError: If the folder cannot be written.
      OutputDirError: If it cannot be used.
      UserError: If it does not fit --client_states.
    """
    configuration = settings.configuration
    sampling, clock = cohorts.build_cohorts(configuration, task.train)
    if clock is not None:
        taking_part = [*taking_part, clock]
    try:
        with interrupt, _open_client_states(settings, process) as states:
            return simulation.run_training(
                process,
                task.train,
                rounds=settings.rounds,
                seed=settings.seed,
                sampling=sampling,
                client_states=states,
                initial_weights=configuration["initial_weights"],
                callbacks=taking_part,
                output_dir=simulation.OutputDir(
                    settings.folder,
                    settings.circumstances["rounds_per_checkpoint"],
                    configuration,
                ),
            )
    except simulation.OutputDirError as error:
        if isinstance(error.__cause__, OSError):
            raise MachineError(str(error)) from error
        raise
    finally:
        _record_circumstances(settings)


@contextlib.contextmanager
def _open_client_states(
    settings: RunSettings, process: tff.learning.templates.LearningProcess
) -> Iterator[client_states.ClientStates | None]:
    """Opens the store of the clients' states; `None` leaves it to the training."""
    keeps = isinstance(process, algorithms.StatefulLearningProcess)
    # On Ray the actors keep them, in the same folder.
    if not keeps or settings.configuration["execution"] == "ray":
        yield None
        return
    folder = run_folder.own_folder(settings.folder, run_folder.CLIENT_STATES_FOLDER)
    asked = settings.circumstances["client_states"]
    if (settings.folder / run_directory.CHECKPOINT_FILE).is_file():
        _check_kept(settings.folder, folder, asked)
    if asked != _DISK:
        yield None
        return
    # Which run it is of, the checkpoint says.
    store = client_states.DiskClientStates(
        folder, process.initial_client_state, run_id=None
    )
    with contextlib.closing(store):
        yield store


def _check_kept(run: pathlib.Path, folder: pathlib.Path, asked: str) -> None:
    """Raises a `UserError` unless a run keeps its clients' states where it is asked to.

    A folder of states says little: that of a run that was killed before its first
    checkpoint may have stayed.

    Args:
      run: The folder of a run with a checkpoint.
      folder: Where states on disk are.
      asked: The value of --client_states.
    """
    kept = _RAM if run_directory.holds_client_states(run) else _DISK
    if kept != asked:
        place = "in its checkpoint" if kept == _RAM else "on disk"
        raise UserError(
            f"the run in {str(run)!r} keeps its clients' states {place}: continue with "
            f"--client_states={kept}."
        )
    if kept == _DISK and not folder.is_dir():
        raise UserError(
            f"the run in {str(run)!r} keeps its clients' states in {folder.name}, and "
            "that folder is not there: put it back, or restart the run."
        )


def _record_circumstances(settings: RunSettings) -> None:
    """Adds the flags that are not compared on resume to the run's config.json."""
    path = settings.folder / run_directory.CONFIGURATION_FILE
    if not path.is_file():
        return  # The folder could not be used, which is an error already.
    content = files.read_json(path)
    writing.write_json(path, {**content, "circumstances": settings.circumstances})
