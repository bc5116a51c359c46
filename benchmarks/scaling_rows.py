"""The rows of the table of `scaling.py`, and what its parts share."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import populations
from populations import Work

from tff_drift import simulation
from tff_drift.simulation import callbacks

MEGABYTE = 1e6
WARM_UP_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table; None for what a part does not measure.

    Attributes:
      part: Of the command line.
      what: What was done.
      clients: In a round, or in the store.
      seconds: Of a round, or of the opening of a store.
      cpu_seconds: The processor time of the same.
      ram_mb: The most RAM above that before the part, in megabytes.
      disk_mb: What the store takes on disk.
      network_mb: What went over the network in a round, both ways.
    """

    part: str
    what: str
    clients: int
    seconds: float
    cpu_seconds: float | None = None
    ram_mb: float | None = None
    disk_mb: float | None = None
    network_mb: float | None = None

    @property
    def ms_per_client(self) -> float:
        """The milliseconds of a round for each of its clients."""
        return 1000 * self.seconds / self.clients


COLUMNS = [field.name for field in dataclasses.fields(Row)]


def _status_megabytes(pid: int | str, name: str) -> float:
    """Returns what Linux says of a process: `VmRSS`, or its peak, `VmHWM`."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    raise SystemExit(f"/proc/{pid}/status has no {name}: this needs Linux.")


class Ram:
    """The peak of a process's RAM since this was made."""

    def __init__(self, pid: int | str = "self") -> None:
        self._pid = pid
        # Makes the present size the peak.
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = _status_megabytes(pid, "VmRSS")

    def megabytes(self) -> float:
        """Returns by how much the peak is above the beginning."""
        # Linux counts pages by threads, and may tell of a peak a little below it.
        return max(0.0, _status_megabytes(self._pid, "VmHWM") - self._before)


class Readings(callbacks.Callback):
    """Reads counters after every round."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self.readings: list[Any] = []

    def before_training(self, run: callbacks.TrainingRun) -> None:
        """Reads them before the first round."""
        del run
        self.readings.append(self._read())

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Reads them after a round."""
        if row["round"]:
            self.readings.append(self._read())

    def median(self) -> Any:
        """Returns by how much a round raises them, the first ones left out."""
        return np.median(np.diff(self.readings, axis=0)[WARM_UP_ROUNDS:], axis=0)


def clients_of(work: Work) -> simulation.ClientDatasets:
    """Returns clients whose examples are slices of one array."""
    load = populations.slices(work)
    return simulation.ClientDatasets(
        [str(number) for number in range(work.population_size or 0)],
        lambda client_id: load(int(client_id)),
        batch_size=work.batch_size,
        cache_bytes=0,
    )
