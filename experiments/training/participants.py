"""The callbacks and trackers of a run."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tasks
from experiments.flags.errors import UserError
from experiments.flags.settings import RunSettings
from experiments.training import model_norm
from tff_drift import simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.loop.callbacks.tracker import TrackerError


def build_callbacks(
    settings: RunSettings, task: tasks.Task, progress: bool | None
) -> list[callbacks.Callback]:
    """Builds the callbacks that the flags of a run ask for.

    Args:
      settings: The run.
      task: Its task, loaded.
      progress: As for `tff_drift.simulation.run_training`.

    Raises:
      UserError: If the task's headline metric is none of its model's, or its test
        clients do not fit its model.
    """
    configuration, circumstances = settings.configuration, settings.circumstances
    evaluation = _evaluation(
        task,
        task.test,
        max_clients=configuration["max_evaluation_clients"],
        seed=settings.seed,
    )
    model = None
    if configuration["evaluated_model"] == "latest":
        model = _MeanLatestModel()
    # A metric that is to fall must not be watched for a fall. The name of one that the
    # model lacks watches nothing.
    watched = task.accuracy_metric if task.higher_is_better else "accuracy"
    parts: list[callbacks.Callback] = [
        callbacks.FailureWatch(watched),
        callbacks.PeriodicEvaluation(
            evaluation,
            rounds_per_evaluation=configuration["rounds_per_evaluation"],
            model=model,
        ),
        callbacks.Progress(progress, accuracy_metric=watched),
        model_norm.ModelNorm(),
    ]
    if configuration["evaluate_on_training_clients"]:
        trained = _evaluation(task, task.train)
        parts.append(callbacks.FinalEvaluation(trained, model=model))
    if circumstances["measure_mismatch"]:
        parts.append(callbacks.ControlVariateMismatch())
    if circumstances["tensorboard"]:
        parts.append(callbacks.TensorBoard())
    return [*parts, *trackers(circumstances["track"])]


def _evaluation(
    task: tasks.Task, clients: simulation.ClientDatasets, **sampling: Any
) -> Callable[[Any], collections.OrderedDict[str, Any]]:
    """Builds an evaluation; what does not fit is the mistake of a plugin's task."""
    try:
        return simulation.build_evaluation(
            task.model_fn, clients, accuracy_metric=task.accuracy_metric, **sampling
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"task {task.name}: {error}") from error


def trackers(names: Sequence[str] | None) -> list[callbacks.Tracker]:
    """Returns new trackers.

    Args:
      names: Their names.
    """
    made: dict[str, Callable[[], callbacks.Tracker]]
    made = {"mlflow": callbacks.MLflowTracker, "wandb": callbacks.WandbTracker}
    return [made[name]() for name in names or ()]


def check_trackers(names: Sequence[str] | None) -> None:
    """Raises a `UserError` unless the packages of the trackers are installed.

    Args:
      names: Their names.
    """
    for name, tracker in zip(names or (), trackers(names), strict=True):
        try:
            tracker.check()
        except ImportError as error:
            raise UserError(f"--track={name}: {error}") from error


@contextlib.contextmanager
def naming_trackers() -> Iterator[None]:
    """Turns the error of a tracker that cannot begin a run into a `UserError`."""
    try:
        yield
    except TrackerError as error:
        raise UserError(f"--track={error.extra}: {error}") from error


class _MeanLatestModel:
    """The model that `evaluated_model=latest` evaluates."""

    # The flag is in the run's configuration.
    settings: Mapping[str, Any] = {}

    def __call__(self, run: callbacks.TrainingRun, state: Any) -> Any:
        assert run.client_states is not None  # The flag is for methods that keep them.
        return simulation.mean_latest_model(run.process, state, run.client_states)
