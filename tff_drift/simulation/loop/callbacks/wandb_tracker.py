"""Runs in Weights & Biases."""

from __future__ import annotations

import os
import pathlib
import shutil
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift import checks
from tff_drift.simulation.loop.callbacks import tracker
from tff_drift.simulation.records import metrics

_DEFAULT_PROJECT = "tff_drift"
_MODES = ("online", "offline", "disabled")


class WandbTracker(tracker.Tracker):
    """Logs a run to Weights & Biases: configuration, metrics of its rounds, files.

    https://wandb.ai. Needs the extra: `pip install 'tff-drift[wandb]'`.

    The configuration is the process's settings and the `configuration` of `OutputDir`.
    Each round's columns are logged at the step of that round. Files are `config.json`
    and `metrics.csv`, if the run has a folder, and `curves.png`.

    A run that continues from its folder continues in the same W&B run; `trackers.json`
    in the folder names it. Online, rounds that W&B has are not logged again. Offline
    (`mode="offline"` or `WANDB_MODE=offline`) each program writes a folder
    `wandb/offline-run-...` of its own, which has the whole run, rounds of earlier
    programs included: `wandb sync` the latest one alone. If W&B fails during training a
    warning says so and training continues.

    Attributes:
      run_id: The run's id in W&B; `None` before training.
    """

    title, extra = "Weights & Biases", "wandb"

    def __init__(
        self,
        project: str | None = None,
        *,
        run_name: str | None = None,
        mode: str | None = None,
    ) -> None:
        """Initializes the callback.

        Args:
          project: The project; by default the one that `WANDB_PROJECT` names, else
            `tff_drift`.
          run_name: What the run is called; by default the last two parts of its
            folder's path, without a folder a name of W&B's.
          mode: `"online"`, `"offline"` or `"disabled"`; by default what `WANDB_MODE`
            says, else online.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If a string is empty, or `mode` is none of these.
        """
        super().__init__()
        for name, value in (("project", project), ("run_name", run_name)):
            if value is not None:
                checks.check_text(name, value)
        if mode is not None:
            checks.check_one_of("mode", mode, _MODES)
        self._project = project
        self._run_name = run_name
        self._mode = mode
        self._wandb_run: Any = None
        self.run_id: str | None = None

    def _open(
        self,
        known: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        name: str | None,
    ) -> tuple[dict[str, Any], int]:
        import wandb

        record = dict(known or {"run_id": uuid.uuid4().hex[:8]})
        project = self._project or os.environ.get("WANDB_PROJECT")
        mode = self._mode or os.environ.get("WANDB_MODE")
        self.run_id = record["run_id"]
        self._wandb_run = wandb.init(
            project=project or _DEFAULT_PROJECT,
            id=self.run_id,
            name=self._run_name or name,
            # Offline there is nothing to resume.
            resume=None if mode == "offline" else "allow",
            mode=mode,
        )
        # A run may be extended.
        self._wandb_run.config.update(dict(settings), allow_val_change=True)
        # Offline it does not know what earlier programs logged.
        return record, self._wandb_run.step - 1 if self._wandb_run.resumed else -1

    def _log(self, rows: Sequence[metrics.MetricsRecord]) -> None:
        for row in rows:
            self._wandb_run.log(dict(row), step=int(row[metrics.ROUND]))

    def _log_files(self, paths: Sequence[pathlib.Path]) -> None:
        for path in paths:
            # A copy: W&B would link to a file that may be gone when it is synced.
            copy = pathlib.Path(self._wandb_run.dir) / path.name
            shutil.copyfile(path, copy)
            self._wandb_run.save(str(copy), base_path=str(copy.parent), policy="now")

    def _close(self, outcome: str, stop_reason: str | None) -> None:
        if stop_reason is not None:
            self._wandb_run.summary["stop_reason"] = stop_reason
        self._wandb_run.finish(exit_code=0 if outcome == "finished" else 1)
