"""The command `data`: what data there is, to fetch it, and what it looks like."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

import tasks
from experiments import data_plots, flag_fit
from experiments.command_line import Arguments
from experiments.errors import UserError, as_user_errors
from tasks import inventory
from tff_drift.simulation import build_uniform_sampling

# Reading many clients of a large set takes long, and a sample tells as much.
_MOST_CLIENTS = 300
_PICTURE = "data.png"


def check(arguments: Arguments) -> None:
    """Prints what data there is, how much of it, and where it comes from.

    Args:
      arguments: The command's flags.
    """
    findings = inventory.inspect(arguments.values["cache_dir"])
    for finding in findings:
        _print_finding(finding)
        print(f"  for {', '.join(finding.tasks)}")
    if any(finding.state == inventory.MISSING for finding in findings):
        print("What is missing comes with: tff-drift data fetch --task=NAME")


def _print_finding(finding: inventory.Finding) -> None:
    print(f"{finding.name}: {finding.state}, source: {finding.source}")
    for content in finding.contents:
        print(f"  {content}")


def fetch(arguments: Arguments) -> None:
    """Fetches the data of a task that is absent.

    Args:
      arguments: The command's flags.

    Raises:
      UserError: If the task needs no data, or it cannot be fetched.
    """
    name = arguments.values["task"]
    if "download" not in flag_fit.option_flags(name):
        raise UserError(f"task {name} needs no data: there is nothing to fetch.")
    options = {**_task_options(arguments), "download": True, "synthetic": False}
    with as_user_errors(OSError, TypeError, ValueError):
        task = _load(arguments, options)
        # The files are there; this looks into them.
        task.train.num_examples(task.train.client_ids[0])
    for finding in inventory.inspect(arguments.values["cache_dir"]):
        if name in finding.tasks and finding.state != inventory.MISSING:
            _print_finding(finding)


def describe(arguments: Arguments) -> None:
    """Prints and draws how a task's examples are spread over its clients.

    Args:
      arguments: The command's flags.

    Raises:
      UserError: If the data is missing, or an option is out of its range.
    """
    with as_user_errors(OSError, TypeError, ValueError):
        task = _load(arguments, _task_options(arguments))
        clients = task.train.client_ids
        sample = build_uniform_sampling(
            clients, min(_MOST_CLIENTS, len(clients)), task.seed
        )(0)
        labels = [_labels(task, client_id) for client_id in sample]
        sizes = np.array([task.train.num_examples(client_id) for client_id in sample])
    folder = pathlib.Path(arguments.values["output_dir"] or f"results/data/{task.name}")
    shares = None
    if all(each is not None for each in labels):
        shares = class_shares([each for each in labels if each is not None])
    figure = data_plots.draw(task.name, len(clients), sizes, shares)
    with as_user_errors(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        data_plots.save(figure, folder / _PICTURE)
    print(f"{task.name}: {task.description}")
    for part, datasets in (
        ("train", task.train),
        ("test", task.test),
        ("validation", task.validation),
    ):
        if datasets is not None:
            print(f"  {part:12}{len(datasets):,} clients")
    seen = "all" if len(sample) == len(clients) else f"{len(sample)} sampled"
    quartiles = ", ".join(
        f"{value:g}" for value in np.percentile(sizes, (0, 25, 50, 75, 100))
    )
    print(f"  examples of {seen} training clients: {sizes.sum():,}")
    print(f"  per client (least, quartiles, most): {quartiles}")
    if shares is not None:
        largest = shares.max(axis=1).mean()
        print(f"  share of a client's largest class, on average: {100 * largest:.0f} %")
    print(f"Files in {folder}: {_PICTURE}")


def class_shares(labels: list[np.ndarray]) -> np.ndarray:
    """Returns the share of each class in each client's examples.

    Args:
      labels: The classes of each client's examples.

    Returns:
      A `float64[clients, classes]` array whose rows sum to 1.
    """
    num_classes = 1 + max(int(each.max()) for each in labels)
    counts = np.stack([np.bincount(each, minlength=num_classes) for each in labels])
    return counts / counts.sum(axis=1, keepdims=True)


def _labels(task: tasks.Task, client_id: str) -> np.ndarray | None:
    """Returns a client's classes, or `None` if its labels are something else."""
    examples = task.train.examples(client_id)
    labels = examples[1] if isinstance(examples, tuple) else None
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return labels


def _task_options(arguments: Arguments) -> dict[str, Any]:
    """Returns the task's options that are given, by name."""
    flags = flag_fit.option_flags(arguments.values["task"])
    flag_fit.check_task_options(arguments)
    return {
        flag.option: arguments.values[name]
        for name, flag in flags.items()
        if name in arguments.given
    }


def _load(arguments: Arguments, options: dict[str, Any]) -> tasks.Task:
    return tasks.load(
        arguments.values["task"],
        cache_dir=arguments.values["cache_dir"],
        seed=arguments.values["seed"],
        **options,
    )
