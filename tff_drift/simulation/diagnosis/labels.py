"""The distance of clients' labels from everyone's, and that which chance gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tff_drift.simulation.data.batching import generator
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.label_counts import labels_of

_DRAWS, _BINS = 50, 10


def label_distances(
    train: ClientDatasets, ids: Sequence[str], seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the total variation between each client's labels and those of all.

    Targets that are floats are put into ten bins, each with a tenth of all. Rows of
    zeros with a one each are the classes that these ones stand for.

    Args:
      train: The clients.
      ids: Those to compare.
      seed: The seed of what is drawn by chance.

    Returns:
      The distances, and the mean distances of clients of the same sizes whose labels
      are drawn at random from everyone's; None where an example has no label that is
      a number.
    """
    labels = [labels_of(train.examples(each)) for each in ids]
    if all(map(_is_one_hot, labels)):
        labels = [each.argmax(1) for each in labels]
    sizes = [each.size for each in labels]
    everyone: np.ndarray = np.concatenate([each.reshape(-1) for each in labels])
    # Several integers are words, several floats are coordinates.
    numbers = "iubf" if sum(sizes) == sum(map(len, labels)) else "iub"
    if everyone.dtype.kind not in numbers or len(everyone) == 0:
        return None
    if everyone.dtype.kind == "f":
        edges = np.quantile(everyone, np.linspace(0, 1, _BINS + 1)[1:-1])
        everyone = np.digitize(everyone, np.unique(edges))
    kinds, places = np.unique(everyone, return_inverse=True)
    of_clients = np.split(places, np.cumsum(sizes)[:-1])
    counts = np.stack([np.bincount(each, minlength=len(kinds)) for each in of_clients])
    shares = counts.sum(0) / counts.sum()
    random = generator(seed, 0, "labels")
    drawn = [random.multinomial(size, shares, size=_DRAWS) / size for size in sizes]
    return (
        np.abs(counts / counts.sum(1, keepdims=True) - shares).sum(1) / 2,
        np.array([np.abs(each - shares).sum(1).mean() / 2 for each in drawn]),
    )


def _is_one_hot(labels: np.ndarray) -> bool:
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "iubf":
        return False
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(1) == 1).all())
