"""Public examples: drawn from clients, and added to every client's own; pooled data.

Zhao et al. (2018), Federated Learning with Non-IID Data (FedShare).
https://arxiv.org/abs/1806.00582

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating. https://arxiv.org/abs/1910.08234
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tff_drift import checks
from tff_drift.simulation.data import client_weights, lists
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.example_store import OfSource
from tff_drift.simulation.data.examples import (
    Examples,
    batch_spec,
    num_rows,
    take,
)
from tff_drift.simulation.data.examples_digest import chained

# Keeps this stream of random numbers apart from those of other draws by a seed.
_SAMPLE_STREAM = 0x5A3F_E001


def sample_examples(datasets: ClientDatasets, fraction: float, seed: int) -> Examples:
    """Draws a share of all clients' examples, to be public or the server's.

    The rule: the n examples of all clients are numbered, client by client in the
    order of `client_ids`; round(`fraction` n) numbers are drawn uniformly without
    replacement, and at least one if `fraction` is above 0. The clients keep what is
    drawn. The draw is a pure function of the seed, the clients and their numbers of
    examples. All clients are read once.

    Yao et al. take 1 % of the examples, for FedShare's shared data and for the data
    of FedMeta's server:

        meta = sample_examples(train, 0.01, seed)
        meta_data = tf.data.Dataset.from_tensor_slices(meta).batch(64)

    Args:
      datasets: The clients. Their `transform`, if any, makes what is drawn ready for
        the model, without chance; `share` wants examples without it.
      fraction: The share to draw, from 0 to 1.
      seed: The seed of the draw, at least 0.

    Returns:
      A structure of arrays like `datasets.examples`, in the order drawn; with no
      rows if `fraction` is 0.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `fraction` or `seed` is out of its range.
    """
    _check_datasets(datasets)
    checks.check_probability("fraction", fraction)
    checks.check_integer("seed", seed, at_least=0)
    client_ids = datasets.client_ids
    ends = list(itertools.accumulate(map(datasets.num_examples, client_ids)))
    total = ends[-1]
    count = max(1, round(fraction * total)) if fraction else 0
    generator = np.random.Generator(
        np.random.PCG64(np.random.SeedSequence((int(seed), _SAMPLE_STREAM)))
    )
    numbers = generator.choice(total, count, replace=False).tolist()
    if not numbers:
        return take(datasets.examples(client_ids[0]), slice(0, 0))
    rows = []
    for number in numbers:
        client = bisect.bisect_right(ends, number)
        first = ends[client - 1] if client else 0
        examples = datasets.examples(client_ids[client])
        rows.append(take(examples, slice(number - first, number - first + 1)))
    return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *rows)


def share(
    datasets: ClientDatasets, examples: Examples, *, split: bool = False
) -> ClientDatasets:
    """Adds public examples to every client's own: the data of FedShare.

    Zhao et al. (2018). https://arxiv.org/abs/1806.00582

    FedShare is FedAvg on clients that share a small public data set G:

        D_i <- D_i ∪ G,

    or, with `split`, D_i ∪ G_i, where G is cut in the order given into as many equal
    parts G_i as there are clients, up to one example, the larger parts first: so do
    Yao et al. (2019, section 4.2), so that no client's data doubles. The public
    examples are shuffled in with the others, and count in a client's number of
    examples. A client that has a weight keeps it. Without examples, the result trains
    exactly as `datasets` does.

        public = sample_examples(train.replace(transform=None), 0.01, seed)
        train = share(train, public, split=True)

    Args:
      datasets: The clients. `max_examples`, if set, limits their own examples only.
      examples: G, a structure of arrays like the clients' examples before
        `transform`, such as `sample_examples` returns.
      split: Whether to cut G up rather than give all of it to every client.

    Returns:
      New client datasets with the same options and the same ids.

    Raises:
      TypeError: If `examples` are not of the type of the clients' own, or another
        argument has the wrong type.
    """
    _check_datasets(datasets)
    checks.check_flag("split", split)
    plain = datasets.replace(transform=None, cache_bytes=0)
    wanted = plain.element_spec
    try:
        examples = tf.nest.map_structure(np.asarray, lists.without_lists(examples))
        found = batch_spec(examples)
    # What has no first dimension, no type, or rows of different shapes.
    except (IndexError, TypeError, ValueError):
        found = examples
    if found != wanted:
        raise TypeError(
            "examples must be of the type of the clients' own before a transform, "
            f"{checks.shortened(wanted)}, found {checks.shown(found)}."
        )
    own = plain.as_loaded()
    are_beside = datasets._has_client_weights
    if are_beside:
        examples = client_weights.as_loaded(examples, own.element_spec)
    parts = dict.fromkeys(datasets.client_ids, examples)
    if split:
        bounds = np.array_split(np.arange(num_rows(examples)), len(datasets))
        parts = {
            client_id: take(examples, rows)
            for client_id, rows in zip(datasets.client_ids, bounds, strict=True)
        }

    def load_client(client_id: str) -> Examples:
        mine, public = own.examples(client_id), parts[client_id]
        weights = client_weights.weights_of(mine, are_beside)
        if weights is not None:
            public = client_weights.with_weight(public, weights[0], are_beside)
        return tf.nest.map_structure(
            lambda *leaves: np.concatenate(leaves), mine, public
        )

    load: Callable[[str], Examples] = load_client
    if (source := datasets._store.source) is not None:
        load = OfSource(load_client, chained(source, "public", examples))
    return datasets.with_examples(datasets.client_ids, load)


def pool(datasets: ClientDatasets, client_id: str = "everyone") -> ClientDatasets:
    """Returns all clients' examples as those of a single client: central training.

    If the clients have weights, its own is 1: the weight of one alone has no effect.

    Args:
      datasets: The clients. All are read when the examples are first used, in the
        order of `client_ids`, each up to `max_examples`.
      client_id: What to call the client.

    Returns:
      Client datasets of one client with the same options.

    Raises:
      TypeError: If an argument has the wrong type.
    """
    _check_datasets(datasets)
    own = datasets.replace(transform=None).as_loaded()
    are_beside = datasets._has_client_weights

    def load_client(client_id: str) -> Examples:
        del client_id
        pooled = tf.nest.map_structure(
            lambda *leaves: np.concatenate(leaves),
            *map(own.examples, own.client_ids),
        )
        return client_weights.with_weight(pooled, 1.0, are_beside)

    return datasets.with_examples((client_id,), load_client)


def _check_datasets(datasets: ClientDatasets) -> None:
    remedy = "See ClientDatasets.from_arrays."
    checks.check_instance("datasets", datasets, ClientDatasets, remedy=remedy)
