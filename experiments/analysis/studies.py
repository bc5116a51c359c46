"""The results of a comparison or a preset's part, from the files of the whole.

They are small enough to be kept where the folders of the runs are not: `config.json`,
`summary.json` and `metrics.csv.gz`, which has a row per run and evaluation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.analysis.finished import FinishedRuns

METRICS_FILE = "metrics.csv.gz"
_CONFIGURATION, _SUMMARY = "config.json", "summary.json"


@dataclasses.dataclass(frozen=True, eq=False)
class StudyResults:
    """Runs of variants of which each has a label.

    Attributes:
      runs: The runs; their names are folders below `folder`.
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
        rounds = self.runs.rounds
        runs = FinishedRuns(self.runs.settings[kept], rounds[rounds["run"].map(kept)])
        return dataclasses.replace(self, runs=runs, labels=self.labels[kept])

    def title(self, told: str) -> str:
        """Returns what a table of means tells, with the part and the seeds."""
        seeds = ", ".join(map(str, dict.fromkeys(self.runs.settings["seed"])))
        part = self.flags.get("part", self.summary["task"])
        return f"{part}, seeds {seeds}. {told}: mean ± sd over seeds."


def read_study(folder: str | os.PathLike[str]) -> StudyResults:
    """Reads the files of a comparison or a preset's part.

    Args:
      folder: Its folder.

    Raises:
      OSError: If there is no such file.
      ValueError: If a file is damaged.
    """
    path = pathlib.Path(folder)
    try:
        configuration = json.loads((path / _CONFIGURATION).read_text("utf-8"))
        summary = json.loads((path / _SUMMARY).read_text("utf-8"))
        rows = pd.read_csv(path / METRICS_FILE)
        rows.insert(0, "run", rows["method"] + "/seed_" + rows["seed"].astype(str))
        measured = set(rows["run"])
        settings = pd.DataFrame(
            [
                {**run, "clients": summary["clients"]}
                for run in configuration["runs"]
                if run["folder"] in measured
            ]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    settings = settings.set_index("folder").rename_axis("run")
    # Lists cannot be compared or grouped by.
    settings = settings.map(
        lambda each: tuple(each) if isinstance(each, list) else each
    )
    labels = pd.Series(
        [str(run).rpartition("/")[0] for run in settings.index],
        index=settings.index,
        name="label",
    )
    totals = [name for name in rows if str(name).startswith("total_")]
    # The initial model has cost nothing.
    rows[totals] = rows[totals].fillna(0)
    runs = FinishedRuns(settings, rows.drop(columns=["method", "seed"]))
    return StudyResults(runs, labels, configuration["flags"], summary)
