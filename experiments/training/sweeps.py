"""The runs of a sweep, each in a process of its own, scored on clients held out.

No test example is looked at. The clients held out are the task's own
(`task.validation`) where there are any; else a fifth of the *training* clients, as in
Charles et al. (2021), On Large-Cohort Training for Federated Learning, appendix A.4,
https://arxiv.org/abs/2106.07820, and the others train.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import itertools
import math
import pathlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from experiments import terminal
from experiments.flags import sweeps
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.flag import TASK
from experiments.flags.settings import RunSettings
from experiments.flags.sweeps import Sweep
from experiments.reports import sweeps as report
from experiments.training import pool
from tff_drift import files

HELD_OUT_FRACTION = 0.2
# In the folder of a run that was given up, with the reason.
DIVERGED_FILE, PRUNED_FILE = "diverged.json", "pruned.json"
_SUMMARY_FILE = "summary.json"


def run(sweep: Sweep, opened: pool.Pool | None = None) -> list[Mapping[str, Any]]:
    """Trains what has not been trained of a sweep.

    Args:
      sweep: The sweep.
      opened: The processes to train in; by default those of a pool of its own.

    Returns:
      Its points, values by names of flags.

    Raises:
      KeyboardInterrupt: On Ctrl-C; what is finished is kept.
      UserError: If something asked for is not available.
    """
    from experiments.training import search

    journal = sweep.folder / search.JOURNAL_FILE
    try:
        with as_user_errors(OSError):
            search.mend(journal)
            points = search.Search(sweep)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{str(journal)!r} is damaged. Remove it: what has been trained is told "
            "anew."
        ) from error
    with contextlib.ExitStack() as stack:
        if opened is None:
            opened = stack.enter_context(
                pool.open_pool(sweep.placement, sweep.num_points)
            )
        _Training(sweep, points, opened).run()
    return points.points()


class _Training:
    """Trains the points that a search asks for, several at a time."""

    def __init__(
        self,
        sweep: Sweep,
        search: Any,
        opened: pool.Pool,
    ) -> None:
        self._sweep = sweep
        self._search = search
        self._executor = opened.executor
        self._processes = opened.size
        # Of points that are being trained: those that were asked for, by label.
        self._futures: dict[Future[list[str]], str] = {}
        self._waiting: dict[str, list[Any]] = {}
        self._total = sweep.num_points * len(sweep.seeds)
        self._done = 0
        # The folders of runs that are done, and of the data that is there.
        self._checked: set[pathlib.Path] = set()

    def run(self) -> None:
        known = self._search.points()
        runs = [run for point in known for run in self._sweep.runs(point)]
        done = sum(map(is_done, runs))
        print(f"{self._total} runs, {done} done before", file=sys.stderr)
        if self._sweep.sampler == sweeps.GRID:
            # Of a grid with other values they are done, and not known.
            runs += [
                run for point in self._sweep.grid() for run in self._sweep.runs(point)
            ]
        self._check(runs)
        if done < self._total:
            for run in largest_cohorts(self._sweep):
                self._executor.submit(check_cohort, run).result()
        for asked in [*self._lost(), *self._search.unfinished()]:
            self._begin(asked)
        while True:
            while len(self._futures) < self._processes:
                asked = self._search.ask()
                if asked is None:
                    break
                self._begin(asked)
            if not self._futures:
                return
            for future in concurrent.futures.wait(
                self._futures, return_when=concurrent.futures.FIRST_COMPLETED
            ).done:
                self._end(future)

    def _check(self, runs: Sequence[RunSettings]) -> None:
        """Raises a `UserError` if a run that is done is of other data than is there."""
        done = [run for run in runs if run.folder not in self._checked and is_done(run)]
        if done:
            self._executor.submit(check_data, done).result()
            self._checked.update(run.folder for run in done)

    def _lost(self) -> list[Any]:
        """Returns points that were reported, and whose runs are not there.

        Raises:
          UserError: If a point was reported as another one than its runs are.
        """
        lost = []
        for asked, value in self._search.told():
            runs = self._sweep.runs(asked.point)
            if not _is_over(runs):
                lost.append(asked)
                continue
            found = report.headline(runs, given_up)
            same = math.isclose(found, value, rel_tol=1e-9, abs_tol=1e-12)
            if not same and not (math.isnan(found) and math.isnan(value)):
                from experiments.training import search

                journal = self._sweep.folder / search.JOURNAL_FILE
                raise UserError(
                    f"{str(journal)!r} says {value:g} of {sweeps.label(asked.point)}, "
                    f"whose runs beside it come to {found:g}: it is that of another "
                    "search. Remove it: what has been trained is told anew."
                )
        return lost

    def _begin(self, asked: Any) -> None:
        """Trains a point, unless it has been or is being trained."""
        label, runs = sweeps.label(asked.point), self._sweep.runs(asked.point)
        with as_user_errors(OSError):
            for run in runs:
                files.check_inside(run.folder, self._sweep.folder)
        others = self._waiting.setdefault(label, [])
        others.append(asked)
        if len(others) > 1:
            return
        if _is_over(runs):
            self._check(runs)
            self._done += len(runs)
            self._tell(label)
            return
        reporter = self._search.reporter(asked) if self._sweep.prune else None
        self._futures[self._executor.submit(train, runs, reporter)] = label

    def _end(self, future: Future[list[str]]) -> None:
        label, seeds = self._futures.pop(future), self._sweep.seeds
        # After a seed that is pruned come none.
        for number, reason in enumerate(future.result()):
            print(
                f"[{self._done + number + 1}/{self._total}] {label}, "
                f"seed {seeds[number]}: {reason or 'done'}",
                file=sys.stderr,
            )
        self._done += len(seeds)
        self._tell(label)

    def _tell(self, label: str) -> None:
        for asked in self._waiting.pop(label):
            runs = self._sweep.runs(asked.point)
            self._search.tell(asked, report.headline(runs, given_up))


def _has(run: RunSettings, name: str) -> bool:
    return (run.folder / name).is_file()


def has_diverged(run: RunSettings) -> bool:
    """Returns whether a run was given up because it diverged."""
    return _has(run, DIVERGED_FILE)


def given_up(runs: Sequence[RunSettings]) -> str:
    """Returns why the runs of a point do not count, nothing if they do."""
    if any(_has(run, PRUNED_FILE) for run in runs):
        return "pruned"
    return "diverged" if any(map(has_diverged, runs)) else ""


def _is_over(point: Sequence[RunSettings]) -> bool:
    """Returns whether nothing of a point is left to train.

    The other seeds of one that diverged say how often it does.
    """
    return given_up(point) == "pruned" or all(map(is_done, point))


def is_done(run: RunSettings) -> bool:
    """Returns whether a run has come to its end, or was given up."""
    if has_diverged(run) or _has(run, PRUNED_FILE):
        return True
    try:
        summary = files.read_json(run.folder / _SUMMARY_FILE)
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("rounds") == run.rounds


def largest_cohorts(sweep: Sweep) -> list[RunSettings]:
    """Returns the run with the largest cohort on each data that is tried.

    Args:
      sweep: The sweep; if it tries no cohorts there is none.
    """
    if "clients_per_round" not in (axis.flag.name for axis in sweep.axes):
        return []
    found: dict[Any, RunSettings] = {}
    for point in itertools.islice(sweep.corners(), sweeps.MAX_POINTS):
        run = sweep.runs(point)[0]
        data = tuple(run.options[TASK].items())
        found[data] = max(found.get(data, run), run, key=_cohort)
    return list(found.values())


def _cohort(run: RunSettings) -> int:
    return run.configuration["clients_per_round"]


def _load_tensorflow() -> None:
    """Imports what trains; not above, so that who waits does without TensorFlow."""
    with terminal.without_notices():
        importlib.import_module("experiments.training.runs")


def check_cohort(run: RunSettings) -> None:
    """Raises a `UserError` if a run's cohort is of more clients than are left to train.

    Args:
      run: The run.
    """
    _load_tensorflow()
    num_clients = _num_clients(run)
    if _cohort(run) > num_clients:
        raise UserError(
            f"--clients_per_round is {_cohort(run)}, but of task {run.task} only "
            f"{num_clients} clients are left to train, beside those held out. Try at "
            f"most {num_clients}."
        )


def _num_clients(run: RunSettings) -> int:
    """Returns how many clients are left to train."""
    with as_user_errors(OSError, TypeError, ValueError):
        return len(load_held_out(run).train)


def check_data(done: Sequence[RunSettings]) -> None:
    """Raises a `UserError` if a run is of other data than there is now.

    Args:
      done: Runs that are done.
    """
    _load_tensorflow()
    from experiments.training import data_identity, run_folders

    with as_user_errors(OSError, TypeError, ValueError):
        for run in done:
            data = data_identity.data_arguments(run, load_held_out(run))
            run_folders.check_data(run, data)


def train(point: Sequence[RunSettings], reporter: Any = None) -> list[str]:
    """Trains the runs of a point one after another, in a process of their own.

    Args:
      point: The runs, one for each seed.
      reporter: Tells the search of evaluations, a `search.Reporter`; `None` if points
        are not given up for what others reach.

    Returns:
      Why each run was given up, nothing if it was not. None follows one that is pruned.

    Raises:
      UserError: If something asked for is not available.
    """
    _load_tensorflow()
    reasons = []
    trial = reporter.open() if reporter else None
    for number, run in enumerate(point):
        if is_done(run):
            reasons.append(given_up([run]))
        else:
            reasons.append(_train(run, trial, number * (run.rounds + 1)))
        if given_up([run]) == "pruned":
            break
    return reasons


def _train(run: RunSettings, trial: Any, start: int) -> str:
    """Trains a run; returns why it was given up, nothing if it was not."""
    from experiments.reports import results
    from experiments.training import runs

    cohort = min(_cohort(run), _num_clients(run))
    changed = {"clients_per_round": cohort, "held_out_fraction": HELD_OUT_FRACTION}
    run = dataclasses.replace(run, configuration={**run.configuration, **changed})
    watch = _watch(run.folder, trial, results.headline_of(run.task), start)
    runs.Runs([run], lambda: [watch], load_held_out).execute(run, progress=False)
    return watch.reason


def load_held_out(run: RunSettings) -> Any:
    """Loads the task of a run with clients held out in place of test clients."""
    from experiments.training import processes, runs
    from tasks import partitioners

    task = runs.load_clients(run)
    if task.validation is not None:
        train = processes.training_data(run, task)
        return dataclasses.replace(task, train=train, test=task.validation)
    num_held_out = max(1, round(len(task.train) * HELD_OUT_FRACTION))
    if num_held_out == len(task.train):
        raise UserError(
            f"a search holds clients out, but task {task.name} has only one. Give "
            "data of more clients, or choose settings without `sweep`."
        )
    kept, held_out = partitioners.hold_out_clients(
        task.train.client_ids, num_held_out, run.seed
    )
    test = task.train.subset(held_out).replace(max_examples=None)
    task = dataclasses.replace(task, train=task.train.subset(kept), test=test)
    return dataclasses.replace(task, train=processes.training_data(run, task))


def _watch(folder: pathlib.Path, trial: Any, column: str, start: int) -> Any:
    from experiments.reports import writing
    from tff_drift.simulation import callbacks

    class Watch(callbacks.Callback):
        """Gives a run up when its training diverges, or others do better."""

        reason = ""

        def before_training(self, run: callbacks.TrainingRun) -> None:
            self._run = run
            # Of a run that goes on, the first round is in its rows.
            losses = [row["train_loss"] for row in run.rows if "train_loss" in row]
            self._first = float(losses[0]) if losses else None

        def after_round(
            self, round_number: int, state: Any, row: Mapping[str, Any]
        ) -> None:
            del state
            loss = float(row.get("train_loss", 0.0))
            self._first = loss if self._first is None else self._first
            reason = divergence(loss, self._first, row)
            if reason:
                self._give_up(DIVERGED_FILE, round_number, reason)

        def after_evaluation(
            self, round_number: int, state: Any, row: Mapping[str, Any]
        ) -> None:
            del state
            # After the last round there is nothing left to save.
            if trial is None or round_number == self._run.rounds:
                return
            # A callback of the user's may have columns of tests in other rounds.
            if column not in row:
                return
            with warnings.catch_warnings():
                # A run that goes on may come by a round again.
                warnings.simplefilter("ignore")
                trial.report(float(row[column]), start + round_number)
            if trial.should_prune():
                reason = f"pruned: worse than the median after {round_number} rounds"
                self._give_up(PRUNED_FILE, round_number, reason)

        def _give_up(self, file: str, round_number: int, reason: str) -> None:
            if not self.reason:
                self.reason = reason
                # Before the summary, by which a run that was not given up is done.
                content = {"round": round_number, "reason": reason}
                writing.write_json(folder / file, content)
                self._run.stop(reason)

    return Watch()


def divergence(loss: float, first: float, row: Mapping[str, Any]) -> str:
    """Returns why training has diverged, nothing if it has not.

    Args:
      loss: The training loss of a round.
      first: That of the first round.
      row: The round's metrics.
    """
    from tff_drift.simulation.records import failures

    if not math.isfinite(loss):
        return f"diverged: the training loss is {loss}"
    if loss > 100 * first > 0:
        return f"diverged: the training loss rose from {first:.3g} to {loss:.3g}"
    if failures.all_rejected(row):
        return "diverged: no client's update is finite"
    return ""
