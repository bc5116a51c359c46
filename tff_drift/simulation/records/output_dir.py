"""The folder of a run, and its options."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tff_drift import checks
from tff_drift.simulation.records import configuration as configurations

# What a run's folder holds.
CHECKPOINT_FILE = "checkpoint.npz"
CONFIGURATION_FILE = "config.json"
FROZEN_FILE = "frozen.npz"
METRICS_FILE = "metrics.csv"
TENSORBOARD_FOLDER = "tensorboard"
TRACKERS_FILE = "trackers.json"


@dataclasses.dataclass(frozen=True)
class OutputDir:
    """The folder of a run, and how the run is kept there.

    `config.json` says what the run is, `metrics.csv` has one row per round,
    `checkpoint.npz` holds the server state of a round. Weights that are not trained,
    of 1 MiB and more, are in `frozen.npz`, which is written once.

    Attributes:
      path: The folder; it is created if necessary.
      rounds_per_checkpoint: The rounds from one checkpoint to the next; a kill loses
        at most this many. The last round always makes a checkpoint.
      configuration: What the run is, in JSON values by field names (algorithm, task,
        rates, ...): written to `config.json`, and compared when the run is resumed. A
        field `rounds` may change.

    Raises:
      TypeError: If `path` is not a path, `rounds_per_checkpoint` is not an integer, or
        the configuration holds what is not a JSON value.
      ValueError: If `path` is empty or holds a null character, or
        `rounds_per_checkpoint` is below 1.
    """

    path: str | os.PathLike[str]
    rounds_per_checkpoint: int = 10
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    __repr__ = checks.shown_fields

    def __post_init__(self) -> None:
        checks.check_path("output_dir", self.path)
        checks.check_integer("rounds_per_checkpoint", self.rounds_per_checkpoint)
        configurations.to_json("configuration", self.configuration)
