"""Reports the data that is there, and how examples are spread over clients."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np
import pandas as pd
from matplotlib import ticker

import tasks
from experiments.analysis import style
from tasks import inventory
from tasks.sources import writers_letters
from tff_drift import files
from tff_drift.simulation import (
    ClientDatasets,
    build_uniform_sampling,
    label_counts,
)

# Reading many clients of a large set takes long, and a sample shows as much.
_MOST_CLIENTS = 300
_PICTURE = "data.png"
_MOST_BINS = 30


def check(cache_dir: str | None) -> None:
    """Prints what data there is, how much of it, and where it comes from.

    Args:
      cache_dir: The folder to look into; `None` is TFF's own.
    """
    findings = inventory.inspect(cache_dir)
    for finding in findings:
        _print_finding(finding)
        print(f"  for {', '.join(finding.tasks)}")
    if any(finding.state == inventory.MISSING for finding in findings):
        print("What is missing comes with: tff-drift data fetch --task=NAME")


def _print_finding(finding: inventory.Finding) -> None:
    print(f"{finding.name}: {finding.state}, source: {finding.source}")
    for content in finding.contents:
        print(f"  {content}")


def load(
    name: str, cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tasks.Task:
    """Returns a task, whose files are looked into.

    Args:
      name: Its name.
      cache_dir: The folder of its data; `None` is TFF's own.
      seed: Its seed.
      options: Its options.

    Raises:
      OSError: If its data is missing.
      TypeError: If an option has the wrong type.
      ValueError: If an option is out of its range, or the data is damaged.
    """
    task = tasks.load(name, cache_dir=cache_dir, seed=seed, **options)
    task.train.num_examples(task.train.client_ids[0])
    return task


def print_fetched(task: tasks.Task, cache_dir: str | None) -> None:
    """Prints what a task's files hold.

    Args:
      task: The task, loaded.
      cache_dir: The folder that they are in.
    """
    for finding in inventory.inspect(cache_dir):
        if task.name in finding.tasks and finding.state != inventory.MISSING:
            _print_finding(finding)


def make_letters(cache_dir: str | None) -> None:
    """Makes EMNIST letters of TFF's EMNIST and prints what it holds.

    Args:
      cache_dir: The folder of the data; `None` is TFF's own.

    Raises:
      OSError: If TFF's EMNIST is not available, or the file is there already.
    """
    path, counts = writers_letters.write(cache_dir)
    print(
        f"{path}: {counts['train']:,} letters to train on, {counts['test']:,} to test"
    )


def describe(task: tasks.Task, output_dir: str) -> None:
    """Prints and draws how a task's examples are spread over its clients.

    Args:
      task: The task, loaded.
      output_dir: The folder for the figure.

    Raises:
      OSError: If the figure cannot be written.
      ValueError: If a client's data is damaged.
    """
    clients = task.train.client_ids
    sample = build_uniform_sampling(
        clients, min(_MOST_CLIENTS, len(clients)), task.seed
    )(0)
    sizes = np.array([task.train.num_examples(client_id) for client_id in sample])
    folder, shares = pathlib.Path(output_dir), class_shares(task.train.subset(sample))
    figure = _draw(task.name, len(clients), sizes, shares)
    files.make_folder(folder)
    style.save(figure, folder / _PICTURE)
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
        largest = shares.max(axis="columns").mean()
        print(f"  share of a client's largest class, on average: {100 * largest:.0f} %")
    print(f"Files in {folder}: {_PICTURE}")


def class_shares(datasets: ClientDatasets) -> pd.DataFrame | None:
    """Returns the share of each class in each client's examples.

    Args:
      datasets: The clients.

    Returns:
      A table like that of `label_counts`, whose rows sum to 1; `None` if labels are no
      classes.
    """
    try:
        table = label_counts(datasets)
    except TypeError:
        return None
    return table.div(table.sum(axis=1), axis=0)


def _draw(
    name: str, num_clients: int, sizes: np.ndarray, shares: pd.DataFrame | None
) -> matplotlib.figure.Figure:
    """Draws a histogram of clients' sizes, and their shares of classes.

    Args:
      name: The task's name.
      num_clients: The number of training clients of the task.
      sizes: The numbers of examples of the clients that are shown.
      shares: The share of each class (column) in the examples of each client (row);
        `None` if there are no classes.

    Returns:
      The figure.
    """
    panels = 1 if shares is None else 2
    figure, axes = style.panels(panels, (10 / panels, 4.5))
    shown = "all" if len(sizes) == num_clients else f"{len(sizes)} sampled"
    figure.suptitle(f"{name}: {shown} of {num_clients:,} training clients")
    # Bins of whole examples, the same number of them in each.
    width = -(-(sizes.max() - sizes.min() + 1) // _MOST_BINS)
    edges = np.arange(sizes.min(), sizes.max() + width + 1, width) - 0.5
    axes[0].hist(sizes, bins=list(edges), color=style.colour(1))
    axes[0].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes[0].set_xlabel("examples of a client")
    axes[0].set_ylabel("clients")
    for side in ("top", "right"):
        axes[0].spines[side].set_visible(False)
    if shares is not None:
        # Clients with the same largest class lie together.
        array = shares.to_numpy()
        classes: dict[float, Any] = dict(enumerate(shares.columns))
        order = np.lexsort((-array.max(axis=1), array.argmax(axis=1)))
        image = axes[1].imshow(
            array[order], aspect="auto", interpolation="nearest", cmap="viridis"
        )
        axes[1].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes[1].xaxis.set_major_formatter(
            lambda position, _: str(classes.get(position, ""))
        )
        axes[1].set_xlabel("class")
        axes[1].set_ylabel("client, by largest class")
        figure.colorbar(image, ax=axes[1], label="share of the client's examples")
    return figure
