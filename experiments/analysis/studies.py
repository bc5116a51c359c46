"""The results of a comparison or a preset's part, from the files of the whole.

They are small enough to be kept where the folders of the runs are not: `config.json`,
`summary.json` and `metrics.csv.gz`, which has a row per run and evaluation.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments import stored_files
from experiments.analysis import finished, folders
from experiments.analysis.finished import FinishedRuns

METRICS_FILE = "metrics.csv.gz"


@dataclasses.dataclass(frozen=True, eq=False)
class StudyResults:
    """Runs of variants of which each has a label.

    Attributes:
      runs: The runs.
      labels: What each run is called; runs of one label differ in their seeds alone.
      flags: The flags of the command, with the preset, its scale and the part.
      summary: What summary.json says.
    """

    runs: FinishedRuns
    labels: pd.Series
    flags: Mapping[str, Any]
    summary: Mapping[str, Any]

    @property
    def headline(self) -> str:
        """The column of the task's headline metric on test clients."""
        return next(name for name in self.runs.rounds if str(name).startswith("test_"))

    def where(self, settings: Mapping[str, Any]) -> StudyResults:
        """Returns the results of the runs that have some settings.

        Args:
          settings: Values by name; with none, all runs.
        """
        kept = pd.Series(True, index=self.runs.settings.index)
        for name, value in settings.items():
            kept &= self.runs.settings[name] == value
        return self._of(kept)

    def having(self, setting: str) -> StudyResults:
        """Returns the results of the runs whose method has a setting.

        Args:
          setting: Its name.
        """
        return self._of(self.runs.settings[setting].notna())

    def _of(self, kept: pd.Series) -> StudyResults:
        rounds = self.runs.rounds
        runs = FinishedRuns(self.runs.settings[kept], rounds[rounds["run"].map(kept)])
        return dataclasses.replace(self, runs=runs, labels=self.labels[kept])

    def title(self, measure: str) -> str:
        """Returns the title of a table of means, with the part and the seeds."""
        seeds = ", ".join(map(str, dict.fromkeys(self.runs.settings["seed"])))
        part = self.flags.get("part", self.summary["task"])
        return f"{part}, seeds {seeds}. {measure}: mean ± sd over seeds."


def read_study(folder: str | os.PathLike[str]) -> StudyResults:
    """Reads the files of a comparison or a preset's part.

    Args:
      folder: Its folder.

    Raises:
      ValueError: If a file is damaged, or no finished run is in them.
    """
    path = pathlib.Path(folder)
    runs = [run for run in folders.kept(path) if run.is_finished]
    if not runs:
        raise ValueError(f"{str(path)!r} keeps no finished run.")
    found = finished.gather(runs, [run.name for run in runs])
    labels = found.settings.index.to_series().map(
        lambda run: str(pathlib.PurePath(run).relative_to(path).parent)
    )
    return StudyResults(
        runs=found,
        labels=labels.rename("label"),
        flags=stored_files.read_json(
            path / folders.CONFIGURATION, stored_files.Configuration
        ).get("flags", {}),
        summary=folders.read_summary(path),
    )
