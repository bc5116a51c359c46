"""How far clients' labels are from everyone's, and how far chance would put them."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_drift.simulation.data.batching import generator
from tff_drift.simulation.data.client_datasets import ClientDatasets

_DRAWS, _BINS = 50, 10


def label_distances(
    train: ClientDatasets, ids: Sequence[str], seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the total variation between each client's labels and those of all.

    Targets that are floats are put into ten bins, each with a tenth of all.

    Args:
      train: The clients.
      ids: Those to compare.
      seed: The seed of what is drawn by chance.

    Returns:
      The distances, and the mean distances of clients of the same sizes whose labels
      are drawn at random from everyone's; None where an example has no label that is
      a number.
    """
    found = [_labels(train.examples(each)) for each in ids]
    labels = [each for each in found if each is not None]
    if len(labels) < len(found):
        return None
    everyone: np.ndarray = np.concatenate(labels)
    if everyone.dtype.kind == "f":
        edges = np.quantile(everyone, np.linspace(0, 1, _BINS + 1)[1:-1])
        labels = [np.digitize(each, np.unique(edges)) for each in labels]
        everyone = np.concatenate(labels)
    kinds, places = np.unique(everyone, return_inverse=True)
    sizes = [len(each) for each in labels]
    counts = np.stack(
        [
            np.bincount(each, minlength=len(kinds))
            for each in np.split(places.reshape(-1), np.cumsum(sizes)[:-1])
        ]
    )
    shares = counts.sum(0) / counts.sum()
    random = generator(seed, 0, "labels")
    drawn = [random.multinomial(size, shares, size=_DRAWS) / size for size in sizes]
    return (
        np.abs(counts / counts.sum(1, keepdims=True) - shares).sum(1) / 2,
        np.array([np.abs(each - shares).sum(1).mean() / 2 for each in drawn]),
    )


def _labels(examples: Any) -> np.ndarray | None:
    """Returns the labels of a client, integers or one float for each example."""
    labels = None
    if isinstance(examples, tuple) and len(examples) == 2:
        labels = examples[1]
    elif isinstance(examples, collections.abc.Mapping):
        labels = examples.get("y")
    if labels is None or isinstance(labels, (tuple, dict)):
        return None
    labels = np.asarray(labels)
    is_number = labels.dtype.kind in "iub" or labels.size == len(labels)
    return labels.reshape(-1) if labels.dtype.kind in "iubf" and is_number else None
