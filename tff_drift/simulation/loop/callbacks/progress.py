"""The progress of a run, on the terminal or in a notebook."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Mapping
from typing import Any

import rich.console
import rich.progress
import rich.table
from absl import logging

from tff_drift import checks
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records.metrics import ROUND, Number
from tff_drift.simulation.records.results import TrainingResult

# A log of a long run stays readable.
_LINES_PER_RUN = 20
# A notebook draws no faster than one can read.
_SECONDS_PER_DRAWING = 0.25


class _Display:
    """Shows a run; this one shows nothing."""

    def start(self, rounds: int, rounds_completed: int) -> None:
        """Begins to show a run of `rounds` of which some are done."""

    def update(self, rounds_completed: int, row: Mapping[str, Any]) -> None:
        """Shows that a round is done."""

    def stop(self) -> None:
        """Ends the showing."""


def _describe(row: Mapping[str, Number], columns: Mapping[str, str]) -> str:
    """Returns the values of some columns, such as `loss 0.512  accuracy 0.87`."""
    return "  ".join(
        f"{label} {row[column]:.3g}"
        for column, label in columns.items()
        if column in row
    )


def _shown_columns(accuracy_metric: str) -> dict[str, str]:
    return {
        "train_loss": "loss",
        f"train_{accuracy_metric}": accuracy_metric,
        f"test_{accuracy_metric}": "test",
    }


class _LogLines(_Display):
    """Writes a line to absl's log every few rounds, at level INFO.

    absl shows INFO lines where a program asked for them, by its flag
    `--verbosity=0` or by `logging.set_verbosity`.
    """

    def __init__(self, accuracy_metric: str) -> None:
        self._columns = _shown_columns(accuracy_metric)
        self._rounds = 0

    def start(self, rounds: int, rounds_completed: int) -> None:
        del rounds_completed
        self._rounds = rounds

    def update(self, rounds_completed: int, row: Mapping[str, Any]) -> None:
        every = max(1, self._rounds // _LINES_PER_RUN)
        if rounds_completed % every == 0 or rounds_completed == self._rounds:
            place = f"round {rounds_completed}/{self._rounds}"
            logging.info("%s  %s", place, _describe(row, self._columns))


class _SpeedColumn(rich.progress.ProgressColumn):
    """Rounds per second, or seconds per round where these are longer."""

    def render(self, task: rich.progress.Task) -> str:
        speed = task.finished_speed or task.speed
        if not speed:
            return ""
        return f"{speed:.2f} rounds/s" if speed >= 1 else f"{1 / speed:.2f} s/round"


class _Bar(_Display):
    """Draws a bar with loss, accuracy, speed and the time left.

    Loss and accuracy are the cohort's in training, `test` is the accuracy of the
    latest evaluation.
    """

    def __init__(self, accuracy_metric: str, console: rich.console.Console) -> None:
        self._columns = _shown_columns(accuracy_metric)
        self._latest: dict[str, Number] = {}
        self._bar = rich.progress.Progress(
            # Together they fit into 80 characters.
            rich.progress.MofNCompleteColumn(),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.TextColumn("{task.description}"),
            _SpeedColumn(rich.table.Column(no_wrap=True)),
            rich.progress.TimeRemainingColumn(compact=True),
            console=console,
            refresh_per_second=4,
            # The speed of the last minutes: rounds can take that long.
            speed_estimate_period=600,
        )

    def start(self, rounds: int, rounds_completed: int) -> None:
        self._task = self._bar.add_task("", total=rounds, completed=rounds_completed)
        self._begin()

    def update(self, rounds_completed: int, row: Mapping[str, Any]) -> None:
        self._latest.update(row)
        self._bar.update(
            self._task,
            completed=rounds_completed,
            description=_describe(self._latest, self._columns),
        )

    def stop(self) -> None:
        self._bar.stop()

    def _begin(self) -> None:
        self._bar.start()


class _NotebookBar(_Bar):
    """Draws the bar as an output of its cell, which is saved with the notebook.

    Without `ipywidgets`, which Jupyter does not bring, rich itself draws none there.
    """

    def update(self, rounds_completed: int, row: Mapping[str, Any]) -> None:
        super().update(rounds_completed, row)
        if time.monotonic() - self._drawn >= _SECONDS_PER_DRAWING:
            self._draw()

    def stop(self) -> None:
        self._draw()

    def _begin(self) -> None:
        # Where there is a notebook, there is IPython.
        display = importlib.import_module("IPython.display").display
        self._output = display(self._table(), display_id=True)
        self._drawn = time.monotonic()

    def _draw(self) -> None:
        self._output.update(self._table())
        self._drawn = time.monotonic()

    def _table(self) -> rich.table.Table:
        return self._bar.make_tasks_table(self._bar.tasks)


class Progress(Callback):
    """Shows how far a run is, with loss, accuracy, speed and the time left.

    `run_training` adds this callback, with its defaults, if none of its kind is given.
    """

    def __init__(
        self,
        show: bool | None = None,
        *,
        accuracy_metric: str = "accuracy",
        console: rich.console.Console | None = None,
    ) -> None:
        """Initializes the callback.

        Args:
          show: `True` draws a bar, `False` shows nothing. `None`, the default, draws a
            bar on a terminal or in a notebook, and else writes a few lines to absl's
            log, at level INFO.
          accuracy_metric: The name of the model's headline metric.
          console: Where to draw; by default the standard error stream.

        Raises:
          TypeError: If an argument has the wrong type.
        """
        if show is not None:
            checks.check_flag("show", show)
        checks.check_text("accuracy_metric", accuracy_metric)
        if console is not None:
            checks.check_instance("console", console, rich.console.Console)
        self._make_display = functools.partial(
            _build_display, show, accuracy_metric, console
        )
        self._display = _Display()

    def before_training(self, run: TrainingRun) -> None:
        """Begins to show the run."""
        self._display = self._make_display()
        self._display.start(run.rounds, run.rounds_completed)

    def after_row(self, row: Mapping[str, Any]) -> None:
        """Shows that a round is done."""
        if row[ROUND] > 0:
            self._display.update(int(row[ROUND]), row)

    def after_training(self, result: TrainingResult | None) -> None:
        """Ends the showing; a bar stays."""
        del result
        self._display.stop()


def _build_display(
    show: bool | None, accuracy_metric: str, console: rich.console.Console | None
) -> _Display:
    if show is False:
        return _Display()
    default = rich.console.Console(stderr=True)
    if console is None and default.is_jupyter:
        return _NotebookBar(accuracy_metric, default)
    console = console or default
    if show or console.is_terminal or console.is_jupyter:
        return _Bar(accuracy_metric, console)
    return _LogLines(accuracy_metric)
