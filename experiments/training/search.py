"""The points of a sweep, chosen and remembered by Optuna.

What a search has tried is in `optuna.log` in the sweep's folder, a journal that
Optuna's own programs read too. Each set of axes is a study of its own in it, for
Optuna's lists of choices are fixed, and so is each set of seeds, over which a point's
value is a mean. Which runs are done, the folders of the runs say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import optuna
from optuna import distributions
from optuna.storages import journal
from optuna.trial import TrialState

import tasks
from experiments.flags import sweeps
from experiments.flags.sweeps import GRID, RANDOM, Axis, Sweep
from tff_drift import files

JOURNAL_FILE = "optuna.log"
# Points that are not pruned, so that there is a median to compare with.
_UNPRUNED_POINTS = 4


@dataclasses.dataclass(frozen=True)
class Asked:
    """A point to try.

    Attributes:
      number: Its place among the points of the search, from 0.
      point: Values by names of flags.
    """

    number: int
    point: Mapping[str, Any]


class Search:
    """Chooses the points of a sweep to try next."""

    def __init__(self, sweep: Sweep) -> None:
        """Opens the journal, or begins it.

        Args:
          sweep: The sweep, whose folder exists.
        """
        self._sweep = sweep
        self._space = {axis.flag.name: _space(axis, sweep) for axis in sweep.axes}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        task = tasks.describe(sweep.runs(next(sweep.corners()))[0].task)
        self._study = optuna.create_study(
            storage=_open_journal(sweep.folder / JOURNAL_FILE),
            study_name=self._name(),
            direction="maximize" if task.higher_is_better else "minimize",
            pruner=_pruner(),
            load_if_exists=True,
        )

    def _name(self) -> str:
        """Returns the study's name: axes with values or ends, and seeds, in short."""
        told = [
            distributions.distribution_to_json(space) for space in self._space.values()
        ]
        text = json.dumps([list(self._space), told, self._sweep.seeds])
        return f"{self._sweep.sampler}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def points(self) -> list[Mapping[str, Any]]:
        """Returns the points tried so far, each once, in order."""
        found = {sweeps.label(asked.point): asked.point for asked in self._asked()}
        return list(found.values())

    def told(self) -> list[tuple[Asked, float]]:
        """Returns the points whose end was reported, with the values reported."""
        trials = self._study.get_trials(deepcopy=False)
        # Optuna gives a trial that was pruned the last value on its way.
        return [
            (
                Asked(trial.number, self._point(trial.params)),
                math.nan
                if trial.value is None or trial.state == TrialState.PRUNED
                else trial.value,
            )
            for trial in trials
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        ]

    def unfinished(self) -> list[Asked]:
        """Returns the points that were asked for and whose end was not reported."""
        return self._asked(TrialState.RUNNING)

    def _asked(self, *states: TrialState) -> list[Asked]:
        return [
            Asked(trial.number, self._point(trial.params))
            for trial in self._study.get_trials(deepcopy=False, states=states or None)
            if trial.state != TrialState.WAITING
        ]

    def ask(self) -> Asked | None:
        """Returns the next point to try; `None` if there have been enough.

        A point depends on its number and on those before, under TPE on their values
        too: a search that goes on asks for the same points.
        """
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        number = len(self._study.get_trials(deepcopy=False)) - len(waiting)
        if number >= self._sweep.num_points:
            return None
        is_random = self._sweep.sampler == RANDOM
        if self._sweep.sampler == GRID or (is_random and not self._sweep.has_range):
            # One may wait already, of a program that was killed right here.
            if not waiting:
                self._study.enqueue_trial(self._of_grid(number))
        elif is_random:
            self._study.sampler = optuna.samplers.RandomSampler(number)
        else:
            self._study.sampler = optuna.samplers.TPESampler(
                seed=number, constant_liar=True
            )
        trial = self._study.ask(self._space)
        return Asked(trial.number, self._point(trial.params))

    def _of_grid(self, number: int) -> dict[str, Any]:
        """Returns the next point of the grid, in order or at random without repeats."""
        if self._sweep.sampler == GRID:
            return next(itertools.islice(self._sweep.grid(), number, None))
        tried = [asked.point for asked in self._asked()]
        draw = random.Random(number)
        while True:  # It ends, for no more points are asked for than there are.
            point = {
                axis.flag.name: draw.choice(axis.values) for axis in self._sweep.axes
            }
            if point not in tried:
                return point

    def _point(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the point of a trial: as the grid has it, or rounded."""
        return {
            axis.flag.name: axis.value(params[axis.flag.name])
            if axis.spread and self._sweep.sampler != GRID
            else params[axis.flag.name]
            for axis in self._sweep.axes
        }

    def tell(self, asked: Asked, value: float) -> None:
        """Reports the value of a point to the search.

        Args:
          asked: The point. One that was reported before, and whose runs were lost, is
            left as it is.
          value: Its headline metric; NaN if it was given up, which the sampler takes
            for worse than all others.
        """
        told: dict[str, Any] = {"values": value}
        if math.isnan(value):
            told = {"state": TrialState.PRUNED}
        self._study.tell(asked.number, **told, skip_if_finished=True)

    def reporter(self, asked: Asked) -> Reporter:
        """Returns the reporter of a point that is being trained."""
        return Reporter(
            self._sweep.folder / JOURNAL_FILE, self._study.study_name, asked.number
        )


@dataclasses.dataclass(frozen=True)
class Reporter:
    """Tells a search, in another process, how a point that is trained does.

    Attributes:
      path: The journal.
      study: The name of the study.
      number: The number of the point.
    """

    path: pathlib.Path
    study: str
    number: int

    def open(self) -> optuna.trial.Trial:
        """Returns the trial, to report to and to ask whether to give it up."""
        study = optuna.load_study(
            storage=_open_journal(self.path), study_name=self.study, pruner=_pruner()
        )
        trial = study.get_trials(deepcopy=False)[self.number]
        # No public name leads from a number to a trial that can be reported to.
        return optuna.trial.Trial(study, trial._trial_id)


def _pruner() -> optuna.pruners.BasePruner:
    return optuna.pruners.MedianPruner(n_startup_trials=_UNPRUNED_POINTS)


def _space(axis: Axis, sweep: Sweep) -> distributions.BaseDistribution:
    """Returns the values that a flag may take, in Optuna's terms."""
    if not axis.spread or sweep.sampler == GRID:
        return distributions.CategoricalDistribution(axis.values)
    low, high = axis.bounds
    is_log = axis.spread == "log"
    if axis.is_whole:
        return distributions.IntDistribution(axis.values[0], axis.values[-1], is_log)
    return distributions.FloatDistribution(low, high, is_log)


def _open_journal(path: pathlib.Path) -> optuna.storages.JournalStorage:
    # Optuna opens it by its name, and would follow a link.
    if os.path.lexists(path):
        files.check_in_place(path)
    else:
        files.create(path).close()
    # Optuna's usual lock is a link to the path as given, which leads nowhere from the
    # journal's own folder: what a kill leaves behind would never be found to be old.
    lock = journal.JournalFileOpenLock(str(path))
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), lock))


def mend(path: pathlib.Path) -> None:
    """Takes a last line off a journal that a full disk or a power cut left unfinished.

    Args:
      path: The journal; it need not be there.
    """
    if not os.path.lexists(path):
        return
    with files.open_regular(path, follow_links=False) as journal_file:
        content = journal_file.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with os.fdopen(files.open_in_place(path, os.O_RDWR), "r+b") as file:
            file.truncate(whole)
