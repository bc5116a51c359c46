"""Runs in MLflow."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tff_drift import checks
from tff_drift.simulation.loop.callbacks import tracker
from tff_drift.simulation.records import metrics
from tff_drift.simulation.records.output_dir import TRACKERS_FILE

_DEFAULT_EXPERIMENT = "tff_drift"
_STATUSES = {"finished": "FINISHED", "killed": "KILLED", "failed": "FAILED"}
_OTHER_CHARACTERS = re.compile(r"[^\w./ -]")
# What one call may have.
_MOST_METRICS, _MOST_PARAMETERS = 1000, 100
# What MLflow reads at each call: how often it tries again, and the seconds of a try.
_BRIEF = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class MLflowTracker(tracker.Tracker):
    """Logs a run to MLflow: parameters, the metrics of its rounds, and its files.

    https://mlflow.org. Needs the extra: `pip install 'tff-drift[mlflow]'`.

    Parameters are the process's settings and the `configuration` of `OutputDir`; what
    may change when a run is extended, `rounds`, is a tag. Each round's columns are
    metrics at the step of that round. Artifacts are `config.json` and `metrics.csv`, if
    the run has a folder, and `curves.png`.

    A run that continues from its folder continues in the same MLflow run, in which no
    round is missing or duplicated; `trackers.json` in the folder names it. A thread of
    its own sends to MLflow about once a second. If that fails during training, a
    warning says so, training continues, and the rounds are sent later.

    Attributes:
      run_id: The run's id in MLflow; `None` before training.
    """

    title, extra = "MLflow", "mlflow"

    def __init__(
        self,
        experiment: str | None = None,
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        """Initializes the callback.

        Args:
          experiment: The experiment, created if necessary; by default the one that
            `MLFLOW_EXPERIMENT_NAME` names, else `tff_drift`.
          run_name: What a new run is called; by default the last two parts of its
            folder's path, without a folder a name of MLflow's.
          tracking_uri: Where MLflow keeps runs, such as `http://host:5000` or
            `sqlite:///mlflow.db`; by default MLflow's own, which
            `MLFLOW_TRACKING_URI` sets, else a store in the current folder.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If a string is empty.
        """
        super().__init__()
        names = ("experiment", "run_name", "tracking_uri")
        texts = (experiment, run_name, tracking_uri)
        for name, value in zip(names, texts, strict=True):
            if value is not None:
                checks.check_text(name, value)
        self._experiment = experiment
        self._run_name = run_name
        self._tracking_uri = tracking_uri
        self._client: Any = None
        self.run_id: str | None = None

    def _open(
        self,
        known: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        name: str | None,
    ) -> tuple[dict[str, Any], int]:
        import mlflow

        uri = self._tracking_uri or mlflow.get_tracking_uri()
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        if uri.startswith("http"):
            with _brief_calls():
                self._client.get_experiment_by_name(_DEFAULT_EXPERIMENT)
        if known is None:
            run = self._client.create_run(
                self._experiment_id(), run_name=self._run_name or name
            )
            known = {"run_id": run.info.run_id, "tracking_uri": uri}
        else:
            run = self._found(known, uri)
            self._client.update_run(run.info.run_id, status="RUNNING")
        self.run_id = run.info.run_id
        self._log_parameters(settings, run.data.params)
        history = self._client.get_metric_history(self.run_id, metrics.ROUND)
        return dict(known), max((each.step for each in history), default=-1)

    def _experiment_id(self) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        name = name or _DEFAULT_EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        try:
            return self._client.create_experiment(name)
        except Exception:
            # A run that begins at the same time may have been faster.
            if found := self._client.get_experiment_by_name(name):
                return found.experiment_id
            raise

    def _found(self, known: Mapping[str, Any], uri: str) -> Any:
        """Returns the run of MLflow that belongs to the folder."""
        try:
            run = self._client.get_run(known["run_id"])
        except Exception as error:
            raise ValueError(
                f"its store {uri} has no run {known['run_id']} ({error}). It was begun "
                f"in {known['tracking_uri']}: give that as tracking_uri or in "
                f"MLFLOW_TRACKING_URI, or remove {TRACKERS_FILE} for a new run."
            ) from error
        if run.info.lifecycle_stage != "active":
            raise ValueError(
                f"run {known['run_id']} was deleted there. Restore it, or remove "
                f"{TRACKERS_FILE} in the run's folder for a new one."
            )
        return run

    def _log_parameters(
        self, settings: Mapping[str, Any], logged: Mapping[str, str]
    ) -> None:
        from mlflow import entities

        # A parameter cannot be changed in MLflow.
        rounds = settings.get("rounds")
        self._client.set_tag(self.run_id, "rounds", str(rounds))
        parameters = [
            entities.Param(_name(name), str(value))
            for name, value in settings.items()
            if name != "rounds" and _name(name) not in logged
        ]
        for part in _parts(parameters, _MOST_PARAMETERS):
            self._client.log_batch(self.run_id, params=part)

    def _log(self, rows: Sequence[metrics.MetricsRecord]) -> None:
        from mlflow import entities

        now = int(1000 * time.time())
        numbers = [
            entities.Metric(_name(name), float(row[name]), now, int(row[metrics.ROUND]))
            for row in rows
            # The round comes last: it says that the row is there.
            for name in sorted(row, key=lambda name: name == metrics.ROUND)
        ]
        for part in _parts(numbers, _MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=part)

    def _log_files(self, paths: Sequence[pathlib.Path]) -> None:
        for path in paths:
            self._client.log_artifact(self.run_id, str(path))

    def _close(self, outcome: str, stop_reason: str | None) -> None:
        if stop_reason is not None:
            self._client.set_tag(self.run_id, "stop_reason", stop_reason)
        self._client.set_terminated(self.run_id, status=_STATUSES[outcome])


@contextlib.contextmanager
def _brief_calls() -> Iterator[None]:
    """A context in which MLflow does not try for minutes, unless a user has it do so.

    It tries eight times by default, up to two minutes each.
    """
    unset = {name: value for name, value in _BRIEF.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def _name(name: str) -> str:
    """Returns a name in characters that MLflow takes."""
    return _OTHER_CHARACTERS.sub("_", name)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))
