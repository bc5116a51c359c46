"""The runs of a sweep, each in a process of its own, scored on clients held out.

No test example is looked at. The clients held out are the task's own
(`task.validation`) where there are any; else a fifth of the *training* clients, as in
Charles et al. (2021), On Large-Cohort Training for Federated Learning, appendix A.4,
https://arxiv.org/abs/2106.07820, and the others train.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from experiments.flags.settings import RunSettings
from experiments.flags.sweeps import Sweep
from experiments.training import pool

HELD_OUT_FRACTION = 0.2
# In the folder of a run that was given up, with the reason.
DIVERGED_FILE = "diverged.json"
_SUMMARY_FILE = "summary.json"


def run(sweep: Sweep) -> None:
    """Trains what has not been trained of a sweep.

    Args:
      sweep: The sweep.

    Raises:
      KeyboardInterrupt: On Ctrl-C; what is finished is kept.
      UserError: If something asked for cannot be had.
    """
    runs = [run for of_point in sweep.runs for run in of_point]
    waiting = [run for run in runs if not is_done(run)]
    print(f"{len(runs)} runs, {len(runs) - len(waiting)} done before", file=sys.stderr)
    if not waiting:
        return
    pool.train(waiting, train, sweep.processes or pool.size(), sweep.plugins)


def has_diverged(run: RunSettings) -> bool:
    """Returns whether a run was given up."""
    return (run.folder / DIVERGED_FILE).is_file()


def is_done(run: RunSettings) -> bool:
    """Returns whether a run has come to its end, or was given up."""
    if has_diverged(run):
        return True
    try:
        summary = json.loads((run.folder / _SUMMARY_FILE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("rounds") == run.rounds


def train(run: RunSettings) -> str:
    """Trains a run, in a process of its own.

    Args:
      run: The run.

    Returns:
      Why it was given up, nothing if it was not.

    Raises:
      UserError: If something asked for cannot be had.
    """
    # Here, so that the process that waits does without TensorFlow.
    from experiments.reports import writing
    from experiments.training import runs

    num_clients = len(load_held_out(run).train)
    cohort = min(run.configuration["clients_per_round"], num_clients)
    changed = {"clients_per_round": cohort, "held_out_fraction": HELD_OUT_FRACTION}
    run = dataclasses.replace(run, configuration={**run.configuration, **changed})
    watch = _watch()
    runs.Runs([run], lambda: [watch], load_held_out).execute(run, progress=False)
    if watch.reason:
        content = {"round": watch.round_number, "reason": watch.reason}
        writing.write_json(run.folder / DIVERGED_FILE, content)
    return watch.reason


def load_held_out(run: RunSettings) -> Any:
    """Loads the task of a run with clients held out in the place of test clients."""
    from experiments.training import processes, runs
    from tasks import partitioners

    task = runs.load_clients(run)
    if task.validation is not None:
        train = processes.training_data(run, task)
        return dataclasses.replace(task, train=train, test=task.validation)
    num_held_out = round(len(task.train) * HELD_OUT_FRACTION)
    kept, held_out = partitioners.hold_out_clients(
        task.train.client_ids, num_held_out, run.seed
    )
    test = task.train.subset(held_out).replace(max_examples=None)
    task = dataclasses.replace(task, train=task.train.subset(kept), test=test)
    return dataclasses.replace(task, train=processes.training_data(run, task))


def _watch() -> Any:
    from tff_drift.simulation import callbacks

    class Watch(callbacks.Callback):
        """Gives a run up when its training diverges."""

        reason = ""
        round_number = 0

        def before_training(self, run: callbacks.TrainingRun) -> None:
            self._run = run
            self._first: float | None = None

        def after_round(
            self, round_number: int, state: Any, row: Mapping[str, Any]
        ) -> None:
            del state
            loss = float(row.get("train_loss", 0.0))
            self._first = loss if self._first is None else self._first
            reason = divergence(loss, self._first, row)
            if reason and not self.reason:
                self.reason, self.round_number = reason, round_number
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
