"""Whose examples are whose: one data set partitioned among clients.

frame["client"] = tasks.partition(frame["label"], 100, alpha=0.3)
task = tasks.from_frame(frame, client_id="client", label="label")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tasks import partitioners, seeds
from tff_drift import checks, signatures

if TYPE_CHECKING:
    import pandas as pd


@signatures.suggesting_names(clients="num_clients", shards="classes_per_client")
def partition(
    labels: np.ndarray | pd.Series,
    num_clients: int,
    *,
    alpha: float | None = None,
    similarity: float | None = None,
    classes_per_client: int | None = None,
    size_sigma: float = 0.0,
    seed: int = 0,
) -> np.ndarray | pd.Series:
    """Assigns every example of a data set to one of some clients.

    Without `alpha`, `similarity` and `classes_per_client` the split is IID.

    Args:
      labels: The classes of the examples, of any kind that can be sorted.
      num_clients: The number of clients, at most that of examples.
      alpha: The concentration of Dirichlet label skew, see
        `tasks.partitioners.dirichlet_proportions`: a small one leaves a client few
        classes.
      similarity: The share of a client's examples that is drawn at random, from 0 to
        1, the rest by label, see `tasks.partitioners.partition_by_similarity`.
      classes_per_client: Deal by classes: examples sorted by label are cut into
        shards, of which each client gets this many, as in McMahan et al. (2017),
        https://arxiv.org/abs/1602.05629, section 3, with 2.
      size_sigma: The standard deviation of the logarithm of clients' sizes; with 0
        they differ by at most one, by classes by at most `classes_per_client`.
      seed: The seed of the partition.

    Returns:
      The id of each example's client, such as "client_07": a series with the index of
      `labels` if that is one, otherwise an array.

    Raises:
      TypeError: If an argument has the wrong type, or labels cannot be sorted.
      ValueError: If a label is missing, an argument is out of its range, several kinds
        of skew are asked for, or there are fewer examples than clients or shards.
    """
    values = np.asarray(labels)
    if values.ndim != 1 or not len(values):
        raise TypeError(
            "labels must be an array or a column with a label for each example, found "
            f"the shape {values.shape}."
        )
    _check_given(values)
    skews = {
        "alpha": alpha,
        "similarity": similarity,
        "classes_per_client": classes_per_client,
    }
    given = [name for name, value in skews.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are given. Give one of them.")
    checks.check_non_negative("size_sigma", size_sigma, of_model=False)
    numbers = _numbers(values)
    sizes = partitioners.log_normal_sizes(len(values), num_clients, size_sigma, seed)
    if classes_per_client is not None:
        if size_sigma:
            raise ValueError(
                f"size_sigma is {size_sigma}, but shards are of one size. Leave it out "
                "with classes_per_client."
            )
        shares = _by_shards(numbers, num_clients, classes_per_client, seed)
    elif similarity is not None:
        shares = partitioners.partition_by_similarity(numbers, similarity, sizes, seed)
    elif alpha is not None:
        proportions = partitioners.dirichlet_proportions(
            num_clients, int(numbers.max()) + 1, alpha, seed
        )
        shares = partitioners.partition_by_proportions(
            numbers, proportions, sizes, seed
        )
    else:
        shares = partitioners.partition_iid(len(values), sizes, seed)
    ids = partitioners.client_ids(num_clients)
    owners = np.empty(len(values), f"<U{len(ids[0])}")
    for client_id, share in zip(ids, shares, strict=True):
        owners[share] = client_id
    return _like(labels, owners)


def _check_given(labels: np.ndarray) -> None:
    # Takes a while to import, and is needed here alone.
    import pandas as pd

    missing = np.flatnonzero(pd.isna(labels))
    if len(missing):
        raise ValueError(
            f"labels must be given for every example, found {labels[missing[0]]} as "
            f"that of example {missing[0]}. Leave such examples out."
        )


def _numbers(labels: np.ndarray) -> np.ndarray:
    """Returns labels as integers from 0, in sorted order."""
    try:
        return np.unique(labels, return_inverse=True)[1].reshape(-1)
    except TypeError as error:
        raise TypeError(
            f"labels cannot be sorted ({error}). Give numbers, or strings."
        ) from error


def _by_shards(
    labels: np.ndarray, num_clients: int, classes_per_client: int, seed: int
) -> list[np.ndarray]:
    checks.check_integer("classes_per_client", classes_per_client)
    num_shards = num_clients * classes_per_client
    if num_shards > len(labels):
        raise ValueError(
            f"num_clients {num_clients} and classes_per_client {classes_per_client} "
            f"ask for {num_shards} shards of {len(labels)} examples. Ask for fewer."
        )
    rng = seeds.generator(seed, "partition")
    order = rng.permutation(len(labels))
    # Stable, so that examples of a label stay in random order.
    shards = np.array_split(order[np.argsort(labels[order], kind="stable")], num_shards)
    drawn = rng.permutation(num_shards).reshape(num_clients, classes_per_client)
    return [np.concatenate([shards[shard] for shard in share]) for share in drawn]


def _like(labels: Any, owners: np.ndarray) -> np.ndarray | pd.Series:
    # Takes a while to import, and arrays do without.
    import pandas as pd

    if isinstance(labels, pd.Series):
        return pd.Series(owners, index=labels.index, name="client")
    return owners
