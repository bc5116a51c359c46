"""The base class of trackers of experiments: what is logged, and when.

A tracker shows a run; it keeps nothing that the run needs. The rows are in the run's
folder, or in its result, before they are sent to a tracker. What a tracker missed,
because its server was down or the program was killed, is sent by the next program that
continues the run.
"""

from __future__ import annotations

import abc
import concurrent.futures
import importlib
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from tff_drift import checks, files
from tff_drift.simulation.loop.callbacks import soft_interrupt
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records import configuration, metrics, result_summary
from tff_drift.simulation.records.metrics_file import read_rows
from tff_drift.simulation.records.output_dir import (
    CONFIGURATION_FILE,
    METRICS_FILE,
    TRACKERS_FILE,
)
from tff_drift.simulation.records.results import TrainingResult

# Seconds: training does not wait for a tracker, which receives several rounds at a
# time, and is left in peace for a while when it has failed.
_BETWEEN_CALLS = 1.0
_AFTER_A_FAILURE = 60.0


class TrackerError(ValueError):
    """A tracker that cannot begin a run.

    Attributes:
      extra: The tracker's package.
    """

    def __init__(self, extra: str, message: str) -> None:
        super().__init__(message)
        self.extra = extra


class Tracker(Callback, abc.ABC):
    """Sends what a run is, its rows and its files to a tracker of experiments.

    A subclass does that with one package, which is imported when a run begins.
    `trackers.json` in a folder names the tracker's run that belongs to it, so that a
    resumed run continues there.
    """

    # The name in messages; that of the package, its extra and its key in
    # `trackers.json`.
    title: str
    extra: str

    def __init__(self) -> None:
        """Initializes the callback."""
        self._run: TrainingRun | None = None
        self._is_open = False
        self._call: concurrent.futures.Future[int] | None = None

    def check(self) -> None:
        """Raises unless the package is there.

        Raises:
          ImportError: If it is not installed.
        """
        try:
            importlib.import_module(self.extra)
        except ImportError as error:
            raise ImportError(
                f"{self.title} cannot be imported ({error}). Install it beside "
                f"tff_drift: pip install 'tff-drift[{self.extra}]'"
            ) from error

    @abc.abstractmethod
    def _open(
        self,
        known: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        name: str | None,
    ) -> tuple[dict[str, Any], int]:
        """Begins a run of the tracker, or continues one.

        Args:
          known: What the first call returned for the run; `None` if there was none.
          settings: What the run is, by flat names.
          name: What to call it if nothing else was asked for; `None` for any name.

        Returns:
          What to know it by, in JSON values, and the last round that it has; -1 if it
          has none.
        """

    @abc.abstractmethod
    def _log(self, rows: Sequence[metrics.MetricsRecord]) -> None:
        """Logs rows, each under its round."""

    @abc.abstractmethod
    def _log_files(self, paths: Sequence[pathlib.Path]) -> None:
        """Keeps copies of files with the run."""

    @abc.abstractmethod
    def _close(self, outcome: str, stop_reason: str | None) -> None:
        """Ends the run of the tracker: `finished`, `killed` or `failed`."""

    def before_training(self, run: TrainingRun) -> None:
        """Begins a run of the tracker, or continues the one that it had.

        Raises:
          ImportError: If the package is not installed.
          ValueError: If the tracker's run cannot be begun or found.
        """
        self._run = run
        self._begin(run.folder, run.settings, run.rows)

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Sends the tracker the records that it lacks, if it is time."""
        if row[metrics.ROUND] == 0:
            # What it has received came from initial weights that were not kept.
            self._last_round = -1
        self._send_in_background()

    def after_training(self, result: TrainingResult | None) -> None:
        """Sends the tracker the rest, and how the run ended. Warns if it fails."""
        if self._run is None:
            return
        reason = self._run.stop_reason if result is not None else None
        outcome = "failed" if result is None else "finished"
        if reason in soft_interrupt.STOP_REASONS:
            outcome = "killed"
        self._run = None
        self._end(outcome, reason)

    def track_folder(self, folder: str | os.PathLike[str]) -> None:
        """Sends the tracker a run that has been trained, from its folder.

        Args:
          folder: The folder of a run, which was trained with this tracker or without.

        Raises:
          FileNotFoundError: If it holds no run.
          ImportError: If the package is not installed.
          TypeError: If `folder` is not a path.
          ValueError: If its files are damaged, or the tracker's run cannot be begun or
            found.
        """
        checks.check_path("folder", folder)
        path = pathlib.Path(folder)
        _, rows = read_rows(path / METRICS_FILE)
        content = files.read_json(path / CONFIGURATION_FILE)
        settings = {**content["training"], "configuration": content["configuration"]}
        self._begin(path, settings, rows)
        self._end("finished", None)

    def _begin(
        self,
        folder: pathlib.Path | None,
        settings: Mapping[str, Any],
        rows: Sequence[metrics.MetricsRecord],
    ) -> None:
        self.check()
        self._folder, self._rows = folder, rows
        self._due = 0.0
        name = None if folder is None else "/".join(folder.absolute().parts[-2:])
        known = self._read_known()
        try:
            record, self._last_round = self._open(
                known.get(self.extra), _flat(settings), name
            )
        except Exception as error:
            raise TrackerError(
                self.extra,
                f"{self.title} cannot start the run: {_first_line(error)} Fix that, or "
                "train without it: the run can be sent to it later.",
            ) from error
        self._is_open = True
        if folder is not None and known.get(self.extra) != record:
            text = json.dumps({**known, self.extra: record}, indent=2) + "\n"
            files.replace_file(
                folder / TRACKERS_FILE, lambda file: file.write(text.encode())
            )
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)

    def _read_known(self) -> dict[str, Any]:
        if self._folder is None:
            return {}
        try:
            known = files.read_json(self._folder / TRACKERS_FILE)
            if not all(isinstance(each, dict) for each in known.values()):
                raise TypeError("it does not say what runs are known by")
            return dict(known)
        except FileNotFoundError:
            return {}
        except (AttributeError, OSError, TypeError, ValueError) as error:
            raise TrackerError(
                self.extra,
                f"{self._folder / TRACKERS_FILE} is damaged: {error}. Remove it, and "
                f"{self.title} begins a new run.",
            ) from error

    def _waiting(self) -> list[metrics.MetricsRecord]:
        """Returns the rows that the tracker does not have."""
        first = len(self._rows)
        while first and self._rows[first - 1][metrics.ROUND] > self._last_round:
            first -= 1
        return [self._rows[i] for i in range(first, len(self._rows))]

    def _send_in_background(self) -> None:
        if self._call is not None and not self._call.done():
            return
        self._collect()
        rows = self._waiting()
        if rows and time.monotonic() >= self._due:
            self._due = time.monotonic() + _BETWEEN_CALLS
            self._call = self._thread.submit(self._send, rows)

    def _send(self, rows: Sequence[metrics.MetricsRecord]) -> int:
        self._log(rows)
        return int(rows[-1][metrics.ROUND])

    def _collect(self) -> None:
        """Records how the last call ended."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            self._last_round = call.result()
        except Exception as error:
            self._due = time.monotonic() + _AFTER_A_FAILURE
            logging.warning(
                "%s failed, and is tried again later: %s Training continues.",
                self.title,
                _first_line(error),
            )

    def _end(self, outcome: str, stop_reason: str | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._thread.shutdown()
        self._collect()
        try:
            rows = self._waiting()
            if rows:
                self._last_round = self._send(rows)
            self._log_artifacts()
            self._close(outcome, stop_reason)
        except Exception as error:
            kept = "in the result of the run"
            if self._folder is not None:
                folder = checks.shown(str(self._folder))
                kept = f"kept in {folder}: the same run started again tells it"
            logging.warning(
                "%s failed, and lacks what came after round %d: %s They are %s.",
                self.title,
                max(self._last_round, 0),
                _first_line(error),
                kept,
            )

    def _log_artifacts(self) -> None:
        if self._folder is not None:
            names = (CONFIGURATION_FILE, METRICS_FILE)
            paths = [self._folder / name for name in names]
            # Those that the run has written, and nothing that links lead to.
            self._log_files([path for path in paths if files.is_file(path)])
        columns = result_summary.default_columns(self._rows)
        if len(self._rows) > 1 and columns:
            import matplotlib.figure  # Slow to import.

            figure = matplotlib.figure.Figure()
            result_summary.plot_rows(self._rows, columns, figure.subplots())
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "curves.png"
                figure.savefig(path)
                self._log_files([path])


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a run is by flat names, the user's own without a prefix."""
    training = dict(settings)
    own = training.pop("configuration", {})
    flat = {**configuration.flatten(training), **configuration.flatten(own)}
    return {name: value for name, value in flat.items() if value is not None}


def _first_line(error: Exception) -> str:
    """Returns what an error says, without the statements and traces of some."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if line.endswith(".") else f"{line}."
