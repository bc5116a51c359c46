"""The number of examples of each class that every client has."""

from __future__ import annotations

import collections
import collections.abc
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_drift import checks
from tff_drift.simulation.data.client_examples import ClientExamples

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

# More names than this cannot be read below a figure.
_MOST_NAMES = 20


def label_counts(datasets: ClientExamples) -> pd.DataFrame:
    """Counts the examples of each class at each client.

    Reads all clients; take a `subset` of many.

    Args:
      datasets: The clients, with integers as labels: the second of `(x, y)`, or `"y"`
        of a mapping.

    Returns:
      A table with a row for each client and a column for each class, in ascending
      order, that any of them has.

    Raises:
      TypeError: If the argument has the wrong type, or labels are not one integer for
        each example.
    """
    # Slow to import, and of no use to programs that count nothing.
    import pandas as pd

    checks.check_instance("datasets", datasets, ClientExamples, "a ClientDatasets")
    counts = {name: _counts(datasets.examples(name)) for name in datasets.client_ids}
    classes = sorted(set().union(*counts.values()))
    return pd.DataFrame(
        [[count[each] for each in classes] for count in counts.values()],
        index=pd.Index(counts, name="client"),
        columns=pd.Index(classes, name="class"),
    )


def labels_of(examples: Any) -> np.ndarray:
    """Returns a client's labels as one array, empty where there is none.

    Args:
      examples: `(x, y)`, `(x, y, weight)`, or a mapping with `"y"`.
    """
    labels: Any = ()
    if isinstance(examples, tuple) and len(examples) in (2, 3):
        labels = examples[1]
    elif isinstance(examples, collections.abc.Mapping):
        labels = examples.get("y", ())
    is_nested = isinstance(labels, (tuple, collections.abc.Mapping))
    return np.empty(0) if is_nested else np.asarray(labels)


def _counts(examples: Any) -> collections.Counter[int]:
    labels = labels_of(examples)
    if labels.dtype.kind not in "iub" or labels.size != len(labels):
        found = f"{labels.dtype} of shape {labels.shape}"
        raise TypeError(
            "datasets must have an integer as the label of each example, found "
            f"{found if labels.size else 'no single array of labels'}. Give one array "
            "of integers, the second of (x, y) or 'y' of a mapping."
        )
    return collections.Counter(labels.reshape(-1).tolist())


def plot_labels(datasets: ClientExamples, ax: Any = None) -> matplotlib.axes.Axes:
    """Draws how many examples of each class every client has.

    Args:
      datasets: As in `label_counts`.
      ax: The `matplotlib.axes.Axes` to draw into; by default new ones.

    Returns:
      The axes: clients from left to right, in their order, and classes upwards.

    Raises:
      TypeError: As in `label_counts`.
    """
    if ax is not None and not hasattr(ax, "imshow"):
        raise TypeError(f"ax must be a matplotlib.axes.Axes, found {checks.shown(ax)}.")
    table = label_counts(datasets)
    if ax is None:
        # Slow to import, and of no use to programs that draw nothing.
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(8, 3.2)).subplots()
    style = {"cmap": "cividis", "interpolation": "nearest", "origin": "lower"}
    image = ax.imshow(table.to_numpy().T, aspect="auto", **style)
    ax.grid(visible=False)
    if len(table) <= _MOST_NAMES:
        ax.set_xticks(range(len(table)), table.index, rotation=90)
    if len(table.columns) <= _MOST_NAMES:
        ax.set_yticks(range(len(table.columns)), table.columns)
    ax.set(xlabel="client", ylabel="class")
    ax.figure.colorbar(image, ax=ax, label="examples")
    return ax
