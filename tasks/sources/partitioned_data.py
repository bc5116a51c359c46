"""Clients made by splitting one data set.

The protocol of Varno et al., AdaBest (2022, https://arxiv.org/abs/2204.13170),
section 4: the training split goes to the training clients and a tenth as many
validation clients; the whole test split is for reporting. The test examples are
partitioned among the training clients, in their class proportions, so that percentiles
over clients tell how well a model serves each of them; figures over all examples do
not depend on that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks import definitions, partitioners
from tasks.sources import central_data
from tff_drift.simulation import ClientDatasets
from tff_drift.simulation.data.examples import Transform


def split_over_clients(
    data: central_data.Splits,
    num_classes: int,
    transform: Transform,
    *,
    seed: int,
    options: Mapping[str, Any],
) -> definitions.Clients:
    """Splits a data set over clients.

    Args:
      data: The data set.
      num_classes: The number of its classes.
      transform: Turns images and labels into what the model takes, see
        `tff_drift.simulation.ClientDatasets`.
      seed: The seed of the split and of the shuffles.
      options: The values of the task's options, see `tasks.describe`.
        `max_examples` cuts training clients alone.

    Returns:
      The clients. Train and test have the same ones.

    Raises:
      ValueError: If there are too few examples for so many clients.
    """
    num_clients = options["num_clients"]
    if num_clients > len(data.test.labels):
        raise ValueError(
            f"num_clients must be at most {len(data.test.labels)}, found "
            f"{num_clients}: every client needs an example of the test set."
        )
    num_held_out = round(options["validation_fraction"] * num_clients)
    num_all = num_clients + num_held_out
    everyone = partitioners.client_ids(num_all)
    sizes = partitioners.log_normal_sizes(
        len(data.train.labels), num_all, options["size_sigma"], seed
    )
    shares, proportions = _deal_training(
        data.train.labels, num_classes, sizes, seed, options
    )
    kept, held_out = partitioners.hold_out_clients(everyone, num_held_out, seed)
    if proportions is not None:
        proportions = proportions[[everyone.index(client_id) for client_id in kept]]
    test_sizes = partitioners.balanced_sizes(len(data.test.labels), num_clients)
    test_shares = partition(data.test.labels, proportions, test_sizes, seed)

    batching = {**definitions.batching(options), "seed": seed, "transform": transform}
    train = _clients(data.train, dict(zip(everyone, shares, strict=True)), batching)
    batching["max_examples"] = None
    test = _clients(data.test, dict(zip(kept, test_shares, strict=True)), batching)
    validation = None
    if held_out:
        validation = train.subset(held_out).replace(max_examples=None)
    return definitions.Clients(train.subset(kept), test, validation)


def _deal_training(
    labels: np.ndarray,
    num_classes: int,
    sizes: np.ndarray,
    seed: int,
    options: Mapping[str, Any],
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Returns each client's training examples, and its class proportions for tests."""
    if options["similarity"] is not None:
        shares = partitioners.partition_by_similarity(
            labels, options["similarity"], sizes, seed
        )
        # Those of the examples that each client has.
        counts = [np.bincount(labels[share], minlength=num_classes) for share in shares]
        return shares, np.stack(counts) / sizes[:, np.newaxis]
    proportions = None
    if options["alpha"] is not None:
        proportions = partitioners.dirichlet_proportions(
            len(sizes), num_classes, options["alpha"], seed
        )
    return partition(labels, proportions, sizes, seed), proportions


def partition(
    labels: np.ndarray, proportions: np.ndarray | None, sizes: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Assigns examples to clients, with label skew or without.

    Args:
      labels: The classes of the examples.
      proportions: One row of class probabilities per client; `None` is IID.
      sizes: The number of examples of each client.
      seed: The seed of the partition.

    Returns:
      One array of example indices per client.

    Raises:
      ValueError: If the arguments do not fit, see `tasks.partitioners`.
    """
    if proportions is None:
        return partitioners.partition_iid(len(labels), sizes, seed)
    return partitioners.partition_by_proportions(labels, proportions, sizes, seed)


def _clients(
    data: central_data.Images,
    shares: Mapping[str, np.ndarray],
    batching: Mapping[str, Any],
) -> ClientDatasets:
    def load_client(client_id: str) -> tuple[np.ndarray, np.ndarray]:
        share = shares[client_id]
        return data.images[share], data.labels[share]

    # The data set is in RAM anyway, and picking a client's images is quick.
    return ClientDatasets(tuple(shares), load_client, cache_bytes=0, **batching)
