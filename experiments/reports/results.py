"""The result of a run, and its files."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
import tff_drift
from experiments.flags.settings import RunSettings
from tff_drift import algorithms, simulation

SUMMARY_FILE = "summary.json"
_SUMMARY_FORMAT = "tff_drift summary"
# What others read of a summary.
_SUMMARY_KEYS = (
    *("rounds", "clients", "clients_per_round"),
    *("final", "best", "totals", "failures"),
)

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """A run at its end.

    Attributes:
      settings: The run.
      rows: One mapping per round, as in metrics.csv.
      summary: What summary.json says.
    """

    settings: RunSettings
    rows: Sequence[Row]
    summary: Mapping[str, Any]

    @property
    def headline(self) -> str:
        """The column of the task's headline metric on test clients."""
        return headline_of(self.settings.task)


def headline_of(task: str) -> str:
    """Returns the column of a task's headline metric on test clients."""
    return f"test_{tasks.describe(task).accuracy_metric}"


def summarize(
    settings: RunSettings,
    training: simulation.TrainingResult,
    population: int,
    client_state_bytes: int,
    server_state_bytes: int,
) -> dict[str, Any]:
    """Returns the summary of a run.

    Args:
      settings: The run.
      training: What its training returned.
      population: The number of training clients.
      client_state_bytes: What a client keeps between rounds.
      server_state_bytes: What the server keeps, its model included.

    Returns:
      JSON values; a number that is not finite is `None`.
    """
    evaluations = [row for row in training.rows if headline_of(settings.task) in row]
    summary = {
        "format": _SUMMARY_FORMAT,
        "task": settings.task,
        "algorithm": settings.algorithm,
        "seeds": {"task": settings.seed, "sampling": settings.seed},
        "rounds": settings.rounds,
        "clients": population,
        "clients_per_round": settings.configuration["clients_per_round"],
        "final": _final(training.rows, evaluations),
        "best": _best(evaluations, settings.task),
        "totals": dataclasses.asdict(training.totals),
        "stop_reason": training.stop_reason,
        "arithmetic": arithmetic(settings, training.rows),
        "client_state_bytes": client_state_bytes,
        "server_state_bytes": server_state_bytes,
        "failures": [dataclasses.asdict(failure) for failure in training.failures],
        **provenance(),
    }
    return json_values(summary)


def _final(rows: Sequence[Row], evaluations: Sequence[Row]) -> dict[str, Any]:
    """Returns the metrics of the last round and of the last evaluation."""
    last = {"round": rows[-1]["round"]}
    for prefix, row in (
        ("train_", rows[-1]),
        ("final_train_", rows[-1]),
        ("test_", evaluations[-1]),
    ):
        last.update({name: row[name] for name in row if name.startswith(prefix)})
    return last


def _best(evaluations: Sequence[Row], task: str) -> dict[str, Any]:
    """Returns the best headline metric and the lowest loss, with their rounds."""
    definition = tasks.describe(task)
    signs = {
        "test_loss": -1,
        headline_of(task): 1 if definition.higher_is_better else -1,
    }
    best = {}
    for column, sign in signs.items():
        rows = [row for row in evaluations if math.isfinite(row.get(column, math.nan))]
        if rows:
            row = max(rows, key=lambda row: sign * row[column])
            best[column] = {"round": row["round"], "value": row[column]}
    return best


def arithmetic(settings: RunSettings, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Returns what a client and the server compute in a mean round.

    Args:
      settings: The run.
      rows: Its rows.

    Returns:
      Sums and products in units of the model's trainable weights: of a client those
      beyond SGD. `None` for a method whose spec does not have them, see
      `tff_drift.algorithms.Method`.
    """
    method = algorithms.methods()[settings.algorithm]
    trained = [row for row in rows if "train_num_batches" in row]
    if method.client_cost is None or method.server_cost is None or not trained:
        return None
    cohort = sum(row["cohort_size"] for row in trained) / len(trained)
    steps = sum(row["train_num_batches"] for row in trained) / len(trained) / cohort
    return {
        "local_steps": steps,
        "client": method.client_cost.times(steps)._asdict(),
        "server": method.server_cost.times(cohort)._asdict(),
    }


def json_values(value: Any) -> Any:
    """Returns a structure in JSON values, `None` for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: json_values(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def provenance() -> dict[str, Any]:
    """Returns what made a result: machine, versions and the git revision."""
    return {
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "tff_drift": tff_drift.__version__,
            "tensorflow": tf.__version__,
            "tensorflow_federated": tff.__version__,
            "numpy": np.__version__,
        },
        "git_revision": git_revision(),
    }


@functools.cache
def machine() -> dict[str, Any]:
    """Returns what this machine is: processor, RAM in bytes, accelerators, system."""
    model = re.search(r"^model name\s*: (.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    ram = re.search(r"^MemTotal: +(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE)
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {
        "processor": model[1] if model else platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "ram": 1024 * int(ram[1]) if ram else None,
        "accelerators": [each.get("device_name", "GPU") for each in details],
        "system": f"{platform.system()} {platform.release()}",
    }


def _text(path: str) -> str:
    """Returns what a file of the system says, nothing where there is none."""
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


@functools.cache
def git_revision() -> str | None:
    """Returns the checkout's revision, with "-dirty" if files differ from it.

    Returns:
      The revision; `None` outside a git checkout or without git.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    folder = pathlib.Path(__file__).parent
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def is_of(summary: Any, rows: Sequence[Row], task: str) -> bool:
    """Returns whether a summary is whole, and says of a run what its rows say.

    Args:
      summary: What summary.json says.
      rows: The run's rows.
      task: The name of its task.
    """
    if not isinstance(summary, dict) or not set(_SUMMARY_KEYS) <= set(summary):
        return False
    evaluations = [row for row in rows if headline_of(task) in row]
    if not evaluations:
        return False
    found = json_values(
        {"final": _final(rows, evaluations), "best": _best(evaluations, task)}
    )
    # Another version may have said more, or less.
    return all(
        isinstance(summary[part], dict)
        and all(said == summary[part].get(name, said) for name, said in what.items())
        for part, what in found.items()
    )
